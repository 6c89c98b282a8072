#include "smlformat/succinct.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"

namespace sml {
namespace {

std::string hex(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

// Bytes in a buffer of exactly their size, so that a sanitizer sees every access beyond it.
Bytes exact(const Bytes& bytes) { return Bytes(bytes.begin(), bytes.end()); }

TEST_CASE("packed integers lie end to end, least significant bit first") {
  const std::vector<std::uint32_t> values{1, 2, 3, 7, 0, 5};
  // 1 | 2<<3 | 3<<6 | 7<<9 | 0<<12 | 5<<15 = 0x28ed1
  CHECK(hex(PackedInts::encode(values, 3)) == "d18e020000000000");
  CHECK(PackedInts::encode(values, 0).empty());
  CHECK(hex(PackedInts::encode(std::vector<std::uint32_t>{0xdeadbeef, 1}, 32)) ==
        "efbeadde01000000");
  CHECK(hex(PackedInts::encode(std::vector<std::uint32_t>{1, 2}, 33)) ==
        "01000000040000000000000000000000");
}

TEST_CASE("the size of packed integers is rounded up to 8 bytes") {
  CHECK(PackedInts::bytes_for(0, 17) == 0);
  CHECK(PackedInts::bytes_for(5, 0) == 0);
  CHECK(PackedInts::bytes_for(1, 1) == 8);
  CHECK(PackedInts::bytes_for(64, 1) == 8);
  CHECK(PackedInts::bytes_for(65, 1) == 16);
  CHECK(PackedInts::bytes_for(10'000'000, 24) == 30'000'000);
  CHECK(PackedInts::bytes_for(std::uint64_t{1} << 40, 64) == std::uint64_t{1} << 43);
  // Sizes that 64 bits cannot hold come out as a size that nothing has.
  CHECK(PackedInts::bytes_for(~std::uint64_t{0}, 64) == ~std::uint64_t{0});
  CHECK(PackedInts::bytes_for(std::uint64_t{1} << 61, 64) == ~std::uint64_t{0});
}

TEST_CASE("packed integers of every width and count give back what was put in") {
  std::mt19937_64 random(1);
  for (unsigned width = 0; width <= 32; ++width) {
    for (const std::size_t count : {1U, 2U, 3U, 7U, 8U, 63U, 64U, 65U, 200U}) {
      std::vector<std::uint32_t> values(count);
      for (auto& value : values) {
        value = width == 0 ? 0 : static_cast<std::uint32_t>(random() >> (64 - width));
      }
      const Bytes bytes = exact(PackedInts::encode(values, width));
      const PackedInts packed(bytes, count, width);
      REQUIRE(packed.size() == count);
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(packed[i] == values[i]);
      }
    }
  }
}

TEST_CASE("packed integers wider than what is written today are read") {
  // Value i at bits [i * width, (i + 1) * width), worked out bit by bit.
  std::mt19937_64 random(2);
  for (unsigned width = 33; width <= 64; ++width) {
    constexpr std::size_t kCount = 70;
    std::vector<std::uint64_t> values(kCount);
    Bytes bytes(PackedInts::bytes_for(kCount, width));
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = random() >> (64 - width);
      for (unsigned b = 0; b < width; ++b) {
        const std::size_t at = i * width + b;
        if ((values[i] >> b & 1) != 0) {
          bytes[at / 8] |= std::byte{1} << (at % 8);
        }
      }
    }
    const PackedInts packed(bytes, kCount, width);
    for (std::size_t i = 0; i < kCount; ++i) {
      REQUIRE(packed[i] == values[i]);
    }
  }
}

TEST_CASE("packed integers of a size that does not fit are refused") {
  const Bytes bytes(16);
  CHECK_NOTHROW(PackedInts(bytes, 16, 8));
  CHECK_THROWS_AS(PackedInts(bytes, 17, 8), Error);
  CHECK_THROWS_AS(PackedInts(bytes, 8, 8), Error);
  CHECK_THROWS_AS(PackedInts(bytes, 1, 65), Error);
  CHECK_THROWS_AS(PackedInts(bytes, ~std::uint64_t{0}, 64), Error);
}

TEST_CASE("a bit vector is header, words and directory") {
  CHECK(hex(BitVector::encode({})) ==
        "0000000000000000"
        "0000000000000000"
        "0000000000000000");
  CHECK(hex(BitVector::encode({true, false, true, true})) ==
        "0400000000000000"
        "0300000000000000"
        "0d00000000000000"
        "0000000000000000");
}

TEST_CASE("rank and select of a bit vector agree with counting") {
  std::mt19937_64 random(3);
  for (const std::size_t bits :
       {0U, 1U, 63U, 64U, 65U, 449U, 500U, 511U, 512U, 513U, 1024U, 5000U}) {
    for (const unsigned density : {0U, 1U, 50U, 99U, 100U}) {
      CAPTURE(bits);
      CAPTURE(density);
      std::vector<bool> values(bits);
      for (std::size_t i = 0; i < bits; ++i) {
        values[i] = random() % 100 < density;
      }
      const Bytes bytes = exact(BitVector::encode(values));
      const BitVector vector(bytes);
      REQUIRE(vector.size() == bits);
      std::uint64_t ones = 0;
      for (std::size_t i = 0; i < bits; ++i) {
        REQUIRE(vector[i] == values[i]);
        REQUIRE(vector.rank(i) == ones);
        if (values[i]) {
          REQUIRE(vector.select(ones) == i);
          ++ones;
        }
      }
      REQUIRE(vector.ones() == ones);
      REQUIRE(vector.rank(bits) == ones);
      REQUIRE(vector.select(ones) == bits);
    }
  }
}

TEST_CASE("a bit vector that contradicts itself is refused, whichever bit is wrong") {
  std::vector<bool> values(1152);  // whole words: every other number of bits needs another size
  for (std::size_t i = 0; i < values.size(); i += 3) {
    values[i] = true;
  }
  const Bytes good = BitVector::encode(values);
  for (std::size_t at = 0; at < good.size() * 8; ++at) {
    Bytes bad = good;
    bad[at / 8] ^= std::byte{1} << (at % 8);
    REQUIRE_THROWS_AS(BitVector{bad}, Error);
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    REQUIRE_THROWS_AS(BitVector(ByteView(good).first(size)), Error);
  }
}

TEST_CASE("an Elias-Fano list is header, low bits, high words and samples") {
  // max / count = 23 / 4: 2 low bits. Lows 1, 1, 2, 3; highs 1, 2, 2, 5 give ones at 1, 3, 4, 8.
  CHECK(hex(EliasFano::encode(std::vector<std::uint64_t>{5, 9, 10, 23})) ==
        "0400000000000000"
        "0200000000000000"
        "0100000000000000"
        "0000000000000000"
        "e500000000000000"
        "1a01000000000000"
        "0100000000000000");
  CHECK(hex(EliasFano::encode({})) ==
        "0000000000000000"
        "0000000000000000"
        "0000000000000000"
        "0000000000000000");
}

void check_list(const std::vector<std::uint64_t>& values) {
  const Bytes bytes = exact(EliasFano::encode(values));
  const EliasFano list(bytes);
  REQUIRE(list.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    REQUIRE(list[i] == values[i]);
    if (i + 1 < values.size()) {
      const auto both = list.pair(i);
      REQUIRE(both.first == values[i]);
      REQUIRE(both.second == values[i + 1]);
    }
  }
}

TEST_CASE("Elias-Fano lists give back what was put in") {
  check_list({});
  check_list({0});
  check_list({~std::uint64_t{0}});
  check_list({0, ~std::uint64_t{0}});
  check_list(std::vector<std::uint64_t>(1000, 0));
  check_list(std::vector<std::uint64_t>(1000, 0x0123'4567'89ab'cdef));
  check_list({1, 1, 1, 1, 1'000'000'000});

  std::mt19937_64 random(4);
  for (const std::size_t count : {255U, 256U, 257U, 10'000U}) {
    for (const unsigned shift : {0U, 20U, 44U, 52U, 60U, 63U}) {
      std::vector<std::uint64_t> values(count);
      for (auto& value : values) {
        value = random() >> shift;
      }
      std::sort(values.begin(), values.end());
      check_list(values);
    }
  }
}

TEST_CASE("an Elias-Fano list with long gaps is searched across many words") {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    values.push_back(i < 1000 ? i / 100 : 4'000'000 + i * 7);
  }
  check_list(values);
}

TEST_CASE("an Elias-Fano list takes at most 2 bits more than the logarithm of the mean gap") {
  std::vector<std::uint64_t> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i * 4096;
  }
  // 12 low bits, 2 high bits, 64 / 256 bits of samples a value.
  const double bits = static_cast<double>(EliasFano::encode(values).size()) * 8 / 100'000;
  CHECK(bits == doctest::Approx(14.25).epsilon(0.001));
}

TEST_CASE("whatever an Elias-Fano list holds, it is refused or read within its bounds") {
  std::vector<std::uint64_t> values(600);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i * 37 + i % 5;
  }
  const Bytes good = EliasFano::encode(values);
  const auto read_all = [](ByteView bytes) {
    try {
      const EliasFano list(bytes);
      for (std::uint64_t i = 0; i < list.size(); ++i) {
        static_cast<void>(list[i]);
      }
      for (std::uint64_t i = 0; i + 1 < list.size(); ++i) {
        static_cast<void>(list.pair(i));
      }
    } catch (const Error& error) {
      REQUIRE(error.code() == ErrorCode::kCorrupt);
    }
  };
  for (std::size_t at = 0; at < good.size() * 8; ++at) {
    Bytes bad = good;
    bad[at / 8] ^= std::byte{1} << (at % 8);
    read_all(bad);
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    REQUIRE_THROWS_AS(EliasFano(ByteView(good).first(size)), Error);
  }
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    Bytes bad = good;
    for (std::size_t i = 32; i < bad.size(); ++i) {
      bad[i] = round == 0 ? std::byte{0} : static_cast<std::byte>(random());
    }
    for (std::size_t i = bad.size() - 24; i < bad.size(); ++i) {
      bad[i] = good[i];  // samples in range, so that the rest is reached
    }
    read_all(bad);
  }
}

}  // namespace
}  // namespace sml
