// Compact arrays that are built once, stored, mapped and used in place: packed integers, a bit
// vector with rank and select, and Elias-Fano lists (P. Elias 1974, R. Fano 1971; see S. Vigna,
// "Quasi-succinct indices", 2013). Encodings: format-spec/index.md. Readers check their bounds when
// opened and are then safe for any number of threads; arguments out of range are programming
// errors. The bytes must stay alive and be 8-byte aligned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "smlformat/bytes.h"

namespace sml {

// `count` integers of `width` bits (0 to 64) each.
class PackedInts {
 public:
  PackedInts() = default;
  // Throws kCorrupt unless `bytes` is exactly as long as count and width need.
  PackedInts(ByteView bytes, std::uint64_t count, unsigned width);

  std::uint64_t size() const noexcept { return count_; }
  std::uint64_t operator[](std::uint64_t i) const noexcept;

  static std::uint64_t bytes_for(std::uint64_t count, unsigned width) noexcept;
  static Bytes encode(std::span<const std::uint32_t> values, unsigned width);

 private:
  const std::byte* data_ = nullptr;
  std::uint64_t count_ = 0;
  unsigned width_ = 0;
};

class BitVector {
 public:
  BitVector() = default;
  explicit BitVector(ByteView bytes);  // throws kCorrupt

  std::uint64_t size() const noexcept { return bits_; }
  std::uint64_t ones() const noexcept { return ones_; }
  bool operator[](std::uint64_t i) const noexcept;
  // Ones in [0, i); i <= size().
  std::uint64_t rank(std::uint64_t i) const noexcept;
  // Position of the k-th one, from 0; k < ones(). select(ones()) is size().
  std::uint64_t select(std::uint64_t k) const noexcept;

  static Bytes encode(const std::vector<bool>& bits);

 private:
  const std::byte* words_ = nullptr;
  const std::byte* directory_ = nullptr;
  std::uint64_t bits_ = 0;
  std::uint64_t ones_ = 0;
};

// A list of values that never decrease.
class EliasFano {
 public:
  EliasFano() = default;
  explicit EliasFano(ByteView bytes);  // throws kCorrupt

  std::uint64_t size() const noexcept { return count_; }
  std::uint64_t operator[](std::uint64_t i) const noexcept;
  // Values i and i + 1; i + 1 < size().
  std::pair<std::uint64_t, std::uint64_t> pair(std::uint64_t i) const noexcept;

  static Bytes encode(std::span<const std::uint64_t> values);

 private:
  std::uint64_t select(std::uint64_t i) const noexcept;

  const std::byte* low_ = nullptr;
  const std::byte* high_ = nullptr;
  const std::byte* samples_ = nullptr;
  std::uint64_t count_ = 0;
  std::uint64_t high_words_ = 0;
  unsigned low_bits_ = 0;
};

}  // namespace sml
