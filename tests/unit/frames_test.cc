#include "smlformat/frames.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/checksum.h"
#include "smlformat/error.h"

namespace {

using sml::ErrorCode;
using sml::Frame;
using sml::FrameType;

// The stream of format-spec/frames.md, put together apart from this code.
const char* const kExample =
    "89534d4c460d0a01"
    "dde49bfe01000100050000004cbb719a000000000000000005000000000000006168656c6c6f"
    "f5762bbc01010500020000003629a2e207000000000000000500000000000000622f632e786162"
    "a8dbc07b010005000300000060db4a3607000000000000000500000000000000622f632e78636465"
    "04209ccb02000400090000009e3382cfffffffffffffffff0000000000000000676f6e656e6f7420666f756e64"
    "ce0a9ad0010001000000000000000000ffffffffffffffff000000000000000065"
    "a3b2a0d703000000000000000000000003000000000000000a00000000000000";

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

struct Given {
  FrameType type;
  bool continues;
  std::string key;
  std::uint64_t number;
  std::uint64_t record_bytes;
  std::string payload;
  bool operator==(const Given&) const = default;
};

const std::vector<Given> kExampleFrames = {
    {FrameType::kRecord, false, "a", 0, 5, "hello"},
    {FrameType::kRecord, true, "b/c.x", 7, 5, "ab"},
    {FrameType::kRecord, false, "b/c.x", 7, 5, "cde"},
    {FrameType::kFailed, false, "gone", sml::kNoNumber, 0, "not found"},
    {FrameType::kRecord, false, "e", sml::kNoNumber, 0, ""},
};

// Gives `text` in pieces of at most `piece` bytes.
sml::FrameReader::ReadFunction pieces(std::string_view text, std::size_t piece) {
  return [text, piece](sml::MutableBytes out) mutable {
    const std::size_t size = std::min({piece, out.size(), text.size()});
    std::copy_n(sml::as_bytes(text).begin(), size, out.begin());
    text.remove_prefix(size);
    return size;
  };
}

std::vector<Given> read_all(std::string_view stream, std::size_t piece = 1 << 20) {
  sml::FrameReader reader(pieces(stream, piece));
  std::vector<Given> given;
  Frame frame;
  sml::ByteView payload;
  while (reader.next(frame, payload)) {
    given.push_back({frame.type, frame.continues, std::string(frame.key), frame.number,
                     frame.record_bytes, std::string(sml::as_text(payload))});
  }
  return given;
}

ErrorCode error_of(std::string_view stream) {
  try {
    (void)read_all(stream);
  } catch (const sml::Error& error) {
    return error.code();
  }
  FAIL("no error");
  return ErrorCode::kCancelled;
}

void put(sml::Bytes& out, Frame frame, std::string_view payload) {
  frame.payload_bytes = static_cast<std::uint32_t>(payload.size());
  frame.payload_crc32c = sml::crc32c(sml::as_bytes(payload));
  sml::put_frame_header(out, frame);
  const sml::ByteView bytes = sml::as_bytes(payload);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Frame record(std::string_view key, std::uint64_t bytes, bool continues = false) {
  Frame frame;
  frame.key = key;
  frame.record_bytes = bytes;
  frame.continues = continues;
  frame.number = 3;
  return frame;
}

Frame of_type(FrameType type, std::string_view key, std::uint64_t number, std::uint64_t bytes) {
  Frame frame;
  frame.type = type;
  frame.key = key;
  frame.number = number;
  frame.record_bytes = bytes;
  return frame;
}

// A stream of magic, what `fill` puts, and an end frame with the given counts.
std::string stream(const std::function<void(sml::Bytes&)>& fill, std::uint64_t records,
                   std::uint64_t bytes) {
  sml::Bytes out;
  sml::put_frames_magic(out);
  fill(out);
  put(out, of_type(FrameType::kEnd, "", records, bytes), "");
  return std::string(sml::as_text(out));
}

}  // namespace

TEST_CASE("the example of the specification is written byte for byte") {
  sml::Bytes out;
  sml::put_frames_magic(out);
  for (const Given& given : kExampleFrames) {
    Frame frame = of_type(given.type, given.key, given.number, given.record_bytes);
    frame.continues = given.continues;
    put(out, frame, given.payload);
  }
  put(out, of_type(FrameType::kEnd, "", 3, 10), "");
  CHECK(sml::as_text(out) == from_hex(kExample));
}

TEST_CASE("the example of the specification is read, in pieces of any size") {
  const std::string example = from_hex(kExample);
  for (const std::size_t piece : {1U, 7U, 33U, 100000U}) {
    CAPTURE(piece);
    CHECK(read_all(example, piece) == kExampleFrames);
  }
}

TEST_CASE("the offset is that of the next frame, and bytes after the end frame are left alone") {
  const std::string example = from_hex(kExample);
  const std::string longer = example + "more";
  sml::FrameReader reader(pieces(longer, 1000));
  Frame frame;
  sml::ByteView payload;
  REQUIRE(reader.next(frame, payload));
  CHECK(reader.offset() == 8 + 38);
  for (int i = 0; i < 4; ++i) REQUIRE(reader.next(frame, payload));
  CHECK_FALSE(reader.next(frame, payload));
  CHECK(reader.offset() == example.size());
  CHECK_FALSE(reader.next(frame, payload));
}

TEST_CASE("a stream cut anywhere is truncated") {
  const std::string example = from_hex(kExample);
  for (std::size_t size = 0; size < example.size(); ++size) {
    CAPTURE(size);
    CHECK(error_of(std::string_view(example).substr(0, size)) == ErrorCode::kTruncated);
  }
}

TEST_CASE("a stream with any bit flipped is an error") {
  const std::string example = from_hex(kExample);
  for (std::size_t at = 0; at < example.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      CAPTURE(at);
      CAPTURE(bit);
      std::string damaged = example;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const ErrorCode code = error_of(damaged);
      CHECK((code == ErrorCode::kCorrupt || code == ErrorCode::kTruncated ||
             code == ErrorCode::kUnsupported));
    }
  }
}

