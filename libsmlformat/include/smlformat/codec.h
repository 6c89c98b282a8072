// How a record's bytes are stored: as they are, or zstd, with or without the container's
// dictionary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"

namespace sml {

// Registry: format-spec/registry.md.
enum class Codec : std::uint8_t { kStored = 0, kZstd = 1, kZstdDictionary = 2 };

inline constexpr int kDefaultZstdLevel = 3;
inline constexpr std::size_t kMaxDictionaryBytes = 1U << 20;

// Of the compressor: another version may encode the same record otherwise.
std::uint32_t codec_version() noexcept;

// True where `bytes` look as if no compressor would gain from them (JPEG, PNG bodies, zstd,
// random): by the byte statistics of samples of them. Pure; about 1 us.
bool looks_incompressible(ByteView bytes) noexcept;

// A zstd dictionary, digested for one level. Immutable; shared by any number of threads.
class Dictionary {
 public:
  // Throws kCorrupt where zstd does not take `bytes`, kLimit above kMaxDictionaryBytes. level 0:
  // for decoding only.
  Dictionary(Bytes bytes, int level);
  ~Dictionary();
  Dictionary(const Dictionary&) = delete;
  Dictionary& operator=(const Dictionary&) = delete;

  ByteView bytes() const noexcept { return bytes_; }

  // Trains on `samples`, laid end to end in `data`, giving at most `max_bytes`; nothing where
  // training fails or where there is too little to learn from. Deterministic for one version of
  // libzstd. Some 10 ms per MiB.
  static std::optional<Bytes> train(ByteView data, const std::vector<std::size_t>& sample_bytes,
                                    std::size_t max_bytes);

 private:
  friend class Encoder;
  friend class Decoder;
  struct State;
  Bytes bytes_;
  std::unique_ptr<State> state_;
};

// The raw size of a record from its stored bytes alone; nothing where they do not tell.
std::optional<std::uint64_t> raw_bytes_of(Codec codec, ByteView stored) noexcept;

// What an encoder did with a record.
struct Encoded {
  Codec codec = Codec::kStored;
  ByteView stored;  // in the encoder's buffer, or the input itself
};

struct CompressionOptions {
  enum class Mode : std::uint8_t { kNone, kAuto, kZstd };
  Mode mode = Mode::kAuto;  // kAuto: zstd unless it does not pay; kZstd: always zstd, unless it
                            // grows the record
  int level = kDefaultZstdLevel;  // 1 to 19 (zstd's own levels; above 19 memory grows)
};

// Compresses one record after another. One per thread.
class Encoder {
 public:
  // `dictionary` may be null; it is kept alive by the encoder.
  Encoder(const CompressionOptions& options, std::shared_ptr<const Dictionary> dictionary);
  ~Encoder();
  Encoder(Encoder&&) noexcept;

  // The result is valid until the next call and as long as `raw`. Deterministic: depends on
  // options, dictionary and `raw` alone.
  Encoded encode(ByteView raw);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Decompresses one record after another. One per thread; or take Decoder::local().
class Decoder {
 public:
  Decoder();
  ~Decoder();

  // Fills `raw`, whose size is the record's raw size. Throws kCorrupt where `stored` does not
  // decode to exactly that many bytes, for an unknown codec, and where a dictionary is needed and
  // `dictionary` is null.
  void decode(Codec codec, ByteView stored, const Dictionary* dictionary, MutableBytes raw);

  // This thread's decoder.
  static Decoder& local();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sml
