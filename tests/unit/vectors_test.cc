// The test vectors of format-spec/vectors/: what is valid says what its twin says, what is not is
// refused where and as it must be.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smlformat/container_reader.h"
#include "smlformat/frames.h"
#include "smlstore/dataset.h"
#include "smlstore/order.h"
#include "smlstore/reader.h"
#include "smlstore/verify.h"

namespace {

using nlohmann::json;
using sml::Bytes;
using sml::Error;

const std::filesystem::path kVectors =
    std::filesystem::path(SML_SOURCE_DIR) / "format-spec" / "vectors";

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  REQUIRE_MESSAGE(in.good(), path);
  const std::string content = text.str();
  const sml::ByteView bytes = sml::as_bytes(content);
  return {bytes.begin(), bytes.end()};
}

json read_json(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path);
  return json::parse(sml::as_text(bytes));
}

// The files of a directory with this suffix, by name.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& directory,
                                            const char* suffix) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == suffix) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string decode_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  unsigned value = 0;
  for (const char c : text) {
    if (c == '=') break;
    value = value << 6U | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>(value >> bits & 0xffU));
    }
  }
  return out;
}

// Bytes in a twin: a string, or {"base64": ...}.
std::string bytes_of(const json& shown) {
  return shown.is_string() ? shown.get<std::string>()
                           : decode_base64(shown.at("base64").get<std::string>());
}

bool same_content(const std::string& content, const json& shown) {
  if (shown.is_object() && shown.contains("xxh3_128"))
    return sml::xxh3_128(sml::as_bytes(content)).hex() == shown["xxh3_128"];
  return content == bytes_of(shown);
}

std::string hex32(std::uint32_t value) {
  const char* const digits = "0123456789abcdef";
  std::string out;
  for (int shift = 28; shift >= 0; shift -= 4) out.push_back(digits[value >> shift & 15U]);
  return out;
}

// The data set of one container, "v", in memory that the caller keeps.
sml::Dataset open_bytes(sml::ByteView bytes) {
  sml::Dataset::Container container;
  container.name = "v";
  container.path = "v.sml";
  container.reader =
      std::make_shared<const sml::ContainerReader>(std::make_shared<sml::MemorySource>(bytes));
  return sml::Dataset::from({container});
}

struct Outcome {
  std::string content;
  std::uint64_t number = 0;
  std::string code;  // empty: none
  std::string message;
};

// The next record that a reader gives.
Outcome next_record(sml::Reader& reader) {
  Outcome outcome;
  sml::RecordPiece piece;
  do {
    REQUIRE(reader.next(piece));
    outcome.number = piece.number;
    outcome.content += sml::as_text(piece.bytes);
    if (piece.error != nullptr) {
      outcome.code = sml::error_code_name(piece.error->code());
      outcome.message = piece.error->what();
    }
  } while (!piece.last);
  return outcome;
}

sml::ReaderOptions one_thread() {
  sml::ReaderOptions options;
  options.threads = 1;
  return options;
}

std::vector<std::pair<std::string, std::string>> findings_of(const sml::Dataset& dataset) {
  std::vector<std::pair<std::string, std::string>> findings;  // code, message
  sml::VerifyOptions options;
  options.threads = 1;
  options.on_damage = [&](const Error& error) {
    findings.emplace_back(sml::error_code_name(error.code()), error.what());
  };
  verify(dataset, options);
  return findings;
}

void check_header(const sml::Header& header, const json& twin) {
  CHECK(header.version == twin["version"]);
  CHECK(header.header_bytes == twin["header_bytes"]);
  CHECK(header.incompatible_features == twin["incompatible_features"]);
  CHECK(header.compatible_features == twin["compatible_features"]);
  CHECK(header.seed == twin["seed"]);
  CHECK(header.block_bytes == twin["block_bytes"]);
  CHECK(header.piece_bytes == twin["piece_bytes"]);
  CHECK(header.align == twin["align"]);
  CHECK(header.part == twin["part"]);
  CHECK(header.parts == twin["parts"]);
  CHECK(pack_order_name(header.order) == twin["order"]);
  CHECK(grouping_name(header.grouping) == twin["grouping"]);
  CHECK(fmt::format("{:08x}", header.tag) == twin["tag"]);
}

void check_blocks(const sml::Index& index, const json& twin) {
  const char* const kinds[] = {"records", "first piece", "further piece", "dictionary"};
  REQUIRE(index.blocks() == twin.size());
  for (std::uint64_t b = 0; b < index.blocks(); ++b) {
    CAPTURE(b);
    const sml::BlockRow row = index.block(b);
    CHECK(index.block_offset(b) == twin[b]["offset"]);
    CHECK(index.block_offset(b + 1) - index.block_offset(b) == twin[b]["size"]);
    CHECK(kinds[static_cast<int>(row.kind)] == twin[b]["kind"]);
    CHECK(row.first_record == twin[b]["first_record"]);
    CHECK(row.slots == twin[b]["slots"]);
    CHECK(row.slots_offset == twin[b]["slots_offset"]);
    CHECK(hex32(row.crc32c) == twin[b]["crc32c"]);
    CHECK(row.xxh3.hex() == twin[b]["xxh3_128"]);
  }
}

