#include "smlformat/succinct.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "smlformat/error.h"

namespace sml {
namespace {

constexpr std::uint64_t kWordBits = 64;
constexpr std::uint64_t kDirectoryBits = 512;  // of a bit vector per directory value
constexpr std::uint64_t kDirectoryWords = kDirectoryBits / kWordBits;
constexpr std::uint64_t kSampleOnes = 256;  // of an Elias-Fano list per sample
constexpr std::size_t kBitVectorHeaderBytes = 16;
constexpr std::size_t kEliasFanoHeaderBytes = 32;

std::uint64_t word_at(const std::byte* words, std::uint64_t i) noexcept {
  return load<std::uint64_t>(words + i * sizeof(std::uint64_t));
}

std::uint64_t ceil_div(std::uint64_t value, std::uint64_t by) noexcept {
  return value / by + (value % by != 0 ? 1 : 0);
}

std::uint64_t low_mask(unsigned width) noexcept {
  return width == 0 ? 0 : ~std::uint64_t{0} >> (kWordBits - width);
}

// Bits [bit, bit + width) of a packed array of `bytes` bytes (a multiple of 8), which holds them.
// width is 1 to 64.
std::uint64_t read_bits(const std::byte* data, std::uint64_t bytes, std::uint64_t bit,
                        unsigned width) noexcept {
  if (width <= 57) {
    // One unaligned load, moved back where it would pass the end.
    const std::uint64_t at = std::min(bit >> 3, bytes - sizeof(std::uint64_t));
    return (load<std::uint64_t>(data + at) >> (bit - at * 8)) & low_mask(width);
  }
  const std::uint64_t word = bit / kWordBits;
  const unsigned shift = static_cast<unsigned>(bit % kWordBits);
  std::uint64_t value = word_at(data, word) >> shift;
  if (shift + width > kWordBits) {
    value |= word_at(data, word + 1) << (kWordBits - shift);
  }
  return value & low_mask(width);
}

// Appends values of one width to packed words.
class BitPacker {
 public:
  BitPacker(std::byte* to, unsigned width) : to_(to), width_(width) {}

  void put(std::uint64_t value) noexcept {
    word_ |= value << used_;
    used_ += width_;
    if (used_ >= kWordBits) {
      flush();
      used_ -= static_cast<unsigned>(kWordBits);
      const unsigned taken = width_ - used_;
      word_ = taken < kWordBits ? value >> taken : 0;
    }
  }
  // Writes the last, partial word.
  void finish() noexcept {
    if (used_ > 0) {
      flush();
    }
  }

 private:
  void flush() noexcept {
    store(to_, word_);
    to_ += sizeof word_;
  }

  std::byte* to_;
  unsigned width_;
  std::uint64_t word_ = 0;
  unsigned used_ = 0;
};

// Position of the k-th one of a word that has more than k. Broadword: S. Vigna, "Broadword
// implementation of rank/select queries", 2008.
unsigned select_in_word(std::uint64_t word, unsigned k) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  std::uint64_t sums = word - ((word >> 1) & 0x5555555555555555);
  sums = (sums & 0x3333333333333333) + ((sums >> 2) & 0x3333333333333333);
  sums = ((sums + (sums >> 4)) & 0x0f0f0f0f0f0f0f0f) * kOnes;  // byte i: ones in bytes 0 to i
  const std::uint64_t not_before = (((k * kOnes) | (kOnes << 7)) - sums) & (kOnes << 7);
  const unsigned shift = static_cast<unsigned>(std::popcount(not_before)) * 8;
  unsigned left = k - static_cast<unsigned>(((sums << 8) >> shift) & 0xff);
  std::uint64_t rest = word >> shift;
  for (; left > 0; --left) {
    rest &= rest - 1;
  }
  return shift + static_cast<unsigned>(std::countr_zero(rest));
}

struct Found {
  std::uint64_t word_number;  // words where there are too few ones
  std::uint64_t word;         // without the ones before `from`
  unsigned k;                 // of the wanted one within `word`
};

// The word with the k-th one at or after bit `from`.
[[gnu::always_inline]] inline Found find_word(const std::byte* words, std::uint64_t count,
                                              std::uint64_t from, unsigned k) noexcept {
  std::uint64_t i = from / kWordBits;
  if (i >= count) {
    return {count, 0, 0};
  }
  std::uint64_t word = word_at(words, i) & (~std::uint64_t{0} << (from % kWordBits));
  for (;;) {
    const auto ones = static_cast<unsigned>(__builtin_popcountll(word));
    if (ones > k) {
      return {i, word, k};
    }
    k -= ones;
    if (++i == count) {
      return {count, 0, 0};
    }
    word = word_at(words, i);
  }
}

std::uint64_t select_portable(const std::byte* words, std::uint64_t count, std::uint64_t from,
                              unsigned k) noexcept {
  const Found found = find_word(words, count, from, k);
  return found.word_number * kWordBits +
         (found.word == 0 ? 0 : select_in_word(found.word, found.k));
}

#if defined(__x86_64__)
[[gnu::target("popcnt,bmi,bmi2")]] std::uint64_t select_bmi2(const std::byte* words,
                                                             std::uint64_t count,
                                                             std::uint64_t from,
                                                             unsigned k) noexcept {
  const Found found = find_word(words, count, from, k);
  const std::uint64_t bit = _pdep_u64(std::uint64_t{1} << found.k, found.word);
  return found.word_number * kWordBits + (bit == 0 ? 0 : _tzcnt_u64(bit));
}

// The first generations of AMD's Zen have PDEP in microcode, slower than the portable way.
const bool kHasFastBmi2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("popcnt") != 0 && __builtin_cpu_supports("bmi") != 0 &&
         __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_is("znver1") == 0 &&
         __builtin_cpu_is("znver2") == 0;
}();
#endif

