#include "smlstore/reader.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/frames.h"
#include "support/containers.h"
#include "support/readers.h"

namespace {

using sml::Dataset;
using sml::DatasetOptions;
using sml::ErrorCode;
using sml::Location;
using sml::Reader;
using sml::ReaderOptions;
using sml::RecordPiece;
using sml::test::build_container;
using sml::test::compressed;
using sml::test::ContainerOptions;
using sml::test::content_of;
using sml::test::Given;
using sml::test::read_all;
using sml::test::Record;
using sml::test::some_records;
using sml::test::take;
using sml::test::TemporaryDirectory;

// What makes a difference to how a reader works, but must make none to what it gives.
struct Setting {
  bool mapped;
  unsigned threads;
  std::uint64_t memory_bytes;
  bool whole_records;
};
const std::vector<Setting> kSettings = {
    {true, 1, 256U << 20, false},  {true, 4, 256U << 20, false}, {false, 1, 256U << 20, true},
    {false, 4, 256U << 20, false}, {true, 4, 0, true},           {false, 3, 1, false},
};

Dataset open(const std::string& path, bool mapped) {
  DatasetOptions options;
  options.mapped = mapped;
  return Dataset::open(Location{path}, options);
}

ReaderOptions options_of(const Setting& setting) {
  ReaderOptions options;
  options.memory_bytes = setting.memory_bytes;
  options.threads = setting.threads;
  options.whole_records = setting.whole_records;
  return options;
}

// A byte of a file, changed.
void damage(const std::string& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x20));
  REQUIRE(file.flush());
}

}  // namespace

TEST_CASE("records come by number, in the order asked for, whatever the settings") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(500, 2000);
  std::map<std::string, std::string> contents;
  for (const Record& r : records) contents[r.key] = r.content;
  for (const ContainerOptions& container : {ContainerOptions{}, compressed()}) {
    const std::string path = dir.write("a.sml", build_container(records, container));
    for (const Setting& setting : kSettings) {
      const Dataset dataset = open(path, setting.mapped);
      Reader reader(dataset, options_of(setting), true);
      std::vector<std::uint64_t> numbers(1500);
      std::mt19937_64 random(1);
      for (auto& number : numbers) number = random() % 500;  // again and again the same ones
      read_all(
          reader, numbers.size(), [&](std::size_t i) { reader.request(numbers[i]); },
          [&](std::size_t i, const Given& given) {
            REQUIRE_FALSE(given.error);
            CHECK(given.number == numbers[i]);
            CHECK(given.content == contents.at(given.key));
            std::string key;
            dataset.key_of(numbers[i], key);
            CHECK(given.key == key);
          });
      CHECK(reader.stats().records == 1500);
      CHECK(reader.stats().failed == 0);
    }
  }
}

TEST_CASE("records come by key, together with those that do not exist") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(200, 500);
  const std::string path = dir.write("a.sml", build_container(records));
  for (const Setting& setting : kSettings) {
    const Dataset dataset = open(path, setting.mapped);
    Reader reader(dataset, options_of(setting), false);
    read_all(
        reader, 600,
        [&](std::size_t i) {
          reader.request(i % 3 == 0 ? "no/such " + std::to_string(i) : records[i % 200].key);
        },
        [&](std::size_t i, const Given& given) {
          if (i % 3 == 0) {
            CHECK(given.error == ErrorCode::kNotFound);
            CHECK(given.number == sml::kNoNumber);
            CHECK(given.key == "no/such " + std::to_string(i));
            CHECK(given.message.find("record 'no/such " + std::to_string(i) + "'") == 0);
          } else {
            CHECK(given.key == records[i % 200].key);
            CHECK(given.content == records[i % 200].content);
          }
        });
    CHECK(reader.stats().records == 400);
    CHECK(reader.stats().failed == 200);
  }
}

TEST_CASE("keys of requests by number are given only where they were asked for") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.sml", build_container({{"k", "v"}}));
  const Dataset dataset = open(path, true);
  Reader reader(dataset, {}, false);
  reader.request(std::uint64_t{0});
  Given given;
  REQUIRE(take(reader, given));
  CHECK(given.key.empty());
  CHECK(given.content == "v");
}

