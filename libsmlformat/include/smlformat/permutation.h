// A keyed bijection over [0, n): any position at once, constant memory, inverse available.
// Bit by bit in format-spec/order.md, with vectors. Safe for any number of threads.
#pragma once

#include <cstdint>
#include <span>

namespace sml {

// What a permutation is for. Keys for different purposes never coincide.
enum class PermutationUse : std::uint64_t {
  kPack = 1,    // seed: the pack seed; epoch and index 0
  kEpoch = 2,   // full mode: seed, epoch; index 0
  kBlocks = 3,  // block mode, order of the blocks: seed, epoch; index 0
  kBlock = 4,   // block mode, samples inside a block: seed, epoch, index = block number
};

struct PermutationKey {
  PermutationUse use = PermutationUse::kPack;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;
};

class Permutation {
 public:
  // n = 0 is allowed (and has no positions). n at most 2^63.
  Permutation(std::uint64_t n, const PermutationKey& key) noexcept;

  std::uint64_t size() const noexcept { return n_; }
  // Position -> value; position < n. apply and invert are inverses of each other.
  std::uint64_t apply(std::uint64_t position) const noexcept;
  std::uint64_t invert(std::uint64_t value) const noexcept;
  // out[i] = apply(first + i): faster than one call each. first + out.size() <= n.
  void apply(std::uint64_t first, std::span<std::uint64_t> out) const noexcept;

 private:
  // Up to this size the order is a shuffled table: few rounds leave a small domain uneven
  // (format-spec/order.md).
  static constexpr std::uint64_t kMaxTableSize = 64;
  static constexpr std::uint64_t kFewSize = 4096;
  static constexpr int kRounds = 8;      // above kFewSize
  static constexpr int kFewRounds = 12;  // kMaxTableSize < n <= kFewSize

  std::uint64_t n_ = 0;
  std::uint64_t rows_ = 0;  // rows_ << column_bits_ is at least n, by less than one row
  int column_bits_ = 0;
  int rounds_ = 0;  // 0: table_ holds the order
  std::uint64_t round_keys_[kFewRounds] = {};
  std::uint8_t table_[kMaxTableSize] = {};

  template <int kCount>
  std::uint64_t step(std::uint64_t x) const noexcept;
  template <int kCount>
  std::uint64_t unstep(std::uint64_t x) const noexcept;
  template <int kCount>
  void apply_rounds(std::uint64_t first, std::span<std::uint64_t> out) const noexcept;
};

}  // namespace sml