// Position of the k-th one (from 0) at or after bit `from` in `count` words; count * 64 where there
// is none.
std::uint64_t select_from(const std::byte* words, std::uint64_t count, std::uint64_t from,
                          unsigned k) noexcept {
#if defined(__x86_64__)
  if (kHasFastBmi2) {
    return select_bmi2(words, count, from, k);
  }
#endif
  return select_portable(words, count, from, k);
}

[[noreturn]] void corrupt(const char* what) { throw Error(ErrorCode::kCorrupt, what); }

}  // namespace

// ---- PackedInts

std::uint64_t PackedInts::bytes_for(std::uint64_t count, unsigned width) noexcept {
  // 64 values fill `width` words exactly, so nothing overflows on the way.
  const std::uint64_t words =
      count / kWordBits * width + ceil_div(count % kWordBits * width, kWordBits);
  constexpr std::uint64_t kMaxWords = std::numeric_limits<std::uint64_t>::max() / 8;
  const bool fits =
      width <= kWordBits && count / kWordBits <= kMaxWords / kWordBits && words <= kMaxWords;
  return fits ? words * sizeof(std::uint64_t) : std::numeric_limits<std::uint64_t>::max();
}

PackedInts::PackedInts(ByteView bytes, std::uint64_t count, unsigned width)
    : data_(bytes.data()), count_(count), width_(width) {
  if (width > kWordBits) {
    corrupt("packed integers: wider than 64 bits");
  }
  if (bytes.size() != bytes_for(count, width)) {
    corrupt("packed integers: their size contradicts their number");
  }
}

std::uint64_t PackedInts::operator[](std::uint64_t i) const noexcept {
  return width_ == 0 ? 0 : read_bits(data_, bytes_for(count_, width_), i * width_, width_);
}

Bytes PackedInts::encode(std::span<const std::uint32_t> values, unsigned width) {
  Bytes out(bytes_for(values.size(), width));
  if (width > 0) {
    BitPacker packer(out.data(), width);
    for (const std::uint32_t value : values) {
      packer.put(value);
    }
    packer.finish();
  }
  return out;
}

// ---- BitVector

BitVector::BitVector(ByteView bytes) {
  if (bytes.size() < kBitVectorHeaderBytes) {
    corrupt("bit vector: shorter than its header");
  }
  bits_ = load<std::uint64_t>(bytes.data());
  ones_ = load<std::uint64_t>(bytes.data() + 8);
  const std::uint64_t words = ceil_div(bits_, kWordBits);
  const std::uint64_t directory = bits_ / kDirectoryBits + 1;
  if ((bytes.size() - kBitVectorHeaderBytes) % sizeof(std::uint64_t) != 0 ||
      (bytes.size() - kBitVectorHeaderBytes) / sizeof(std::uint64_t) != words + directory) {
    corrupt("bit vector: its size contradicts its number of bits");
  }
  words_ = bytes.data() + kBitVectorHeaderBytes;
  directory_ = words_ + words * sizeof(std::uint64_t);

  std::uint64_t ones = 0;
  for (std::uint64_t i = 0; i < words; ++i) {
    if (i % kDirectoryWords == 0 && word_at(directory_, i / kDirectoryWords) != ones) {
      corrupt("bit vector: the directory contradicts the bits");
    }
    ones += static_cast<std::uint64_t>(std::popcount(word_at(words_, i)));
  }
  if (bits_ % kWordBits != 0 &&
      (word_at(words_, words - 1) & ~low_mask(static_cast<unsigned>(bits_ % kWordBits))) != 0) {
    corrupt("bit vector: ones behind the last bit");
  }
  if (ones != ones_ ||
      (bits_ % kDirectoryBits == 0 && word_at(directory_, directory - 1) != ones)) {
    corrupt("bit vector: the number of ones contradicts the bits");
  }
}

