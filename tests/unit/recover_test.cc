#include "smlstore/recover.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/container_reader.h"
#include "smlstore/verify.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/read_container.h"

using sml::Bytes;
using sml::ContainerReader;
using sml::Error;
using sml::ErrorCode;
using sml::MemorySource;
using sml::PackOrder;
using sml::RecoverOptions;
using sml::RecoverReport;
using sml::test::build_container;
using sml::test::ContainerOptions;
using sml::test::Record;

namespace {

struct Outcome {
  RecoverReport report;
  Bytes bytes;
  std::vector<std::string> losses;
  std::map<std::string, std::string> records;

  bool mentions(const std::string& text) const {
    return std::any_of(losses.begin(), losses.end(),
                       [&](const std::string& loss) { return loss.find(text) != loss.npos; });
  }
};

// What is recovered is a sound container.
Outcome recover_bytes(const Bytes& damaged) {
  Outcome outcome;
  RecoverOptions options;
  options.threads = 1;
  options.on_loss = [&](const Error& error) { outcome.losses.emplace_back(error.what()); };
  sml::MemorySink sink;
  outcome.report = sml::recover(std::make_shared<MemorySource>(damaged), sink, options);
  outcome.bytes = sink.bytes();
  CHECK(outcome.report.losses == outcome.losses.size());

  sml::Dataset::Container container;
  container.name = "recovered";
  container.reader =
      std::make_shared<ContainerReader>(std::make_shared<MemorySource>(outcome.bytes));
  for (std::uint64_t i = 0; i < container.reader->index().records(); ++i) {
    std::string key;
    container.reader->index().key_of(i, key);
    outcome.records[key] = sml::test::read_record(*container.reader, outcome.bytes, i);
  }
  CHECK(outcome.records.size() == outcome.report.summary.counts.records);
  std::vector<sml::Dataset::Container> containers;
  containers.push_back(std::move(container));
  const sml::Dataset dataset = sml::Dataset::from(std::move(containers));
  sml::VerifyOptions verify;
  verify.threads = 1;
  verify.on_damage = [](const Error& error) { FAIL_CHECK(error.what()); };
  CHECK(sml::verify(dataset, verify).damaged == 0);
  return outcome;
}

std::string words(std::uint64_t seed, std::size_t bytes) {
  std::mt19937_64 random(seed);
  std::string out;
  while (out.size() < bytes) out += "word" + std::to_string(random() % 300) + ' ';
  out.resize(bytes);
  return out;
}

std::string noise(std::uint64_t seed, std::size_t bytes) {
  std::mt19937_64 random(seed);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random() >> 56U);
  return out;
}

// Stored, compressed and large records, samples, many blocks.
std::vector<Record> varied_records() {
  std::vector<Record> records;
  for (int i = 0; i < 60; ++i) {
    const std::string stem = "d" + std::to_string(i % 7) + "/" + std::to_string(100 + i);
    records.push_back({stem + ".txt", words(i, 200 + 97 * i)});
    records.push_back({stem + ".bin", noise(i, 3000 + 50 * i)});
  }
  records.push_back({"large", noise(1000, 30000)});
  records.push_back({"large.txt", words(1001, 50000)});
  records.push_back({"nothing", ""});
  return records;
}

std::vector<ContainerOptions> kinds() {
  std::vector<ContainerOptions> kinds(5);
  kinds[0].order = PackOrder::kInput;
  kinds[1].order = PackOrder::kName;
  kinds[1].compress = sml::CompressionOptions::Mode::kZstd;
  kinds[1].piece_bytes = 7000;
  kinds[2].order = PackOrder::kRandom;
  kinds[2].seed = 9;
  kinds[2].compress = sml::CompressionOptions::Mode::kZstd;
  kinds[2].dictionary = words(5, 4000);
  kinds[2].grouping = sml::Grouping::kStem;
  kinds[3].align = 512;
  kinds[3].piece_bytes = 9000;
  kinds[3].compress = sml::CompressionOptions::Mode::kAuto;
  kinds[4].piece_bytes = 9000;
  kinds[4].grouping = sml::Grouping::kStem;
  kinds[4].compress = sml::CompressionOptions::Mode::kZstd;
  kinds[4].dictionary = words(6, 3000);
  return kinds;
}