TEST_CASE("numbers beyond the data set and impossible keys are not found") {
  const TemporaryDirectory dir;
  const Dataset dataset = open(dir.write("a.sml", build_container({{"k", "v"}})), true);
  Reader reader(dataset, {}, true);
  reader.request(std::uint64_t{1});
  reader.request(sml::kNoNumber);
  reader.request("");
  reader.request(std::string(5000, 'k'));
  reader.request("a\nb");
  reader.request("k");
  Given given;
  for (int i = 0; i < 5; ++i) {
    REQUIRE(take(reader, given));
    CHECK(given.error == ErrorCode::kNotFound);
    if (i == 0) CHECK(given.message == "record 1: there are 1 records");
    if (i == 2) CHECK(given.message.find("record ''") == 0);
    if (i == 4) CHECK(given.message.find("record 'a\\nb'") == 0);
  }
  REQUIRE(take(reader, given));
  CHECK(given.content == "v");
  CHECK_FALSE(take(reader, given));
}

TEST_CASE("an empty data set has no records to give") {
  const TemporaryDirectory dir;
  const Dataset dataset = open(dir.write("a.sml", build_container({})), true);
  Reader reader(dataset, {}, true);
  Given given;
  CHECK_FALSE(take(reader, given));
  CHECK(reader.wants_more());
  reader.request(std::uint64_t{0});
  REQUIRE(take(reader, given));
  CHECK(given.error == ErrorCode::kNotFound);
}

TEST_CASE("a key in two containers is ambiguous, and only that one") {
  const TemporaryDirectory dir;
  dir.write("a.sml", build_container({{"both", "1"}, {"a", "2"}}));
  dir.write("b.sml", build_container({{"both", "3"}, {"b", "4"}}));
  const Dataset dataset = open(dir.path() + "/", true);
  Reader reader(dataset, {}, false);
  for (const char* key : {"a", "both", "b"}) reader.request(key);
  Given given;
  REQUIRE(take(reader, given));
  CHECK(given.content == "2");
  REQUIRE(take(reader, given));
  CHECK(given.error == ErrorCode::kAmbiguous);
  CHECK(given.key == "both");
  REQUIRE(take(reader, given));
  CHECK(given.content == "4");
  // By number both are there.
  std::string contents;
  for (std::uint64_t n = 0; n < 4; ++n) reader.request(n);
  while (take(reader, given)) contents += given.content;
  std::sort(contents.begin(), contents.end());
  CHECK(contents == "1234");
}

TEST_CASE("stored records of mapped containers are given in place, others as copies") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = {{"k", content_of(1, 3000)}};
  for (const bool mapped : {true, false}) {
    for (const bool stored : {true, false}) {
      const std::string path =
          dir.write("a.sml", build_container(records, stored ? ContainerOptions{} : compressed()));
      const Dataset dataset = open(path, mapped);
      Reader reader(dataset, {}, false);
      reader.request("k");
      Given given;
      REQUIRE(take(reader, given));
      CHECK(given.content == records[0].content);
      CHECK(given.immutable == (mapped && stored));
    }
  }
}

TEST_CASE("a record is given as soon as it was asked for: a caller may ask for one at a time") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(50, 100);
  const Dataset dataset = open(dir.write("a.sml", build_container(records)), true);
  ReaderOptions options;
  options.threads = 2;
  Reader reader(dataset, options, false);
  Given given;
  for (int round = 0; round < 3; ++round) {
    for (const Record& r : records) {
      CHECK(reader.wants_more());
      reader.request(r.key);
      CHECK(reader.pending() == 1);
      REQUIRE(take(reader, given));
      CHECK(given.content == r.content);
    }
  }
  // Or for many before it takes the first, beyond what the reader wants.
  for (int i = 0; i < 2000; ++i) reader.request(records[static_cast<std::size_t>(i) % 50].key);
  CHECK_FALSE(reader.wants_more());
  for (std::size_t i = 0; i < 2000; ++i) {
    REQUIRE(take(reader, given));
    CHECK(given.content == records[i % 50].content);
  }
  CHECK(reader.wants_more());
}

