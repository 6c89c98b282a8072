#include "smlformat/bytes.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"

namespace {

sml::Bytes from(std::initializer_list<int> values) {
  sml::Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

}  // namespace

TEST_CASE("a varint is LEB128") {
  const std::vector<std::pair<std::uint64_t, sml::Bytes>> known = {
      {0, from({0x00})},
      {127, from({0x7f})},
      {128, from({0x80, 0x01})},
      {300, from({0xac, 0x02})},
      {624485, from({0xe5, 0x8e, 0x26})},
      {std::numeric_limits<std::uint64_t>::max(),
       from({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})},
  };
  for (const auto& pair : known) {
    const std::uint64_t value = pair.first;
    const sml::Bytes& encoded = pair.second;
    CAPTURE(value);
    sml::Bytes out;
    sml::put_varint(out, value);
    CHECK(out == encoded);
    out.push_back(std::byte{0x55});
    sml::ByteView in(out);
    std::uint64_t decoded = 1;
    REQUIRE(sml::get_varint(in, decoded));
    CHECK(decoded == value);
    CHECK(in.size() == 1);
  }
}

TEST_CASE("a varint that ends early or exceeds 64 bits is refused and consumes nothing") {
  for (const sml::Bytes& bytes :
       {from({}), from({0x80}), from({0xff, 0xff, 0xff}),
        from({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}),
        from({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00})}) {
    CAPTURE(bytes.size());
    sml::ByteView in(bytes);
    std::uint64_t value = 77;
    CHECK_FALSE(sml::get_varint(in, value));
    CHECK(in.size() == bytes.size());
    CHECK(value == 77);
  }
}

TEST_CASE("fields are little-endian and need no alignment") {
  std::array<std::byte, 12> bytes{};
  sml::store(bytes.data() + 1, std::uint32_t{0x01020304});
  CHECK(bytes[0] == std::byte{0});
  CHECK(bytes[1] == std::byte{4});
  CHECK(bytes[4] == std::byte{1});
  CHECK(sml::load<std::uint16_t>(bytes.data() + 3) == 0x0102);
}

TEST_CASE("round_up gives the next multiple") {
  CHECK(sml::round_up(0, 64) == 0);
  CHECK(sml::round_up(1, 64) == 64);
  CHECK(sml::round_up(64, 64) == 64);
  CHECK(sml::round_up(65, 3) == 66);
}

TEST_CASE("a memory source reads within its bytes and nowhere else") {
  const std::string text = "0123456789";
  const sml::MemorySource source(sml::as_bytes(text));
  CHECK(source.size() == 10);
  std::array<std::byte, 4> out{};
  source.read(6, out);
  CHECK(sml::as_text(out) == "6789");
  CHECK(sml::as_text(source.view(2, 3)) == "234");
  source.read(10, sml::MutableBytes());
  for (const std::uint64_t offset :
       {std::uint64_t{7}, std::uint64_t{11}, std::numeric_limits<std::uint64_t>::max()}) {
    CAPTURE(offset);
    try {
      source.read(offset, out);
      FAIL("no error");
    } catch (const sml::Error& error) {
      CHECK(error.code() == sml::ErrorCode::kTruncated);
    }
  }
}

TEST_CASE("a memory sink keeps what is appended, in order") {
  sml::MemorySink sink;
  sink.append(sml::as_bytes("ab"));
  sink.append({});
  sink.append(sml::as_bytes("c"));
  CHECK(sml::as_text(sink.bytes()) == "abc");
}

TEST_CASE("an error gains context on its way up and keeps its code and hint") {
  const sml::Error error(sml::ErrorCode::kCorrupt, "checksum mismatch", "run verify");
  const sml::Error outer = error.within("record 'a'").within("x.sml");
  CHECK(std::string(outer.what()) == "x.sml: record 'a': checksum mismatch");
  CHECK(outer.code() == sml::ErrorCode::kCorrupt);
  CHECK(outer.hint() == "run verify");
}

TEST_CASE("every error code has the name that documents use") {
  using sml::ErrorCode;
  const std::vector<std::pair<ErrorCode, std::string>> names = {
      {ErrorCode::kInvalidArgument, "invalid_argument"},
      {ErrorCode::kNotFound, "not_found"},
      {ErrorCode::kAlreadyExists, "already_exists"},
      {ErrorCode::kAmbiguous, "ambiguous"},
      {ErrorCode::kCorrupt, "corrupt"},
      {ErrorCode::kTruncated, "truncated"},
      {ErrorCode::kUnsupported, "unsupported"},
      {ErrorCode::kLimit, "limit"},
      {ErrorCode::kIo, "io"},
      {ErrorCode::kUnavailable, "unavailable"},
      {ErrorCode::kCancelled, "cancelled"},
  };
  for (const auto& [code, name] : names) CHECK(sml::error_code_name(code) == name);
}
