#include "pack_encoding.h"

#include <algorithm>

#include "smlformat/checksum.h"
#include "smlformat/key.h"

namespace sml {
namespace {

constexpr std::uint64_t kTrainingLook = 16U << 20;   // raw bytes looked at, at most
constexpr std::uint64_t kTrainingSample = 4U << 20;  // compressible bytes trained on, at most
constexpr std::size_t kMaxTrainingRecordBytes = 16U << 10;  // of one record
constexpr std::size_t kMaxDictionary = 110U << 10;
constexpr std::size_t kMinTrainingBytes = 128U << 10;
constexpr std::size_t kMinTrainingRecords = 64;
constexpr std::size_t kTrialRecords = 256;

}  // namespace

EncoderPool::Lease::Lease(EncoderPool& pool) : pool_(pool) {
  {
    const std::lock_guard lock(pool.mutex_);
    if (!pool.idle_.empty()) {
      encoder_ = std::move(pool.idle_.back());
      pool.idle_.pop_back();
    }
  }
  if (!encoder_) encoder_ = std::make_unique<Encoder>(pool.options_, pool.dictionary_);
}

EncoderPool::Lease::~Lease() {
  const std::lock_guard lock(pool_.mutex_);
  pool_.idle_.push_back(std::move(encoder_));
}

MutableBytes EncodingBatch::add(std::string_view key, std::uint64_t raw_bytes, bool starts_sample) {
  Item item;
  item.key = key;
  item.hash = key_hash(key);
  item.raw_bytes = raw_bytes;
  item.raw_offset = raw_.size();
  item.starts_sample = starts_sample;
  items_.push_back(item);
  raw_.resize(raw_.size() + raw_bytes);
  return MutableBytes(raw_).subspan(item.raw_offset);
}

void EncodingBatch::add_kept(const EncodedRecord& record, bool starts_sample) {
  Item item;
  item.key = record.key;
  item.hash = record.key_hash;
  item.raw_bytes = record.raw_bytes;
  item.starts_sample = starts_sample;
  item.kept = true;
  item.encoded = record;
  items_.push_back(item);
}

void EncodingBatch::encode(Encoder& encoder) {
  constexpr std::size_t kNotInArena = ~std::size_t{0};
  std::vector<std::size_t> arena_offsets;
  arena_offsets.reserve(items_.size());
  bool raw_needed = false;
  for (Item& item : items_) {
    if (item.kept) {
      arena_offsets.push_back(kNotInArena);
      continue;
    }
    const ByteView bytes = raw(item);
    const Encoded result = encoder.encode(bytes);
    EncodedRecord& e = item.encoded;
    e.key = item.key;
    e.key_hash = item.hash;
    e.raw_bytes = item.raw_bytes;
    e.codec = result.codec;
    e.stored = result.stored;
    e.stored_crc32c = crc32c(result.stored);
    if (result.codec == Codec::kStored) {
      e.stored = bytes;
      raw_needed = raw_needed || !bytes.empty();
      arena_offsets.push_back(kNotInArena);
    } else {
      arena_offsets.push_back(arena_.size());
      arena_.insert(arena_.end(), result.stored.begin(), result.stored.end());
    }
  }
  for (std::size_t i = 0; i < items_.size(); ++i) {
    EncodedRecord& e = items_[i].encoded;
    if (arena_offsets[i] != kNotInArena)
      e.stored = ByteView(arena_).subspan(arena_offsets[i], e.stored.size());
  }
  if (!raw_needed) raw_ = Buffer();
}

bool DictionaryTrainer::wants_more() const noexcept {
  return options_.mode != CompressionOptions::Mode::kNone && seen_bytes_ < kTrainingLook &&
         samples_.size() < kTrainingSample;
}

void DictionaryTrainer::add(ByteView raw) {
  seen_bytes_ += raw.size() + 64;  // so that empty records end it too
  if (raw.size() < 8 || looks_incompressible(raw)) return;
  const ByteView sample = raw.first(std::min(raw.size(), kMaxTrainingRecordBytes));
  samples_.insert(samples_.end(), sample.begin(), sample.end());
  sample_bytes_.push_back(sample.size());
}

std::optional<Bytes> DictionaryTrainer::train(std::optional<std::uint64_t> total_bytes) const {
  if (sample_bytes_.size() < kMinTrainingRecords || samples_.size() < kMinTrainingBytes)
    return std::nullopt;
  // Measured on sources: more than a 32nd of the data takes more than it gains.
  const std::size_t limit = total_bytes.value_or(seen_bytes_) / 32;
  std::optional<Bytes> trained =
      Dictionary::train(samples_, sample_bytes_, std::min(kMaxDictionary, limit));
  if (!trained) return std::nullopt;

  // A trial on some of the records: the gain, carried over to all bytes, must be well above what
  // the dictionary takes.
  const auto dictionary = std::make_shared<const Dictionary>(*trained, options_.level);
  Encoder with(options_, dictionary);
  Encoder without(options_, nullptr);
  std::uint64_t bytes_with = 0;
  std::uint64_t bytes_without = 0;
  std::uint64_t tried = 0;
  const std::size_t stride = std::max<std::size_t>(1, sample_bytes_.size() / kTrialRecords);
  std::size_t offset = 0;
  for (std::size_t i = 0; i < sample_bytes_.size(); ++i) {
    if (i % stride == 0) {
      const ByteView raw = ByteView(samples_).subspan(offset, sample_bytes_[i]);
      bytes_with += with.encode(raw).stored.size();
      bytes_without += without.encode(raw).stored.size();
      tried += raw.size();
    }
    offset += sample_bytes_[i];
  }
  if (bytes_with >= bytes_without) return std::nullopt;
  const double gain = static_cast<double>(bytes_without - bytes_with) / static_cast<double>(tried);
  const double compressible =
      static_cast<double>(samples_.size()) / static_cast<double>(seen_bytes_);
  const double total = static_cast<double>(total_bytes.value_or(seen_bytes_)) * compressible;
  // The dictionary has seen the records of the trial, so half of the gain is taken for granted.
  if (gain * total / 2 < static_cast<double>(trained->size())) return std::nullopt;
  return trained;
}

}  // namespace sml
