#include "smlformat/checksum.h"

#include <cstdint>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using sml::as_bytes;

TEST_CASE("CRC32C has the standard's values") {
  // The check value of the catalogue of CRCs, and RFC 3720, appendix B.4.
  CHECK(sml::crc32c(as_bytes("123456789")) == 0xe3069283);
  CHECK(sml::crc32c({}) == 0);
  CHECK(sml::crc32c(as_bytes(std::string(32, '\0'))) == 0x8a9136aa);
  CHECK(sml::crc32c(as_bytes(std::string(32, '\xff'))) == 0x62a8ab43);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  CHECK(sml::crc32c(as_bytes(ascending)) == 0x46dd794e);
}

TEST_CASE("CRC32C of pieces in a row is that of the whole") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i * 7 + i / 13));
  const auto whole = sml::crc32c(as_bytes(text));
  const std::string_view view(text);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto front = sml::crc32c(as_bytes(view.substr(0, cut)));
    REQUIRE(sml::crc32c(as_bytes(view.substr(cut)), front) == whole);
  }
}

TEST_CASE("XXH3 has the published values, seed 0") {
  CHECK(sml::xxh3_64({}) == 0x2d06800538d394c2);
  CHECK(sml::xxh3_64(as_bytes("a")) == 0xe6c632b61e964e1f);
  CHECK(sml::xxh3_64(as_bytes("abc")) == 0x78af5f94892f3950);
  CHECK(sml::xxh3_128({}).hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(sml::xxh3_128(as_bytes("abc")).hex() == "06b05ab6733a618578af5f94892f3950");
}

TEST_CASE("a 128-bit hash prints its high half first") {
  const sml::Hash128 hash{0x0123456789abcdef, 0xfedcba9876543210};
  CHECK(hash.hex() == "fedcba98765432100123456789abcdef");
}