std::map<std::string, std::string> contents_of(const std::vector<Record>& records) {
  std::map<std::string, std::string> out;
  for (const Record& record : records) out[record.key] = record.content;
  return out;
}

void flip(Bytes& bytes, std::uint64_t offset) { bytes[offset] ^= std::byte{0x10}; }

// Where the records of a container are: bytes of their own slots, and of their blocks.
struct Range {
  std::uint64_t begin, end;
  bool touches(std::uint64_t from, std::uint64_t to) const { return from < end && begin < to; }
};
struct Whereabouts {
  std::map<std::string, std::vector<Range>> own;
  std::map<std::string, std::vector<Range>> blocks;
  std::vector<Range> dictionary;
  std::map<std::string, bool> needs_dictionary;
};

Whereabouts locate(const Bytes& bytes) {
  const ContainerReader reader(std::make_shared<MemorySource>(bytes));
  const sml::Index& index = reader.index();
  Whereabouts where;
  for (std::uint64_t i = 0; i < index.records(); ++i) {
    std::string key;
    index.key_of(i, key);
    const sml::Place place = index.place(i);
    where.own[key].push_back({place.offset, place.offset + place.slot_bytes});
    for (std::uint64_t b = place.block; b < place.block + place.pieces; ++b) {
      where.blocks[key].push_back({index.block_offset(b), index.block_offset(b + 1)});
      if (b > place.block)
        where.own[key].push_back(
            {index.block_offset(b) + index.block(b).slots_offset, index.block_offset(b + 1)});
      const auto prefix = sml::SlotPrefix::decode(
          bytes.data() +
          (b == place.block ? place.offset : index.block_offset(b) + index.block(b).slots_offset));
      if (prefix.codec == sml::Codec::kZstdDictionary) where.needs_dictionary[key] = true;
    }
  }
  if (!index.dictionary().empty())
    where.dictionary.push_back({index.block_offset(0), index.block_offset(1)});
  return where;
}

bool any_touches(const std::vector<Range>& ranges, std::uint64_t from, std::uint64_t to) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return range.touches(from, to); });
}

// Every record that is there is right; those missing are the expected ones, and each is told.
void check_records(const Outcome& outcome, const std::map<std::string, std::string>& records,
                   const std::set<std::string>& may_be_lost, bool told_by_key) {
  std::size_t lost = 0;
  for (const auto& record : records) {
    const std::string& key = record.first;
    const std::string& content = record.second;
    const auto found = outcome.records.find(key);
    if (found != outcome.records.end()) {
      CHECK(found->second == content);
      continue;
    }
    ++lost;
    CAPTURE(key);
    CHECK(may_be_lost.count(key) == 1);
    if (told_by_key) CHECK(outcome.mentions("record '" + key + "': "));
  }
  CHECK(outcome.records.size() + lost == records.size());
  // Records at the end, lost with footer and block, are not counted: nothing tells that they were.
  if (outcome.mentions("neither a block nor the footer follows")) {
    CHECK(outcome.report.records_lost <= lost);
  } else {
    CHECK(outcome.report.records_lost == lost);
  }
  if (lost > 0) CHECK(outcome.report.losses > 0);
}

}  // namespace

TEST_CASE("a sound container is recovered bit by bit") {
  for (const ContainerOptions& kind : kinds()) {
    const Bytes bytes = build_container(varied_records(), kind);
    const Outcome outcome = recover_bytes(bytes);
    CHECK(outcome.bytes == bytes);
    CHECK(outcome.report.identical);
    CHECK(outcome.report.index_used);
    CHECK(outcome.losses.empty());
  }
  const Bytes empty = build_container({});
  CHECK(recover_bytes(empty).bytes == empty);
}