TEST_CASE("records larger than a batch's memory come whole, in any mixture with small ones") {
  const TemporaryDirectory dir;
  std::vector<Record> records;
  for (std::size_t i = 0; i < 40; ++i) {
    records.push_back({"k" + std::to_string(i), content_of(i, i % 3 == 0 ? 900'000 : 10)});
  }
  ContainerOptions container = compressed();
  container.block_bytes = 1U << 20;
  const std::string path = dir.write("a.sml", build_container(records, container));
  for (const Setting& setting : kSettings) {
    const Dataset dataset = open(path, setting.mapped);
    Reader reader(dataset, options_of(setting), false);
    read_all(
        reader, 200, [&](std::size_t i) { reader.request(records[(i * 7) % 40].key); },
        [&](std::size_t i, const Given& given) {
          CHECK(given.pieces == 1);
          CHECK(given.content == records[(i * 7) % 40].content);
        });
  }
}

TEST_CASE("records in pieces come piece by piece, among others") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = {{"a", "small"},
                                       {"b", content_of(1, 200'000)},
                                       {"c", ""},
                                       {"d", content_of(2, 57'000)},
                                       {"e", content_of(3, 57'000 * 2)}};
  for (ContainerOptions container : {ContainerOptions{}, compressed()}) {
    container.piece_bytes = 57'000 - 8192;
    const std::string path = dir.write("a.sml", build_container(records, container));
    for (const Setting& setting : kSettings) {
      const Dataset dataset = open(path, setting.mapped);
      Reader reader(dataset, options_of(setting), false);
      read_all(
          reader, 20, [&](std::size_t i) { reader.request(records[i % 5].key); },
          [&](std::size_t i, const Given& given) {
            const std::size_t size = records[i % 5].content.size();
            CHECK(given.content == records[i % 5].content);
            CHECK(given.pieces == std::max<std::size_t>(1, (size + container.piece_bytes - 1) /
                                                               container.piece_bytes));
          });
    }
  }
}

TEST_CASE("one damaged record is an outcome of that record: all others come byte for byte") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(300, 1000);
  for (const ContainerOptions& container : {ContainerOptions{}, compressed()}) {
    const std::string path = dir.write("photos.sml", build_container(records, container));
    std::string damaged;
    std::uint64_t block = 0;
    std::uint64_t offset = 0;
    {
      const Dataset dataset = open(path, false);
      dataset.key_of(123, damaged);
      const sml::Place place = dataset.containers()[0].reader->index().place(123);
      block = place.block;
      offset = place.offset;
      damage(path, place.offset + sml::SlotPrefix::kBytes);
    }
    for (const Setting& setting : kSettings) {
      const Dataset dataset = open(path, setting.mapped);
      Reader reader(dataset, options_of(setting), false);
      read_all(
          reader, records.size(), [&](std::size_t i) { reader.request(records[i].key); },
          [&](std::size_t i, const Given& given) {
            if (records[i].key == damaged) {
              CHECK(given.error == ErrorCode::kCorrupt);
              CHECK(given.number == 123);
              CHECK(given.message.find("record '" + damaged + "': checksum mismatch (stored ") ==
                    0);
              CHECK(given.message.find(", computed ") != std::string::npos);
              CHECK(given.message.find(" in block " + std::to_string(block) + " at offset " +
                                       std::to_string(offset) + " of photos") != std::string::npos);
            } else {
              CHECK_FALSE(given.error);
              CHECK(given.content == records[i].content);
            }
          });
      CHECK(reader.stats().failed == 1);
      CHECK(reader.stats().records == records.size() - 1);
    }
  }
}

TEST_CASE(
    "of a record with a damaged piece, the pieces before it come, or none where whole records are "
    "asked for") {
  const TemporaryDirectory dir;
  ContainerOptions container;
  container.order = sml::PackOrder::kInput;
  container.piece_bytes = 40'000;
  const std::vector<Record> records = {
      {"before", "1"}, {"large", content_of(1, 180'000)}, {"after", "2"}};
  const std::string path = dir.write("a.sml", build_container(records, container));
  std::uint64_t block = 0;
  std::uint64_t offset = 0;
  {
    const Dataset dataset = open(path, false);
    const sml::Index& index = dataset.containers()[0].reader->index();
    block = index.place(1).block + 3;
    offset = index.block_offset(block);
    damage(path, index.block_offset(block + 1) - 1000);
  }
  for (const Setting& setting : kSettings) {
    const Dataset dataset = open(path, setting.mapped);
    Reader reader(dataset, options_of(setting), true);
    for (std::uint64_t n = 0; n < 3; ++n) reader.request(n);
    Given given;
    REQUIRE(take(reader, given));
    CHECK(given.content == "1");
    REQUIRE(take(reader, given));
    CHECK(given.error == ErrorCode::kCorrupt);
    CHECK(given.key == "large");
    CHECK(given.pieces == (setting.whole_records ? 0 : 3));
    CHECK(given.content == records[1].content.substr(0, given.pieces * 40'000));
    CHECK(given.message.find("record 'large': ") == 0);
    CHECK(given.message.find(" in block " + std::to_string(block) + " at offset " +
                             std::to_string(offset) + " of a") != std::string::npos);
    REQUIRE(take(reader, given));
    CHECK(given.content == "2");
    CHECK_FALSE(take(reader, given));
  }
}

TEST_CASE("a damaged dictionary block costs no record: the footer has the dictionary too") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(50, 300);
  ContainerOptions container = compressed();
  container.dictionary = content_of(1, 4000);
  const std::string path = dir.write("a.sml", build_container(records, container));
  damage(path, open(path, false).containers()[0].reader->index().block_offset(1) - 100);
  const Dataset dataset = open(path, true);
  Reader reader(dataset, {}, false);
  for (const Record& r : records) reader.request(r.key);
  Given given;
  for (const Record& r : records) {
    REQUIRE(take(reader, given));
    CHECK(given.content == r.content);
  }
}

TEST_CASE("a container that was cut while it is read gives errors for what is missing") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(100, 3000);
  ContainerOptions container;
  container.order = sml::PackOrder::kInput;
  const std::string path = dir.write("a.sml", build_container(records, container));
  const Dataset dataset = open(path, false);
  std::filesystem::resize_file(path, dataset.containers()[0].reader->index().place(60).offset);
  Reader reader(dataset, {}, false);
  for (std::uint64_t n = 0; n < 100; ++n) reader.request(n);
  Given given;
  for (std::size_t n = 0; n < 60; ++n) {
    REQUIRE(take(reader, given));
    if (!given.error) CHECK(given.content == records[n].content);
  }
  for (std::size_t n = 60; n < 100; ++n) {
    REQUIRE(take(reader, given));
    CHECK(given.error);
  }
}

TEST_CASE("a reader may go away with requests pending") {
  const TemporaryDirectory dir;
  std::vector<Record> records = some_records(100, 5000);
  records.push_back({"large", content_of(1, 300'000)});
  ContainerOptions container = compressed();
  container.piece_bytes = 20'000;
  const Dataset dataset = open(dir.write("a.sml", build_container(records, container)), true);
  for (std::size_t taken = 0; taken < 20; ++taken) {
    ReaderOptions options;
    options.threads = 3;
    Reader reader(dataset, options, false);
    reader.request("large");
    for (const Record& r : records) reader.request(r.key);
    RecordPiece piece;
    for (std::size_t i = 0; i < taken; ++i) REQUIRE(reader.next(piece));
  }
}

TEST_CASE("several readers share a data set") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = some_records(100, 1000);
  const Dataset dataset = open(dir.write("a.sml", build_container(records, compressed())), true);
  ReaderOptions options;
  options.threads = 2;
  Reader one(dataset, options, false);
  Reader two(dataset, options, false);
  for (const Record& r : records) {
    one.request(r.key);
    two.request(r.key);
  }
  Given given;
  for (const Record& r : records) {
    REQUIRE(take(one, given));
    CHECK(given.content == r.content);
    REQUIRE(take(two, given));
    CHECK(given.content == r.content);
  }
}

TEST_CASE("pieces that come together are those that come one by one") {
  const TemporaryDirectory dir;
  ContainerOptions in_pieces = compressed();
  in_pieces.piece_bytes = 1000;
  const std::vector<Record> records = some_records(300, 1500);
  for (const ContainerOptions& container : {compressed(), in_pieces}) {
    const std::string path = dir.write("a.sml", build_container(records, container));
    damage(path, sml::Header::kBytes + 30'000);
    for (const Setting& setting : kSettings) {
      const Dataset dataset = open(path, setting.mapped);
      Reader one_by_one(dataset, options_of(setting), true);
      std::vector<Given> expected(dataset.records());
      read_all(
          one_by_one, expected.size(), [&](std::size_t i) { one_by_one.request(i); },
          [&](std::size_t i, const Given& given) { expected[i] = given; });
      CHECK(one_by_one.stats().failed > 0);

      Reader reader(dataset, options_of(setting), true);
      std::vector<RecordPiece> pieces(7);
      std::string content;
      std::size_t requested = 0;
      std::size_t record = 0;
      std::size_t most = 0;
      while (record < expected.size()) {
        while (requested < expected.size() && reader.wants_more()) reader.request(requested++);
        const std::size_t count = reader.next(pieces);
        REQUIRE(count > 0);
        most = std::max(most, count);
        for (std::size_t i = 0; i < count; ++i) {
          const RecordPiece& piece = pieces[i];
          const Given& wanted = expected.at(record);
          CHECK(piece.number == wanted.number);
          CHECK(piece.key == wanted.key);
          if (piece.last) CHECK((piece.error != nullptr) == wanted.error.has_value());
          if (piece.error != nullptr) CHECK(i + 1 == count);
          content += sml::as_text(piece.bytes);
          if (!piece.last) continue;
          CHECK(content == wanted.content);
          content.clear();
          ++record;
        }
      }
      CHECK(reader.next(pieces) == 0);
      CHECK(reader.stats().records == one_by_one.stats().records);
      CHECK(reader.stats().failed == one_by_one.stats().failed);
      if (setting.mapped && setting.memory_bytes > 0) CHECK(most > 1);
    }
  }
}

TEST_CASE("a range of a record comes in the pieces that hold it") {
  const TemporaryDirectory dir;
  ContainerOptions in_pieces;
  in_pieces.piece_bytes = 1000;
  const std::vector<Record> records = {{"large", content_of(1, 10'500)}, {"small", "few bytes"}};
  const std::string path = dir.write("a.sml", build_container(records, in_pieces));
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  for (const Setting& setting : kSettings) {
    const Dataset dataset = open(path, setting.mapped);
    Reader reader(dataset, options_of(setting), false);
    for (const Record& record : records) {
      const std::uint64_t size = record.content.size();
      for (const std::uint64_t offset :
           {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{999}, std::uint64_t{1000},
            std::uint64_t{4321}, size - 1, kMost}) {
        for (const std::uint64_t bytes :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1001}, size, kMost}) {
          CAPTURE(offset);
          CAPTURE(bytes);
          reader.request_range(*dataset.find(record.key), offset, bytes);
          CHECK(reader.pending() == 1);
          std::string got;
          std::uint64_t begin = 0;
          RecordPiece piece;
          do {
            REQUIRE(reader.next(piece));
            REQUIRE(piece.error == nullptr);
            if (got.empty()) begin = piece.offset;
            CHECK(piece.offset == begin + got.size());
            CHECK(piece.record_bytes == size);
            got += sml::as_text(piece.bytes);
          } while (!piece.last);
          CHECK(reader.pending() == 0);
          CHECK(got == record.content.substr(begin, got.size()));
          if (offset >= size) continue;
          const std::uint64_t wanted = std::min(bytes, size - offset);
          CHECK(begin <= offset);
          CHECK(begin + got.size() >= offset + wanted);
          if (size > 1000) {  // nothing but the pieces that hold it
            CHECK(begin + 1000 > offset);
            CHECK(got.size() < std::max<std::uint64_t>(wanted, 1) + 2000);
          }
        }
      }
    }
  }
}
