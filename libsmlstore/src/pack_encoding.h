// The parallel part of packing: raw bytes to encoded records, and the dictionary they share.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "smlformat/block.h"
#include "smlformat/codec.h"

namespace sml {

// Encoders for any number of threads, made as needed.
class EncoderPool {
 public:
  EncoderPool(const CompressionOptions& options, std::shared_ptr<const Dictionary> dictionary)
      : options_(options), dictionary_(std::move(dictionary)) {}

  class Lease {
   public:
    explicit Lease(EncoderPool& pool);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Encoder& operator*() noexcept { return *encoder_; }

   private:
    EncoderPool& pool_;
    std::unique_ptr<Encoder> encoder_;
  };

 private:
  CompressionOptions options_;
  std::shared_ptr<const Dictionary> dictionary_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Encoder>> idle_;
};

// Records with their raw bytes, encoded together by one task.
class EncodingBatch {
 public:
  struct Item {
    std::string_view key;
    std::uint64_t hash = 0;
    std::uint64_t raw_bytes = 0;
    std::size_t raw_offset = 0;  // in the batch's raw bytes
    bool starts_sample = true;
    bool kept = false;      // encoded before: taken over from an interrupted pack
    EncodedRecord encoded;  // after encode()
  };

  void reserve(std::size_t raw_bytes) { raw_.reserve(raw_bytes); }
  // Space for the raw bytes of the next record; valid until the next call.
  MutableBytes add(std::string_view key, std::uint64_t raw_bytes, bool starts_sample);
  // The next record, which is encoded already; hold() what its stored bytes lie in.
  void add_kept(const EncodedRecord& record, bool starts_sample);
  void hold(Buffer memory) { held_ = std::move(memory); }

  std::vector<Item>& items() noexcept { return items_; }
  const std::vector<Item>& items() const noexcept { return items_; }
  ByteView raw(const Item& item) const noexcept {
    return ByteView(raw_).subspan(item.raw_offset, item.raw_bytes);
  }
  std::size_t raw_bytes() const noexcept { return raw_.size(); }

  // Fills in `encoded` of all records but those kept; the raw bytes are given up where nothing
  // refers to them.
  void encode(Encoder& encoder);

 private:
  std::vector<Item> items_;
  Buffer raw_;
  Buffer arena_;
  Buffer held_;
};

// Learns from records in pack order whether a dictionary pays, and trains it.
class DictionaryTrainer {
 public:
  explicit DictionaryTrainer(const CompressionOptions& options) : options_(options) {}

  // Whether more records would help. Without compression never.
  bool wants_more() const noexcept;
  void add(ByteView raw);
  // `total_bytes`: of all records to be packed, where known. Nothing where a dictionary would not
  // pay.
  std::optional<Bytes> train(std::optional<std::uint64_t> total_bytes) const;

 private:
  CompressionOptions options_;
  std::uint64_t seen_bytes_ = 0;
  Bytes samples_;
  std::vector<std::size_t> sample_bytes_;
};

}  // namespace sml
