#include "smlformat/codec.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <new>
#include <numeric>
#include <string>
#include <utility>

// The training function with fixed parameters and the way in which dictionaries are searched are
// declared for static linking only, but every shared libzstd has them.
#define ZDICT_STATIC_LINKING_ONLY
#define ZSTD_STATIC_LINKING_ONLY
#include <zdict.h>
#include <zstd.h>

#include "smlformat/error.h"

namespace sml {
namespace {

// Below this a record without a dictionary is not worth a frame's header.
constexpr std::size_t kMinCompressBytes = 64;

// A dictionary needs this many bytes of samples for each of its own, and is not worth having below
// a size.
constexpr std::size_t kMinDataPerDictionary = 8;
constexpr std::size_t kMinDictionaryBytes = 256;

// Automatic compression must gain this much: raw size / kMinGain.
constexpr std::size_t kMinGain = 32;

constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";  // a frame begins so

// Statistics of bytes: in how many places, and how many bytes in each.
constexpr std::size_t kSamples = 4;
constexpr std::size_t kSampleBytes = 1024;
constexpr std::size_t kMinSampledBytes = 512;

// Pairs of equal bytes against what random bytes have. JPEG, PNG and zstd bodies have 1.0 to 1.3
// times as many; base64 4 times, 16-bit sound and floating-point numbers 2 or more, text more
// than 12.
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

std::uint32_t codec_version() noexcept { return ZSTD_versionNumber(); }

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

Dictionary::Dictionary(Bytes bytes, int level)
    : bytes_(std::move(bytes)), state_(std::make_unique<State>()) {
  if (bytes_.size() > kMaxDictionaryBytes) {
    throw Error(ErrorCode::kLimit, "dictionary of " + std::to_string(bytes_.size()) +
                                       " bytes, above " + std::to_string(kMaxDictionaryBytes));
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
  // Fixed, where ZDICT_trainFromBuffer tries several: on kernel sources k from 200 to 2000, f of 18
  // and 20 and accel of 1 to 8 differ by less than 0.2 % of the size, and 4 MiB take 0.04 s.
  ZDICT_fastCover_params_t params{};
  params.k = 500;
  params.d = 8;
  params.f = 18;
  params.accel = 2;
  params.splitPoint = 1.0;
  params.zParams.compressionLevel = kDefaultZstdLevel;
  Bytes dictionary(max_bytes);
  const std::size_t size = ZDICT_trainFromBuffer_fastCover(
      dictionary.data(), dictionary.size(), data.data(), sample_bytes.data(),
      static_cast<unsigned>(sample_bytes.size()), params);
  if (ZDICT_isError(size) != 0) {
    return std::nullopt;
  }
  dictionary.resize(size);
  return dictionary;
}

// ---- Encoder

struct Encoder::State {
  CompressionOptions options;
  std::shared_ptr<const Dictionary> dictionary;
  std::unique_ptr<ZSTD_CCtx, FreeCCtx> context;
  Bytes buffer;
};

Encoder::Encoder(const CompressionOptions& options, std::shared_ptr<const Dictionary> dictionary)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->dictionary = std::move(dictionary);
  if (options.mode == CompressionOptions::Mode::kNone) return;
  state_->context.reset(ZSTD_createCCtx());
  if (!state_->context) throw std::bad_alloc();
  ZSTD_CCtx* context = state_->context.get();
  check(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, options.level));
  check(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 1));
  check(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 0));
  check(ZSTD_CCtx_setParameter(context, ZSTD_c_dictIDFlag, 0));
  if (state_->dictionary) {
    assert(state_->dictionary->state_->compress);
    check(ZSTD_CCtx_refCDict(context, state_->dictionary->state_->compress.get()));
    // Always searched in place. For records above some 16 KiB zstd would copy the dictionary's
    // tables, 400 KiB, for each: on kernel sources a sixth of the time, and nothing gained.
    check(ZSTD_CCtx_setParameter(context, ZSTD_c_forceAttachDict, ZSTD_dictForceAttach));
  }
}

Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

