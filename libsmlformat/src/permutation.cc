#include "smlformat/permutation.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <utility>

namespace sml {
namespace {

constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15;

// The finaliser of splitmix64 (Steele, Lea, Flood 2014; Stafford's variant 13) without its last
// step, which only touches bits that scale() hardly uses.
std::uint64_t scramble(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  return (x ^ (x >> 27)) * 0x94d049bb133111eb;
}

std::uint64_t mix(std::uint64_t x) noexcept {
  x = scramble(x);
  return x ^ (x >> 31);
}

__extension__ using Wide = unsigned __int128;

// Maps 64 random bits to [0, limit).
std::uint64_t scale(std::uint64_t bits, std::uint64_t limit) noexcept {
  return static_cast<std::uint64_t>((Wide{bits} * limit) >> 64);
}

}  // namespace

Permutation::Permutation(std::uint64_t n, const PermutationKey& key) noexcept : n_(n) {
  assert(n <= std::uint64_t{1} << 63);
  std::uint64_t state = 0;
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(key.use), key.seed, key.epoch, key.index}) {
    state = mix(state + word + kGamma);
  }
  const auto draw = [&state] { return mix(state += kGamma); };

  if (n <= kMaxTableSize) {
    for (std::uint64_t i = 0; i < n; ++i) table_[i] = static_cast<std::uint8_t>(i);
    for (std::uint64_t i = n; i > 1; --i) std::swap(table_[i - 1], table_[scale(draw(), i)]);
    return;
  }
  column_bits_ = static_cast<int>(std::bit_width(n - 1)) / 2;
  rows_ = ((n - 1) >> column_bits_) + 1;
  rounds_ = n <= kFewSize ? kFewRounds : kRounds;
  for (int i = 0; i < rounds_; ++i) round_keys_[i] = draw();
}

template <int kCount>
std::uint64_t Permutation::step(std::uint64_t x) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << column_bits_) - 1;
  std::uint64_t row = x >> column_bits_;
  std::uint64_t column = x & mask;
  for (int i = 0; i < kCount; i += 2) {
    row += scale(scramble(column + round_keys_[i]), rows_);
    row -= row >= rows_ ? rows_ : 0;
    column = (column + (scramble(row + round_keys_[i + 1]) >> (64 - column_bits_))) & mask;
  }
  return row << column_bits_ | column;
}

template <int kCount>
std::uint64_t Permutation::unstep(std::uint64_t x) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << column_bits_) - 1;
  std::uint64_t row = x >> column_bits_;
  std::uint64_t column = x & mask;
  for (int i = kCount - 2; i >= 0; i -= 2) {
    column = (column - (scramble(row + round_keys_[i + 1]) >> (64 - column_bits_))) & mask;
    const std::uint64_t shift = scale(scramble(column + round_keys_[i]), rows_);
    row = row >= shift ? row - shift : row + rows_ - shift;
  }
  return row << column_bits_ | column;
}

std::uint64_t Permutation::apply(std::uint64_t position) const noexcept {
  assert(position < n_);
  std::uint64_t x = position;
  if (rounds_ == kRounds) {
    do x = step<kRounds>(x);
    while (x >= n_);
    return x;
  }
  if (rounds_ == 0) return table_[x];
  do x = step<kFewRounds>(x);
  while (x >= n_);
  return x;
}

std::uint64_t Permutation::invert(std::uint64_t value) const noexcept {
  assert(value < n_);
  std::uint64_t x = value;
  if (rounds_ == kRounds) {
    do x = unstep<kRounds>(x);
    while (x >= n_);
    return x;
  }
  if (rounds_ == 0) {
    const auto* found = std::find(table_, table_ + n_, static_cast<std::uint8_t>(value));
    return static_cast<std::uint64_t>(found - table_);
  }
  do x = unstep<kFewRounds>(x);
  while (x >= n_);
  return x;
}

template <int kCount>
void Permutation::apply_rounds(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
  // Positions do not depend on one another: side by side, the processor overlaps their
  // multiplications.
  constexpr std::size_t kGroup = 8;
  const std::uint64_t mask = (std::uint64_t{1} << column_bits_) - 1;
  const int shift = 64 - column_bits_;
  const std::uint64_t rows = rows_;
  std::size_t done = 0;
  for (; done + kGroup <= out.size(); done += kGroup) {
    std::uint64_t row[kGroup];
    std::uint64_t column[kGroup];
    for (std::size_t j = 0; j < kGroup; ++j) {
      const std::uint64_t x = first + done + j;
      row[j] = x >> column_bits_;
      column[j] = x & mask;
    }
    for (int i = 0; i < kCount; i += 2) {
      const std::uint64_t row_key = round_keys_[i];
      const std::uint64_t column_key = round_keys_[i + 1];
      for (std::size_t j = 0; j < kGroup; ++j) {
        const std::uint64_t moved = row[j] + scale(scramble(column[j] + row_key), rows);
        row[j] = moved - (moved >= rows ? rows : 0);
      }
      for (std::size_t j = 0; j < kGroup; ++j) {
        column[j] = (column[j] + (scramble(row[j] + column_key) >> shift)) & mask;
      }
    }
    for (std::size_t j = 0; j < kGroup; ++j) {
      std::uint64_t x = row[j] << column_bits_ | column[j];
      while (x >= n_) x = step<kCount>(x);
      out[done + j] = x;
    }
  }
  for (; done < out.size(); ++done) out[done] = apply(first + done);
}

void Permutation::apply(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
  assert(first <= n_ && out.size() <= n_ - first);
  if (rounds_ == kRounds) return apply_rounds<kRounds>(first, out);
  if (rounds_ == kFewRounds) return apply_rounds<kFewRounds>(first, out);
  std::copy_n(table_ + first, out.size(), out.begin());
}

}  // namespace sml