void check_records(const sml::Dataset& dataset, const json& twin) {
  const sml::Index& index = dataset.containers()[0].reader->index();
  REQUIRE(dataset.records() == twin["records"].size());
  sml::Reader by_number(dataset, one_thread(), true);
  sml::Reader by_key(dataset, one_thread(), false);
  std::string key_here;
  for (const json& row : twin["records"]) {
    const std::uint64_t number = row[0];
    const std::string key = bytes_of(row[4]);
    CAPTURE(number);
    index.key_of(number, key_here);
    CHECK(key_here == key);
    CHECK(index.find(key) == number);
    CHECK(index.rank_of(number) == row[1]);
    CHECK(index.number_of(row[1]) == number);
    CHECK(index.lower_bound(key) == row[1]);
    CHECK(index.sample_of(number) == row[2]);
    CHECK(index.place(number).block == row[3]);
    CHECK(index.raw_bytes(number) == row[5]);
    by_number.request(number);
    by_key.request(key);
    for (sml::Reader* reader : {&by_number, &by_key}) {
      const Outcome outcome = next_record(*reader);
      CHECK_MESSAGE(outcome.code.empty(), outcome.message);
      CHECK(outcome.number == number);
      CHECK(outcome.content.size() == row[5]);
      CHECK(same_content(outcome.content, row[6]));
    }
  }
  for (const json& absent : twin["absent"]) CHECK(!index.find(bytes_of(absent)));
  for (sml::Index::NameCursor at(index, 0); !at.done(); at.advance()) {
    index.key_at_rank(at.rank(), key_here);
    CHECK(at.key() == key_here);
  }
}

void check_orders(const sml::Dataset& dataset, const json& twin) {
  for (const json& order : twin) {
    CAPTURE(order);
    sml::OrderOptions options;
    options.seed = order["seed"];
    options.epoch = order["epoch"];
    options.mode = order["mode"] == "full" ? sml::OrderMode::kFull : sml::OrderMode::kBlock;
    options.lanes = order["lanes"];
    std::vector<std::uint64_t> samples(dataset.samples());
    const sml::Order computed(dataset, options);
    REQUIRE(computed.samples() == samples.size());
    computed.at(0, 1, samples);
    const std::string bytes(reinterpret_cast<const char*>(samples.data()),
                            samples.size() * sizeof(std::uint64_t));
    CHECK(sml::xxh3_128(sml::as_bytes(bytes)).hex() == order["digest"]);
    samples.resize(std::min<std::size_t>(samples.size(), order["first"].size()));
    CHECK(samples == order["first"].get<std::vector<std::uint64_t>>());
  }
}

TEST_CASE("every valid vector holds what its twin says") {
  const auto files = files_of(kVectors / "valid", ".sml");
  CHECK(files.size() >= 36);
  for (const auto& file : files) {
    INFO(file.filename());
    json twin = read_json(std::filesystem::path(file).replace_extension(".json"));
    const Bytes bytes = read_file(file);
    const sml::Dataset dataset = open_bytes(bytes);
    const sml::ContainerReader& reader = *dataset.containers()[0].reader;
    CHECK(bytes.size() == twin["container_bytes"]);
    CHECK(reader.id().hex() == twin["id"]);
    check_header(reader.header(), twin["header"]);
    CHECK(reader.tail().footer_offset == twin["footer"]["offset"]);
    CHECK(reader.tail().footer_bytes == twin["footer"]["bytes"]);
    CHECK(hex32(reader.tail().footer_crc32c) == twin["footer"]["crc32c"]);
    const sml::FooterHeader& counts = reader.index().counts();
    CHECK(counts.records == twin["counts"]["records"]);
    CHECK(counts.samples == twin["counts"]["samples"]);
    CHECK(counts.blocks == twin["counts"]["blocks"]);
    CHECK(counts.raw_bytes == twin["counts"]["raw_bytes"]);
    CHECK(counts.stored_bytes == twin["counts"]["stored_bytes"]);
    CHECK(counts.key_bytes == twin["counts"]["key_bytes"]);
    const json& dictionary = twin["dictionary"];
    CHECK(reader.index().dictionary().empty() == dictionary.is_null());
    if (!dictionary.is_null())
      CHECK(sml::xxh3_128(reader.index().dictionary()).hex() == dictionary["xxh3_128"]);
    check_blocks(reader.index(), twin["blocks"]);
    check_records(dataset, twin);
    check_orders(dataset, twin["orders"]);
    for (const auto& [code, message] : findings_of(dataset)) FAIL_CHECK(message);
  }
}