bool BitVector::operator[](std::uint64_t i) const noexcept {
  return (word_at(words_, i / kWordBits) >> (i % kWordBits) & 1) != 0;
}

std::uint64_t BitVector::rank(std::uint64_t i) const noexcept {
  const std::uint64_t word = i / kWordBits;
  std::uint64_t ones = word_at(directory_, i / kDirectoryBits);
  for (std::uint64_t w = word / kDirectoryWords * kDirectoryWords; w < word; ++w) {
    ones += static_cast<std::uint64_t>(std::popcount(word_at(words_, w)));
  }
  const auto rest = static_cast<unsigned>(i % kWordBits);
  if (rest != 0) {
    ones += static_cast<std::uint64_t>(std::popcount(word_at(words_, word) & low_mask(rest)));
  }
  return ones;
}

std::uint64_t BitVector::select(std::uint64_t k) const noexcept {
  if (k >= ones_) {
    return bits_;
  }
  std::uint64_t first = 0;                          // its directory value is <= k
  std::uint64_t last = bits_ / kDirectoryBits + 1;  // beyond the end, or its value is > k
  while (last - first > 1) {
    const std::uint64_t middle = first + (last - first) / 2;
    if (word_at(directory_, middle) <= k) {
      first = middle;
    } else {
      last = middle;
    }
  }
  // Less than 512 by the check on opening; cut so that bytes which changed since cannot widen it.
  const auto left = static_cast<unsigned>(k - word_at(directory_, first));
  return std::min(bits_,
                  select_from(words_, ceil_div(bits_, kWordBits), first * kDirectoryBits, left));
}

Bytes BitVector::encode(const std::vector<bool>& bits) {
  const std::uint64_t words = ceil_div(bits.size(), kWordBits);
  const std::uint64_t directory = bits.size() / kDirectoryBits + 1;
  Bytes out(kBitVectorHeaderBytes + (words + directory) * sizeof(std::uint64_t));
  std::byte* const to_words = out.data() + kBitVectorHeaderBytes;
  std::byte* const to_directory = to_words + words * sizeof(std::uint64_t);
  std::uint64_t ones = 0;
  auto bit = bits.begin();
  for (std::uint64_t i = 0; i < words; ++i) {
    if (i % kDirectoryWords == 0) {
      store(to_directory + i / kDirectoryWords * sizeof ones, ones);
    }
    const std::uint64_t here = std::min<std::uint64_t>(kWordBits, bits.size() - i * kWordBits);
    std::uint64_t word = 0;
    for (std::uint64_t b = 0; b < here; ++b, ++bit) {
      word |= std::uint64_t{*bit} << b;
    }
    store(to_words + i * sizeof word, word);
    ones += static_cast<std::uint64_t>(std::popcount(word));
  }
  if (bits.size() % kDirectoryBits == 0) {
    store(to_directory + (directory - 1) * sizeof ones, ones);
  }
  store(out.data(), std::uint64_t{bits.size()});
  store(out.data() + 8, ones);
  return out;
}

// ---- EliasFano

EliasFano::EliasFano(ByteView bytes) {
  if (bytes.size() < kEliasFanoHeaderBytes) {
    corrupt("Elias-Fano list: shorter than its header");
  }
  count_ = load<std::uint64_t>(bytes.data());
  const auto low_bits = load<std::uint64_t>(bytes.data() + 8);
  high_words_ = load<std::uint64_t>(bytes.data() + 16);
  if (low_bits >= kWordBits || load<std::uint64_t>(bytes.data() + 24) != 0) {
    corrupt("Elias-Fano list: fields out of range");
  }
  low_bits_ = static_cast<unsigned>(low_bits);
  const std::uint64_t body = bytes.size() - kEliasFanoHeaderBytes;
  // A value takes one bit of the high words: this bounds the count before it is multiplied.
  if (high_words_ > body / sizeof(std::uint64_t) || count_ > high_words_ * kWordBits) {
    corrupt("Elias-Fano list: its size contradicts its number of values");
  }
  const std::uint64_t low_bytes = PackedInts::bytes_for(count_, low_bits_);
  const std::uint64_t samples = ceil_div(count_, kSampleOnes);
  if (low_bytes > body || body != low_bytes + (high_words_ + samples) * sizeof(std::uint64_t)) {
    corrupt("Elias-Fano list: its size contradicts its number of values");
  }
  low_ = bytes.data() + kEliasFanoHeaderBytes;
  high_ = low_ + low_bytes;
  samples_ = high_ + high_words_ * sizeof(std::uint64_t);
  for (std::uint64_t i = 0, least = 0; i < samples; ++i, least += kSampleOnes) {
    const std::uint64_t at = word_at(samples_, i);
    if (at < least || at >= high_words_ * kWordBits) {
      corrupt("Elias-Fano list: a sample is out of range");
    }
    least = at;
  }
}

