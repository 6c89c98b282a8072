#include "smlstore/batch_reader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "cached_blocks.h"
#include "record_fetch.h"
#include "smlformat/key.h"
#include "smlstore/reader.h"

namespace sml {
namespace {

// Where a record lies.
struct InPlace {
  const Dataset::Container* container = nullptr;
  std::uint64_t number = 0;  // in the container
  std::uint64_t block = 0;
  ByteView slot;                        // empty: it is not in place
  const std::byte* block_at = nullptr;  // of the cache, where it lies in one
};

}  // namespace

// What records lie in that are not given in place; and what keeps the others in place.
struct BatchMemory {
  Arena arena;
  std::shared_ptr<const MappingPin> pin;
  std::deque<Error> errors;  // never moved

  void clear() {
    arena.reset();
    pin.reset();
    errors.clear();
  }
};

RecordBatch::RecordBatch() : memory_(std::make_unique<BatchMemory>()) {}
RecordBatch::~RecordBatch() = default;
RecordBatch::RecordBatch(RecordBatch&&) noexcept = default;
RecordBatch& RecordBatch::operator=(RecordBatch&&) noexcept = default;

class BatchReaderState {
 public:
  BatchReaderState(const Dataset& dataset, const ReaderOptions& options)
      : dataset_(dataset), options_(options) {
    for (const Dataset::Container& container : dataset_.containers()) {
      if (container.cached) cached_ = container.cached.get();
    }
  }

  template <class Request>
  void read(std::span<const Request> requests, RecordBatch& out);
  ReaderStats stats() const noexcept;

 private:
  static std::string_view key_in(std::string_view key) noexcept { return key; }
  static std::string_view key_in(std::uint64_t) noexcept { return {}; }
  static std::uint64_t number_in(std::string_view) noexcept { return kNoNumber; }
  static std::uint64_t number_in(std::uint64_t number) noexcept { return number; }
  InPlace locate(std::uint64_t number) const;
  void verify(const InPlace& place, std::string_view key, RecordBatch& out, BatchRecord& record);
  template <class Request>
  void fetch(std::span<const Request> requests, RecordBatch& out);
  void take_fetched(RecordBatch& out);
  void fail(const Error& error, std::string_view key, RecordBatch& out, BatchRecord& record);

  const Dataset& dataset_;
  const ReaderOptions options_;
  CachedBlocks* cached_ = nullptr;  // of any container
  std::vector<InPlace> places_;
  std::vector<std::size_t> far_;  // records of the batch that are not in place
  std::unique_ptr<Reader> reader_;
  ReaderStats stats_;
};

InPlace BatchReaderState::locate(std::uint64_t number) const {
  InPlace at;
  at.container = &dataset_.containers()[dataset_.container_of_record(number)];
  at.number = number - at.container->first_record;
  const ContainerReader& reader = *at.container->reader;
  const Index& index = reader.index();
  const Place place = index.place(at.number);
  if (place.pieces > 1) return at;
  at.block = place.block;
  if (CachedBlocks* const cached = at.container->cached.get()) {
    const std::uint64_t begin = index.block_offset(place.block);
    const std::uint64_t bytes = index.block_offset(place.block + 1) - begin;
    if (const std::byte* const block = cached->find(place.block, bytes)) {
      at.slot = {block + (place.offset - begin), place.slot_bytes};
      at.block_at = block;
    }
  } else {
    at.slot = reader.source().view(place.offset, place.slot_bytes);
  }
  return at;
}

void BatchReaderState::fail(const Error& error, std::string_view key, RecordBatch& out,
                            BatchRecord& record) {
  record.bytes = {};
  record.error =
      &out.memory_->errors.emplace_back(record_error(dataset_, record.number, key, error));
  ++stats_.failed;
}

void BatchReaderState::verify(const InPlace& place, std::string_view key, RecordBatch& out,
                              BatchRecord& record) {
  const ContainerReader& reader = *place.container->reader;
  const VerifiedSlot slot =
      key.empty() ? verify_slot(place.slot) : verify_slot(place.slot, key_hash(key));
  if (slot.codec == Codec::kStored) {
    record.bytes = slot.stored;
    record.crc32c = slot.stored_crc32c;
    record.immutable = true;
  } else {
    const std::uint64_t raw_bytes = whole_record_bytes(reader, place.number);
    const DecodedSlot decoded = decode_slot(reader, slot, raw_bytes, out.memory_->arena);
    record.bytes = decoded.bytes;
    record.crc32c = decoded.crc32c;
  }
  ++stats_.records;
  stats_.bytes += record.bytes.size();
  stats_.stored_bytes += place.slot.size();
  if (place.block_at != nullptr) {
    ++stats_.cache_hits;
    stats_.cache_bytes += place.slot.size();
  }
}

template <class Request>
void BatchReaderState::read(std::span<const Request> requests, RecordBatch& out) {
  if (!out.memory_) out.memory_ = std::make_unique<BatchMemory>();
  out.memory_->clear();
  out.records_.assign(requests.size(), BatchRecord{});
  if (cached_ != nullptr) out.memory_->pin = cached_->pin();
  places_.assign(requests.size(), InPlace{});
  far_.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    BatchRecord& record = out.records_[i];
    try {
      record.number = number_in(requests[i]);
      record.number = find_record(dataset_, requests[i]);
      places_[i] = locate(record.number);
      if (places_[i].slot.empty()) far_.push_back(i);
    } catch (const Error& error) {
      fail(error, key_in(requests[i]), out, record);
    }
  }
  const std::size_t found = far_.size();
  for (std::size_t i = 0; i < std::min(kPrefetchRecords, requests.size()); ++i)
    prefetch_slot(places_[i].slot);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i + kPrefetchRecords < requests.size()) prefetch_slot(places_[i + kPrefetchRecords].slot);
    if (places_[i].slot.empty()) continue;
    BatchRecord& record = out.records_[i];
    try {
      verify(places_[i], key_in(requests[i]), out, record);
    } catch (const Error& error) {
      if (places_[i].block_at == nullptr) {
        fail(error, key_in(requests[i]), out, record);
        continue;
      }
      // What is cached can be had again.
      if (places_[i].container->cached->drop(places_[i].block, places_[i].block_at))
        ++stats_.blocks_damaged;
      far_.push_back(i);
    }
  }
  if (far_.size() > found) std::sort(far_.begin(), far_.end());
  if (!far_.empty()) fetch(requests, out);
}