TEST_CASE("every invalid vector is refused at its step, with its code and message") {
  const json expected = read_json(kVectors / "invalid" / "expected.json")["vectors"];
  CHECK(expected.size() == files_of(kVectors / "invalid", ".sml").size());
  CHECK(expected.size() > 300);
  for (const json& vector : expected) {
    const std::string file = vector["file"];
    const std::string step = vector["step"];
    const std::string wanted = vector["message"];
    CAPTURE(file);
    const Bytes bytes = read_file(kVectors / "invalid" / file);
    std::string code = "nothing";
    std::string message;
    const auto refused = [&] {
      return code == vector["code"] && message.find(wanted) != message.npos;
    };
    try {
      const sml::Dataset dataset = open_bytes(bytes);
      if (step == "open") {
        FAIL_CHECK("it was opened");
        continue;
      }
      if (step == "read") {
        sml::Reader reader(dataset, one_thread(), false);
        reader.request(std::string_view(vector["key"].get_ref<const std::string&>()));
        const Outcome outcome = next_record(reader);
        code = outcome.code;
        message = outcome.message;
        CHECK_MESSAGE(refused(), code, ": ", message, "; expected ", vector.dump());
      }
      // Whatever reading finds verifying finds, too.
      bool found = false;
      std::string all;
      for (const auto& finding : findings_of(dataset)) {
        std::tie(code, message) = finding;
        found = found || (step == "read" ? code == vector["code"] : refused());
        all += "\n" + code + ": " + message;
      }
      CHECK_MESSAGE(found, "verify found", all, "; expected ", vector.dump());
    } catch (const Error& error) {
      code = sml::error_code_name(error.code());
      message = error.what();
      CHECK_MESSAGE(step == "open", code, ": ", message, "; expected ", vector.dump());
      CHECK_MESSAGE(refused(), code, ": ", message, "; expected ", vector.dump());
    }
  }
}

// --- framed streams

struct StreamOutcome {
  json records = json::array();  // as in a twin, but the contents as they are
  std::vector<std::string> contents;
  std::uint64_t whole = 0;
  std::uint64_t end = 0;  // where the end frame ends
};

// Reads a stream, at most `at_once` bytes at a time.
void read_stream(const Bytes& bytes, std::size_t at_once, StreamOutcome& out) {
  std::size_t given = 0;
  sml::FrameReader reader([&](sml::MutableBytes room) {
    const std::size_t got = std::min({room.size(), at_once, bytes.size() - given});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(given), got, room.begin());
    given += got;
    return got;
  });
  sml::Frame frame;
  sml::ByteView payload;
  std::string content;
  while (reader.next(frame, payload)) {
    json row{{"key", std::string(frame.key)}, {"number", frame.number}};
    if (frame.number == sml::kNoNumber) row["number"] = nullptr;
    if (frame.type == sml::FrameType::kFailed) {
      row["failed"] = std::string(sml::as_text(payload));
      content.clear();
    } else {
      content += sml::as_text(payload);
      if (frame.continues) continue;
      ++out.whole;
      row["size"] = frame.record_bytes;
    }
    out.records.push_back(row);
    out.contents.push_back(std::exchange(content, {}));
  }
  out.end = reader.offset();
}

TEST_CASE("every valid framed stream gives what its twin says, however its bytes come") {
  const auto files = files_of(kVectors / "frames" / "valid", ".frames");
  CHECK(files.size() >= 6);
  for (const auto& file : files) {
    INFO(file.filename());
    const json twin = read_json(std::filesystem::path(file).replace_extension(".json"));
    const Bytes bytes = read_file(file);
    CHECK(bytes.size() == twin["bytes"]);
    for (const std::size_t at_once : {1UL, 33UL, 1UL << 20}) {
      StreamOutcome outcome;
      read_stream(bytes, at_once, outcome);
      CHECK(outcome.end == bytes.size());
      REQUIRE(outcome.records.size() == twin["records"].size());
      for (std::size_t i = 0; i < outcome.records.size(); ++i) {
        const json& row = outcome.records[i];
        const json& expected = twin["records"][i];
        CHECK(row["key"].get<std::string>() == bytes_of(expected["key"]));
        CHECK(row["number"] == expected["number"]);
        REQUIRE(row.contains("failed") == expected.contains("failed"));
        if (row.contains("failed")) {
          CHECK(row["failed"] == expected["failed"]);
        } else {
          CHECK(row["size"] == expected["size"]);
          CHECK(same_content(outcome.contents[i], expected["content"]));
        }
      }
    }
  }
}

TEST_CASE("every invalid framed stream is refused behind its last whole record") {
  const json expected = read_json(kVectors / "frames" / "invalid" / "expected.json")["vectors"];
  CHECK(expected.size() == files_of(kVectors / "frames" / "invalid", ".frames").size());
  for (const json& vector : expected) {
    const std::string file = vector["file"];
    const std::string wanted = vector["message"];
    CAPTURE(file);
    const Bytes bytes = read_file(kVectors / "frames" / "invalid" / file);
    for (const std::size_t at_once : {1UL, 33UL, 1UL << 20}) {
      StreamOutcome outcome;
      try {
        read_stream(bytes, at_once, outcome);
        FAIL_CHECK("it was read to its end");
      } catch (const Error& error) {
        const std::string message = error.what();
        CHECK(sml::error_code_name(error.code()) == vector["code"]);
        CHECK_MESSAGE(message.find(wanted) != std::string::npos, message, "; expected ", wanted);
      }
      CHECK(outcome.whole == vector["records"]);
    }
  }
}

}  // namespace