TEST_CASE("a damaged header, footer or tail, or a damaged block header, costs nothing") {
  for (const ContainerOptions& kind : kinds()) {
    const Bytes bytes = build_container(varied_records(), kind);
    const ContainerReader reader(std::make_shared<MemorySource>(bytes));
    const std::uint64_t footer = reader.tail().footer_offset;
    for (const std::uint64_t at :
         {std::uint64_t{3}, std::uint64_t{33}, std::uint64_t{100}, footer, footer + 700,
          bytes.size() - 64, bytes.size() - 30, bytes.size() - 1,
          reader.index().block_offset(1) + 20, reader.index().block_offset(2) + 66}) {
      CAPTURE(at);
      Bytes damaged = bytes;
      flip(damaged, at);
      const Outcome outcome = recover_bytes(damaged);
      CHECK(outcome.bytes == bytes);
      CHECK(outcome.losses.empty());
    }
  }
}

TEST_CASE("without a footer all is rebuilt; one that was cut off may have had more before it") {
  for (const ContainerOptions& kind : kinds()) {
    const Bytes bytes = build_container(varied_records(), kind);
    const ContainerReader reader(std::make_shared<MemorySource>(bytes));
    Bytes damaged = bytes;
    damaged.resize(reader.index().block_offset(reader.index().blocks()));
    const Outcome outcome = recover_bytes(damaged);
    CHECK(outcome.bytes == bytes);
    CHECK_FALSE(outcome.report.index_used);
    REQUIRE(outcome.losses.size() == 1);
    CHECK(
        outcome.mentions("neither a block nor the footer follows; whatever records came after "
                         "the first 123 are lost"));
    CHECK(outcome.report.records_lost == 0);
  }
}

TEST_CASE("header and footer both lost: the records are there, the settings are not") {
  for (const ContainerOptions& kind : kinds()) {
    const Bytes bytes = build_container(varied_records(), kind);
    Bytes damaged = bytes;
    flip(damaged, 40);
    flip(damaged, damaged.size() - 200);
    const Outcome outcome = recover_bytes(damaged);
    check_records(outcome, contents_of(varied_records()), {}, true);
    CHECK(outcome.mentions("seed, order, grouping and part of the container are lost: header: "));
  }
}

TEST_CASE("damage at 1000 seeded places loses no record but those that were hit") {
  const std::uint64_t seed = 20261130;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::map<std::string, std::string> records = contents_of(varied_records());
  std::vector<Bytes> containers;
  std::vector<Whereabouts> where;
  for (const ContainerOptions& kind : kinds()) {
    containers.push_back(build_container(varied_records(), kind));
    where.push_back(locate(containers.back()));
  }
  std::size_t with_losses = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::size_t kind = random() % containers.size();
    const Bytes& sound = containers[kind];
    // A byte, a sector, or a stretch of any size.
    const std::uint64_t bytes = i % 3 == 0 ? 1 : i % 3 == 1 ? 512 : 1 + random() % 20000;
    const std::uint64_t from = random() % sound.size();
    const std::uint64_t to = std::min<std::uint64_t>(sound.size(), from + bytes);
    Bytes damaged = sound;
    for (std::uint64_t at = from; at < to; ++at)
      damaged[at] ^= static_cast<std::byte>(1 + random() % 255);
    CAPTURE(i);
    CAPTURE(kind);
    CAPTURE(from);
    CAPTURE(to);
    const Outcome outcome = recover_bytes(damaged);
    std::set<std::string> hit;
    for (const auto& [key, content] : records) {
      // With the footer, its own bytes; without, those of its block.
      const auto& ranges = outcome.report.index_used ? where[kind].own : where[kind].blocks;
      if (any_touches(ranges.at(key), from, to)) hit.insert(key);
    }
    check_records(outcome, records, hit, outcome.report.index_used);
    if (outcome.report.losses == 0) CHECK(outcome.bytes == sound);
    with_losses += outcome.report.losses > 0 ? 1 : 0;
  }
  CHECK(with_losses > 300);
  CHECK(with_losses < 1000);
}