Encoded Encoder::encode(ByteView raw) {
  State& s = *state_;
  const Encoded as_it_is{Codec::kStored, raw};
  std::size_t most = raw.size();  // a compressed form must be smaller
  switch (s.options.mode) {
    case CompressionOptions::Mode::kNone:
      return as_it_is;
    case CompressionOptions::Mode::kAuto:
      if ((!s.dictionary && raw.size() < kMinCompressBytes) || looks_incompressible(raw))
        return as_it_is;
      most = raw.size() - raw.size() / kMinGain;
      break;
    case CompressionOptions::Mode::kZstd:
      break;
  }
  if (raw.empty()) return as_it_is;
  s.buffer.resize(std::max(s.buffer.size(), ZSTD_compressBound(raw.size())));
  const std::size_t size =
      ZSTD_compress2(s.context.get(), s.buffer.data(), s.buffer.size(), raw.data(), raw.size());
  check(size);
  if (size >= most) return as_it_is;
  return {s.dictionary ? Codec::kZstdDictionary : Codec::kZstd, ByteView(s.buffer).first(size)};
}

// ---- Decoder

std::optional<std::uint64_t> raw_bytes_of(Codec codec, ByteView stored) noexcept {
  if (codec == Codec::kStored) return stored.size();
  if (codec != Codec::kZstd && codec != Codec::kZstdDictionary) return std::nullopt;
  const unsigned long long bytes = ZSTD_getFrameContentSize(stored.data(), stored.size());
  if (bytes == ZSTD_CONTENTSIZE_ERROR || bytes == ZSTD_CONTENTSIZE_UNKNOWN) return std::nullopt;
  return bytes;
}

struct Decoder::State {
  std::unique_ptr<ZSTD_DCtx, FreeDCtx> context;
};

Decoder::Decoder() : state_(std::make_unique<State>()) {
  state_->context.reset(ZSTD_createDCtx());
  if (!state_->context) throw std::bad_alloc();
}

Decoder::~Decoder() = default;

void Decoder::decode(Codec codec, ByteView stored, const Dictionary* dictionary, MutableBytes raw) {
  const auto corrupt = [](const std::string& what) { throw Error(ErrorCode::kCorrupt, what); };
  switch (codec) {
    case Codec::kStored:
      if (stored.size() != raw.size()) corrupt("the stored size is not the record's size");
      std::copy(stored.begin(), stored.end(), raw.begin());
      return;
    case Codec::kZstd:
    case Codec::kZstdDictionary:
      break;
    default:
      // A new codec would come with a feature bit.
      corrupt("unknown codec " + std::to_string(static_cast<unsigned>(codec)));
  }
  const bool with_dictionary = codec == Codec::kZstdDictionary;
  if (with_dictionary && dictionary == nullptr)
    corrupt("the record needs a dictionary, and the container has none");
  // zstd would take frames of its old versions, too.
  if (!as_text(stored).starts_with(kZstdMagic)) corrupt("the compressed record is no zstd frame");
  // The descriptor follows: bit 2 tells of a checksum, bits 0 and 1 of a dictionary id.
  if (stored.size() > kZstdMagic.size() &&
      (stored[kZstdMagic.size()] & std::byte{7}) != std::byte{0}) {
    corrupt("the compressed record has a checksum or a dictionary id");
  }
  // zstd would take several frames, and frames to be skipped, as one.
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != raw.size()) {
    corrupt("the compressed record does not hold the size that the index gives");
  }
  if (ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    corrupt("the compressed record does not fill its place");
  }
  // In one go, so that a frame's window takes no memory beside `raw`, whatever size it claims.
  ZSTD_DCtx* context = state_->context.get();
  const std::size_t size =
      with_dictionary
          ? ZSTD_decompress_usingDDict(context, raw.data(), raw.size(), stored.data(),
                                       stored.size(), dictionary->state_->decompress.get())
          : ZSTD_decompressDCtx(context, raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0)
    corrupt(std::string("the compressed record is damaged: ") + ZSTD_getErrorName(size));
  if (size != raw.size()) corrupt("the compressed record decodes to another size");
}

Decoder& Decoder::local() {
  thread_local Decoder decoder;
  return decoder;
}

}  // namespace sml