TEST_CASE("a stream with a frame left out or doubled is an error") {
  const std::string example = from_hex(kExample);
  const std::vector<std::size_t> starts = {8, 46, 85, 125, 170, 203, 235};
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    if (i == 3) continue;  // a failed frame counts nothing
    CAPTURE(i);
    const std::string frame = example.substr(starts[i], starts[i + 1] - starts[i]);
    CHECK_THROWS_AS((void)read_all(example.substr(0, starts[i]) + example.substr(starts[i + 1])),
                    sml::Error);
    if (i + 2 < starts.size()) {
      CHECK_THROWS_AS(
          (void)read_all(example.substr(0, starts[i]) + frame + example.substr(starts[i])),
          sml::Error);
    }
  }
}

TEST_CASE("a version, type or flag that is not known is refused by name") {
  std::string version = from_hex(kExample);
  version[7] = 2;
  CHECK(error_of(version) == ErrorCode::kUnsupported);

  const auto with_header_byte = [](std::size_t at, char value) {
    std::string bytes = stream([](sml::Bytes& out) { put(out, record("k", 0), ""); }, 1, 0);
    bytes[8 + at] = value;
    const std::uint32_t crc = sml::crc32c(sml::as_bytes(std::string_view(bytes).substr(12, 29)));
    sml::store(bytes.data() + 8, crc);
    return bytes;
  };
  CHECK(read_all(with_header_byte(4, 1)).size() == 1);
  CHECK(error_of(with_header_byte(4, 0)) == ErrorCode::kUnsupported);
  CHECK(error_of(with_header_byte(4, 4)) == ErrorCode::kUnsupported);
  CHECK(error_of(with_header_byte(5, 2)) == ErrorCode::kUnsupported);
}