TEST_CASE("damage at seeded places of a container without a footer loses only what it must") {
  std::mt19937_64 random(7);
  const std::map<std::string, std::string> records = contents_of(varied_records());
  for (const ContainerOptions& kind : kinds()) {
    const Bytes sound = build_container(varied_records(), kind);
    const Whereabouts where = locate(sound);
    const ContainerReader reader(std::make_shared<MemorySource>(sound));
    const std::uint64_t blocks_end = reader.index().block_offset(reader.index().blocks());
    for (int i = 0; i < 60; ++i) {
      Bytes damaged = sound;
      flip(damaged, sound.size() - 100);  // the footer
      const std::uint64_t from = 128 + random() % (blocks_end - 128);
      const std::uint64_t to = std::min(blocks_end, from + 1 + random() % 3000);
      for (std::uint64_t at = from; at < to; ++at) damaged[at] ^= std::byte{0x55};
      const Outcome outcome = recover_bytes(damaged);
      CHECK_FALSE(outcome.report.index_used);
      const bool dictionary_hit = any_touches(where.dictionary, from, to);
      std::set<std::string> hit;
      for (const auto& [key, content] : records) {
        const bool undecodable = dictionary_hit && where.needs_dictionary.count(key) == 1;
        if (undecodable || any_touches(where.blocks.at(key), from, to)) hit.insert(key);
      }
      CAPTURE(from);
      CAPTURE(to);
      check_records(outcome, records, hit, false);
    }
  }
}

TEST_CASE("a lost block is told with the number of its records") {
  ContainerOptions options;
  options.order = PackOrder::kInput;
  std::vector<Record> records;
  for (int i = 0; i < 40; ++i) records.push_back({"r" + std::to_string(i), noise(i, 9000)});
  Bytes bytes = build_container(records, options);
  const ContainerReader reader(std::make_shared<MemorySource>(bytes));
  const std::uint64_t begin = reader.index().block_offset(2);
  const std::uint64_t end = reader.index().block_offset(3);
  CHECK(reader.index().block(2).first_record == 14);
  flip(bytes, bytes.size() - 1);
  flip(bytes, begin + 20);
  const Outcome outcome = recover_bytes(bytes);
  CHECK(outcome.losses == std::vector<std::string>{"block 2 (bytes " + std::to_string(begin) +
                                                   " to " + std::to_string(end - 1) +
                                                   "): 7 records are lost with their keys"});
  CHECK(outcome.report.records_lost == 7);
  CHECK(outcome.report.summary.counts.records == 33);
}

TEST_CASE("what is no container at all is refused") {
  sml::MemorySink sink;
  for (const std::string& text : {std::string(), std::string("x"), noise(3, 100000)}) {
    const Bytes bytes(sml::as_bytes(text).begin(), sml::as_bytes(text).end());
    sml::test::check_error(ErrorCode::kCorrupt, "neither a header nor a block", [&] {
      sml::recover(std::make_shared<MemorySource>(bytes), sink, RecoverOptions{});
    });
  }
}