std::uint64_t EliasFano::select(std::uint64_t i) const noexcept {
  return select_from(high_, high_words_, word_at(samples_, i / kSampleOnes),
                     static_cast<unsigned>(i % kSampleOnes));
}

std::uint64_t EliasFano::operator[](std::uint64_t i) const noexcept {
  // The low bits first: their cache miss then overlaps with those of the search.
  const auto low_bytes = static_cast<std::uint64_t>(high_ - low_);
  const std::uint64_t low =
      low_bits_ == 0 ? 0 : read_bits(low_, low_bytes, i * low_bits_, low_bits_);
  return (select(i) - i) << low_bits_ | low;
}

std::pair<std::uint64_t, std::uint64_t> EliasFano::pair(std::uint64_t i) const noexcept {
  const auto low_bytes = static_cast<std::uint64_t>(high_ - low_);
  std::uint64_t low = 0;
  std::uint64_t next_low = 0;
  if (low_bits_ != 0) {
    low = read_bits(low_, low_bytes, i * low_bits_, low_bits_);
    next_low = read_bits(low_, low_bytes, (i + 1) * low_bits_, low_bits_);
  }
  const std::uint64_t at = select(i);
  std::uint64_t word_number = at / kWordBits;
  std::uint64_t next = high_words_ * kWordBits;
  if (word_number < high_words_) {
    std::uint64_t word = word_at(high_, word_number) & (~std::uint64_t{1} << (at % kWordBits));
    while (word == 0 && ++word_number < high_words_) {
      word = word_at(high_, word_number);
    }
    if (word != 0) {
      next = word_number * kWordBits + static_cast<unsigned>(std::countr_zero(word));
    }
  }
  return {(at - i) << low_bits_ | low, (next - i - 1) << low_bits_ | next_low};
}

Bytes EliasFano::encode(std::span<const std::uint64_t> values) {
  const std::uint64_t count = values.size();
  const std::uint64_t max = values.empty() ? 0 : values.back();
  const unsigned low_bits =
      count != 0 && max >= count ? static_cast<unsigned>(std::bit_width(max / count)) - 1 : 0;
  const std::uint64_t high_words = count == 0 ? 0 : ceil_div((max >> low_bits) + count, kWordBits);
  const std::uint64_t low_bytes = PackedInts::bytes_for(count, low_bits);
  const std::uint64_t samples = ceil_div(count, kSampleOnes);
  Bytes out(kEliasFanoHeaderBytes + low_bytes + (high_words + samples) * sizeof(std::uint64_t));
  store(out.data(), count);
  store(out.data() + 8, std::uint64_t{low_bits});
  store(out.data() + 16, high_words);

  std::byte* const to_low = out.data() + kEliasFanoHeaderBytes;
  std::byte* const to_high = to_low + low_bytes;
  std::byte* const to_samples = to_high + high_words * sizeof(std::uint64_t);
  BitPacker low(to_low, low_bits);
  std::uint64_t word = 0;
  std::uint64_t word_number = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (low_bits > 0) {
      low.put(values[i] & low_mask(low_bits));
    }
    const std::uint64_t at = (values[i] >> low_bits) + i;
    if (at / kWordBits != word_number) {
      store(to_high + word_number * sizeof word, word);
      word = 0;
      word_number = at / kWordBits;
    }
    word |= std::uint64_t{1} << (at % kWordBits);
    if (i % kSampleOnes == 0) {
      store(to_samples + i / kSampleOnes * sizeof at, at);
    }
  }
  if (count > 0) {
    store(to_high + word_number * sizeof word, word);
    low.finish();
  }
  return out;
}

}  // namespace sml