TEST_CASE("the pieces of a record must fit together") {
  struct Case {
    const char* name;
    std::function<void(sml::Bytes&)> fill;
  };
  const std::vector<Case> cases = {
      {"too few bytes", [](sml::Bytes& out) { put(out, record("k", 3), "ab"); }},
      {"too many bytes", [](sml::Bytes& out) { put(out, record("k", 1), "ab"); }},
      {"nothing left to continue with",
       [](sml::Bytes& out) { put(out, record("k", 2, true), "ab"); }},
      {"another key",
       [](sml::Bytes& out) {
         put(out, record("k", 2, true), "a");
         put(out, record("l", 2), "b");
       }},
      {"another number",
       [](sml::Bytes& out) {
         put(out, record("k", 2, true), "a");
         Frame frame = record("k", 2);
         frame.number = 4;
         put(out, frame, "b");
       }},
      {"another size",
       [](sml::Bytes& out) {
         put(out, record("k", 2, true), "a");
         put(out, record("k", 3), "bc");
       }},
      {"an empty first piece",
       [](sml::Bytes& out) {
         put(out, record("k", 1, true), "");
         put(out, record("k", 1), "a");
       }},
      {"never finished", [](sml::Bytes& out) { put(out, record("k", 2, true), "a"); }},
      {"another record's failure inside",
       [](sml::Bytes& out) {
         put(out, record("k", 2, true), "a");
         put(out, of_type(FrameType::kFailed, "l", 3, 0), "no");
       }},
      {"a failure that continues",
       [](sml::Bytes& out) {
         Frame frame = of_type(FrameType::kFailed, "l", 3, 0);
         frame.continues = true;
         put(out, frame, "no");
       }},
      {"no key", [](sml::Bytes& out) { put(out, record("", 1), "a"); }},
      {"a key with NUL",
       [](sml::Bytes& out) { put(out, record(std::string_view("a\0b", 3), 1), "a"); }},
      {"an end with a key",
       [](sml::Bytes& out) { put(out, of_type(FrameType::kEnd, "k", 0, 0), ""); }},
      {"an end with a payload",
       [](sml::Bytes& out) { put(out, of_type(FrameType::kEnd, "", 0, 0), "x"); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(stream(c.fill, 1, 2)) == ErrorCode::kCorrupt);
  }
}

TEST_CASE("a failure ends the record under way, which is not counted") {
  const std::string bytes = stream(
      [](sml::Bytes& out) {
        put(out, record("k", 2, true), "a");
        put(out, of_type(FrameType::kFailed, "k", 3, 0), "damaged");
        put(out, of_type(FrameType::kFailed, "", 9, 0), "number 9 is not there");
        put(out, record("l", 4), "four");
      },
      1, 4);
  CHECK(read_all(bytes).size() == 4);
}

TEST_CASE("wrong counts in the end frame are an error") {
  const auto one = [](sml::Bytes& out) { put(out, record("k", 2), "ab"); };
  CHECK(read_all(stream(one, 1, 2)).size() == 1);
  CHECK(error_of(stream(one, 2, 2)) == ErrorCode::kCorrupt);
  CHECK(error_of(stream(one, 1, 3)) == ErrorCode::kCorrupt);
}

TEST_CASE("a reader that has failed does not go on") {
  std::string example = from_hex(kExample);
  example[8 + 33] ^= 1;
  sml::FrameReader reader(pieces(example, 1000));
  Frame frame;
  sml::ByteView payload;
  CHECK_THROWS_AS((void)reader.next(frame, payload), sml::Error);
  CHECK_THROWS_AS((void)reader.next(frame, payload), sml::Error);
}

TEST_CASE("payloads of many sizes pass, up to the limit and no further") {
  std::string text;
  std::uint64_t state = 1;
  for (int i = 0; i < (3 << 20); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    text.push_back(static_cast<char>(state >> 56));
  }
  const std::vector<std::size_t> sizes = {0,    1,        4096, 262112,  262144, 300000, 1,
                                          5000, 3u << 20, 17,   1 << 20, 262143, 0};
  std::uint64_t total = 0;
  for (const std::size_t size : sizes) total += size;
  const std::string bytes = stream(
      [&](sml::Bytes& out) {
        for (const std::size_t size : sizes) {
          put(out, record("k", size), std::string_view(text).substr(0, size));
        }
      },
      sizes.size(), total);
  for (const std::size_t piece : {std::size_t{999}, std::size_t{65536}, bytes.size()}) {
    CAPTURE(piece);
    const std::vector<Given> given = read_all(bytes, piece);
    REQUIRE(given.size() == sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      CHECK(given[i].payload == text.substr(0, sizes[i]));
    }
  }

  Frame frame = record("k", sml::kMaxFramePayloadBytes + 1ULL);
  frame.payload_bytes = sml::kMaxFramePayloadBytes + 1;
  sml::Bytes out;
  CHECK_THROWS_AS(sml::put_frame_header(out, frame), sml::Error);
  const std::string long_key(4097, 'k');
  CHECK_THROWS_AS(sml::put_frame_header(out, record(long_key, 0)), sml::Error);
  CHECK(out.empty());

  // A header that asks for more than the limit, its checksum right.
  sml::put_frames_magic(out);
  sml::put_frame_header(out, record("k", sml::kMaxFramePayloadBytes + 1ULL));
  sml::store(out.data() + 8 + 8, sml::kMaxFramePayloadBytes + 1);
  sml::store(out.data() + 8, sml::crc32c(sml::ByteView(out).subspan(12)));
  CHECK(error_of(sml::as_text(out)) == ErrorCode::kCorrupt);
}

TEST_CASE("a record of the largest payload passes") {
  const std::string text(sml::kMaxFramePayloadBytes, 'p');
  const std::string bytes =
      stream([&](sml::Bytes& out) { put(out, record("k", text.size()), text); }, 1, text.size());
  const std::vector<Given> given = read_all(bytes, 1 << 16);
  REQUIRE(given.size() == 1);
  CHECK(given[0].payload == text);
}