TEST_CASE("bytes that cannot be read are lost bytes; the rest of their block is not") {
  class Failing final : public sml::ByteSource {
   public:
    Failing(Bytes bytes, std::uint64_t begin, std::uint64_t end)
        : bytes_(std::move(bytes)), begin_(begin), end_(end) {}
    std::uint64_t size() const override { return bytes_.size(); }
    void read(std::uint64_t offset, sml::MutableBytes out) const override {
      if (offset < end_ && begin_ < offset + out.size())
        throw Error(ErrorCode::kIo, "input/output error");
      MemorySource(bytes_).read(offset, out);
    }

   private:
    Bytes bytes_;
    std::uint64_t begin_, end_;
  };
  ContainerOptions options;
  std::vector<Record> records;
  for (int i = 0; i < 40; ++i) records.push_back({"r" + std::to_string(i), noise(i, 9000)});
  const Bytes bytes = build_container(records, options);
  const ContainerReader reader(std::make_shared<MemorySource>(bytes));
  const std::uint64_t place = reader.index().place(*reader.index().find("r17")).offset + 4000;
  std::vector<std::string> losses;
  RecoverOptions recovery;
  recovery.on_loss = [&](const Error& error) { losses.emplace_back(error.what()); };
  sml::MemorySink sink;
  const RecoverReport report =
      sml::recover(std::make_shared<Failing>(bytes, place, place + 512), sink, recovery);
  CHECK(report.records_lost == 1);
  CHECK(report.summary.counts.records == 39);
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].find("record 'r17': checksum mismatch") == 0);
}

TEST_CASE("what is recovered does not depend on the number of threads") {
  Bytes bytes = build_container(varied_records(), kinds()[4]);
  flip(bytes, 30000);
  flip(bytes, bytes.size() - 100);
  Bytes first;
  for (const unsigned threads : {1U, 4U}) {
    RecoverOptions options;
    options.threads = threads;
    sml::MemorySink sink;
    sml::recover(std::make_shared<MemorySource>(bytes), sink, options);
    if (threads == 1) first = sink.bytes();
    CHECK(sink.bytes() == first);
  }
}

