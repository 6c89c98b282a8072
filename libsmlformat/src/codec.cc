#include "smlformat/codec.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <new>
#include <numeric>
#include <utility>

// The training function with fixed parameters is declared for static linking only, but every shared libzstd exports it.
#define ZDICT_STATIC_LINKING_ONLY
#include <zdict.h>
#include <zstd.h>

#include "smlformat/error.h"

namespace sml {
namespace {

// Below this a record without a dictionary is not worth a frame's header.
constexpr std::size_t kMinCompressBytes = 64;

// Statistics of bytes: in how many places, and how many bytes in each.
constexpr std::size_t kSamples = 4;
constexpr std::size_t kSampleBytes = 1024;
constexpr std::size_t kMinSampledBytes = 512;

// Pairs of equal bytes against what random bytes have. JPEG, PNG and zstd bodies have 1.0 to 1.3 times as many; base64 4 times, 
// 16-bit sound and floating-point numbers 2 or more, text more than 12.
constexpr double kMaxPairs = 1.4;
// The same in the sample that has most: a body that is compressible in places is compressed.
constexpr double kMaxPairsOfSample = 2.0;

struct FreeCCtx {
  void operator()(ZSTD_CCtx* p) const noexcept { ZSTD_freeCCtx(p); }
};
struct FreeDCtx {
  void operator()(ZSTD_DCtx* p) const noexcept { ZSTD_freeDCtx(p); }
};
struct FreeCDict {
  void operator()(ZSTD_CDict* p) const noexcept { ZSTD_freeCDict(p); }
};
struct FreeDDict {
  void operator()(ZSTD_DDict* p) const noexcept { ZSTD_freeDDict(p); }
};

using ByteCounts = std::array<std::uint32_t, 256>;

void count_bytes(ByteView bytes, ByteCounts& counts) noexcept {
  // Two tables: runs of one value would otherwise wait for their own increments.
  ByteCounts odd{};
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) {
    ++counts[std::to_integer<std::size_t>(bytes[i])];
    ++odd[std::to_integer<std::size_t>(bytes[i + 1])];
  }
  if (i < bytes.size()) {
    ++counts[std::to_integer<std::size_t>(bytes[i])];
  }
  for (std::size_t v = 0; v < counts.size(); ++v) {
    counts[v] += odd[v];
  }
}

// Pairs of equal bytes, as a multiple of what uniformly random bytes have.
double equal_pairs(const ByteCounts& counts, std::size_t bytes) noexcept {
  std::uint64_t pairs = 0;
  for (const std::uint32_t count : counts) {
    pairs += std::uint64_t{count} * count;
  }
  const auto n = static_cast<double>(bytes);
  return (static_cast<double>(pairs) - n) * 256 / (n * (n - 1));
}

void check(std::size_t result) {
  if (ZSTD_isError(result) != 0) {
    throw Error(ErrorCode::kInvalidArgument, std::string("zstd: ") + ZSTD_getErrorName(result));
  }
}

}  // namespace

bool looks_incompressible(ByteView bytes) noexcept {
  if (bytes.size() < kMinSampledBytes) {
    return false;
  }
  ByteCounts all{};
  std::size_t sampled = 0;
  const std::size_t samples = std::min(kSamples, bytes.size() / kMinSampledBytes);
  for (std::size_t i = 0; i < samples; ++i) {
    // The middle of each of the equal parts: headers tell little about what follows.
    const std::size_t first = bytes.size() / samples * i;
    const std::size_t part = bytes.size() / samples;
    const std::size_t length = std::min(part, kSampleBytes);
    ByteCounts counts{};
    count_bytes(bytes.subspan(first + (part - length) / 2, length), counts);
    if (equal_pairs(counts, length) > kMaxPairsOfSample) {
      return false;
    }
    for (std::size_t v = 0; v < all.size(); ++v) {
      all[v] += counts[v];
    }
    sampled += length;
  }
  return equal_pairs(all, sampled) <= kMaxPairs;
}

// ---- Dictionary

struct Dictionary::State {
  std::unique_ptr<ZSTD_CDict, FreeCDict> compress;  // null: for decoding only
  std::unique_ptr<ZSTD_DDict, FreeDDict> decompress;
};

Dictionary::Dictionary(Bytes bytes, int level) : bytes_(std::move(bytes)), state_(std::make_unique<State>()) {
  if (bytes_.size() > kMaxDictionaryBytes) {
    throw Error(ErrorCode::kLimit, "dictionary of " + std::to_string(bytes_.size()) + " bytes, above " +
                                       std::to_string(kMaxDictionaryBytes));
  }
  state_->decompress.reset(ZSTD_createDDict(bytes_.data(), bytes_.size()));
  if (level != 0) {
    state_->compress.reset(ZSTD_createCDict(bytes_.data(), bytes_.size(), level));
  }
  if (!state_->decompress || (level != 0 && !state_->compress)) {
    throw Error(ErrorCode::kCorrupt, "zstd does not accept the dictionary");
  }
}

Dictionary::~Dictionary() = default;

std::optional<Bytes> Dictionary::train(ByteView data, const std::vector<std::size_t>& sample_bytes,
                                       std::size_t max_bytes) {
  assert(std::accumulate(sample_bytes.begin(), sample_bytes.end(), std::size_t{0}) == data.size());
  max_bytes = std::min({max_bytes, kMaxDictionaryBytes, data.size() / kMinDataPerDictionary});
  if (max_bytes < kMinDictionaryBytes) {
    return std::nullopt;
  }
  ZDICT_fastCover_params_t params{};
  params.k = 1024;
  params.d = 8;
  params.f = 18;
  params.accel = 1;
  params.splitPoint = 1.0;
  params.zParams.compressionLevel = kDefaultZstdLevel;
  Bytes dictionary(max_bytes);
  const std::size_t size = ZDICT_trainFromBuffer_fastCover(dictionary.data(), dictionary.size(), data.data(),
                                                           sample_bytes.data(),
                                                           static_cast<unsigned>(sample_bytes.size()), params);
  if (ZDICT_isError(size) != 0) {
    return std::nullopt;
  }
  dictionary.resize(size);
  return dictionary;
}

}  // namespace sml