// Records that are not in place, and those in pieces: into the batch's memory.
template <class Request>
void BatchReaderState::fetch(std::span<const Request> requests, RecordBatch& out) {
  if (!reader_) reader_ = std::make_unique<Reader>(dataset_, options_, false);
  for (const std::size_t i : far_) reader_->request(requests[i]);
  try {
    take_fetched(out);
  } catch (...) {
    // What is left of these requests must not be taken for the next ones.
    stats_ += reader_->stats();
    reader_.reset();
    throw;
  }
}

void BatchReaderState::take_fetched(RecordBatch& out) {
  MutableBytes left;
  RecordPiece piece;
  for (std::size_t at = 0; at < far_.size() && reader_->next(piece);) {
    BatchRecord& record = out.records_[far_[at]];
    if (piece.error != nullptr) {
      record.bytes = {};
      record.error = &out.memory_->errors.emplace_back(*piece.error);
    } else {
      if (piece.offset == 0) {
        left = out.memory_->arena.allocate(piece.record_bytes);
        record.bytes = left;
      }
      if (!piece.bytes.empty()) std::memcpy(left.data(), piece.bytes.data(), piece.bytes.size());
      left = left.subspan(piece.bytes.size());
      record.crc32c = piece.bytes.size() == record.bytes.size() ? piece.crc32c : 0;
    }
    if (!piece.last) continue;
    if (piece.error == nullptr && piece.offset != 0) record.crc32c = crc32c(record.bytes);
    ++at;
  }
  // So that it lets go of the last one.
  reader_->next(piece);
}

ReaderStats BatchReaderState::stats() const noexcept {
  ReaderStats sum = stats_;
  if (reader_) sum += reader_->stats();
  return sum;
}

BatchReader::BatchReader(const Dataset& dataset, const ReaderOptions& options)
    : state_(std::make_unique<BatchReaderState>(dataset, options)) {}
BatchReader::~BatchReader() = default;

void BatchReader::read_batch(std::span<const std::uint64_t> numbers, RecordBatch& out) {
  state_->read(numbers, out);
}
void BatchReader::read_batch(std::span<const std::string_view> keys, RecordBatch& out) {
  state_->read(keys, out);
}
ReaderStats BatchReader::stats() const noexcept { return state_->stats(); }

}  // namespace sml