namespace {

Bytes glued(std::initializer_list<sml::ByteView> parts) {
  Bytes bytes;
  for (const sml::ByteView part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

std::vector<Record> versions(const std::string& version) {
  std::vector<Record> records;
  for (int i = 0; i < 40; ++i)
    records.push_back(
        {std::to_string(10 + i), version + noise(static_cast<std::uint64_t>(i), 3000)});
  return records;
}

}  // namespace

TEST_CASE("records of a container that is itself a record are never given") {
  // Keys of both are the same; the contents differ.
  ContainerOptions small;
  small.tag = 1;
  small.order = PackOrder::kName;
  std::vector<Record> records = versions("new");
  records.push_back(
      {"99.backup.sml", std::string(sml::as_text(build_container(versions("old"), small)))});
  ContainerOptions options;
  options.tag = 2;
  options.block_bytes = 1U << 20;
  const Bytes sound = build_container(records, options);
  const std::map<std::string, std::string> contents = contents_of(records);
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) {
    Bytes damaged = sound;
    flip(damaged, damaged.size() - 100);  // the footer
    if (i % 3 == 0) damaged.resize(200 + random() % (damaged.size() - 200));
    if (i % 3 == 1) flip(damaged, 128 + random() % 64);  // the header of block 0
    if (i % 4 == 3) flip(damaged, 20);                   // the header
    if (i % 3 == 1) {
      sml::MemorySink sink;
      const auto source = std::make_shared<MemorySource>(damaged);
      if (i % 4 == 3) continue;  // of this container nothing is left to go by
      CHECK(sml::recover(source, sink, {}).summary.counts.records == 0);
      continue;
    }
    const Outcome outcome = recover_bytes(damaged);
    for (const auto& record : outcome.records) {
      const std::string& key = record.first;
      CAPTURE(key);
      REQUIRE(contents.count(key) == 1);
      CHECK(contents.at(key) == record.second);
    }
  }
}

TEST_CASE("of a block that was cut off, the records in front of the cut are there") {
  ContainerOptions options;
  options.order = PackOrder::kInput;
  options.block_bytes = 1U << 20;
  std::vector<Record> records;
  for (int i = 0; i < 100; ++i)
    records.push_back({std::to_string(100 + i), noise(static_cast<std::uint64_t>(i), 2000)});
  Bytes bytes = build_container(records, options);
  const ContainerReader reader(std::make_shared<MemorySource>(bytes));
  REQUIRE(reader.index().blocks() == 1);
  bytes.resize(reader.index().place(63).offset + 17);
  const Outcome outcome = recover_bytes(bytes);
  CHECK(outcome.records.size() == 63);
  CHECK(outcome.report.records_lost == 37);
  CHECK(outcome.mentions("record '163': it lies behind the end of the file"));
  CHECK_FALSE(outcome.report.all_known);
}

TEST_CASE("bytes in front, behind or in between cost nothing but what they tear apart") {
  for (ContainerOptions kind : kinds()) {
    kind.tag = 5;
    const Bytes sound = build_container(varied_records(), kind);
    const ContainerReader reader(std::make_shared<MemorySource>(sound));
    const Bytes zeros(5000);
    for (const std::size_t count : {std::size_t{1}, std::size_t{4096}, std::size_t{5000}}) {
      const sml::ByteView garbage = sml::ByteView(zeros).first(count);
      CHECK(recover_bytes(glued({garbage, sound})).bytes == sound);
      CHECK(recover_bytes(glued({sound, garbage})).bytes == sound);
      // Between two blocks.
      const std::uint64_t at = reader.index().block_offset(2);
      const Outcome between = recover_bytes(
          glued({sml::ByteView(sound).first(at), garbage, sml::ByteView(sound).subspan(at)}));
      CHECK(between.bytes == sound);
      CHECK(between.losses.empty());
      CHECK(between.report.identical);
    }
  }
}

TEST_CASE("of several containers one behind the other one is recovered, and the others are told") {
  ContainerOptions one;
  one.tag = 1;
  ContainerOptions two;
  two.tag = 2;
  const Bytes a = build_container(versions("a"), one);
  const Bytes b = build_container(versions("b"), two);
  const Outcome whole = recover_bytes(glued({a, b}));
  CHECK(whole.bytes == b);
  CHECK(whole.losses ==
        std::vector<std::string>{"byte 128: a block of another container, which is passed over"});
  const Outcome cut = recover_bytes(glued({a, sml::ByteView(b).first(b.size() - 1)}));
  CHECK(cut.bytes == a);
  CHECK(cut.mentions("a block of another container, which is passed over"));
  const Outcome torn = recover_bytes(glued({sml::ByteView(a).first(a.size() / 2), b}));
  CHECK(torn.bytes == b);
  CHECK(torn.report.losses == 1);
}

TEST_CASE("records whose checksums are right, but which do not decode, are lost") {
  ContainerOptions options;
  options.compress = sml::CompressionOptions::Mode::kZstd;
  options.order = PackOrder::kInput;
  Bytes bytes = build_container({{"a", words(1, 3000)}, {"b", words(2, 3000)}}, options);
  const ContainerReader reader(std::make_shared<MemorySource>(bytes));
  const sml::Place place = reader.index().place(0);
  REQUIRE(reader.index().raw_bytes(0) > place.slot_bytes);
  // Damage that whoever wrote it has sealed.
  for (std::uint64_t i = 40; i < 60; ++i) flip(bytes, place.offset + i);
  sml::SlotPrefix prefix = sml::SlotPrefix::decode(bytes.data() + place.offset);
  prefix.crc32c = prefix.checksum(sml::crc32c(sml::ByteView(bytes).subspan(
      place.offset + sml::SlotPrefix::kBytes, place.slot_bytes - sml::SlotPrefix::kBytes)));
  prefix.encode(bytes.data() + place.offset);
  const Outcome outcome = recover_bytes(bytes);
  CHECK(outcome.report.records_lost == 1);
  CHECK(outcome.mentions("record 'a': the compressed record"));
  CHECK(outcome.records.at("b") == words(2, 3000));
}
