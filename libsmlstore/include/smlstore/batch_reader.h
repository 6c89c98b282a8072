// Many records at once, as views: what training takes for a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/error.h"
#include "smlformat/frames.h"
#include "smlstore/dataset.h"
#include "smlstore/reader.h"

namespace sml {

struct BatchRecord {
  std::uint64_t number = kNoNumber;  // as asked for; kNoNumber where the key is unknown
  ByteView bytes;                    // empty where there is an error
  std::uint32_t crc32c = 0;          // of `bytes`
  bool immutable = false;            // as RecordPiece::immutable
  const Error* error = nullptr;      // as RecordPiece::error
};

class BatchReaderState;
struct BatchMemory;

// The records of one call of read_batch(), in the order asked for. Valid until the next call with
// it, also when the reader has ended; the data set must outlive it. To be used again: it keeps its
// memory.
class RecordBatch {
 public:
  RecordBatch();
  ~RecordBatch();
  RecordBatch(RecordBatch&&) noexcept;
  RecordBatch& operator=(RecordBatch&&) noexcept;

  std::size_t size() const noexcept { return records_.size(); }
  const BatchRecord& operator[](std::size_t i) const noexcept { return records_[i]; }
  auto begin() const noexcept { return records_.begin(); }
  auto end() const noexcept { return records_.end(); }

 private:
  friend class BatchReaderState;
  std::vector<BatchRecord> records_;
  std::unique_ptr<BatchMemory> memory_;
};

// For one thread; several read from one data set side by side. A record that is stored as it is, in
// a container that is mapped or in a block that is cached, is given where it lies; others are
// decoded, or fetched, into the batch's memory, all of a batch at a time. Every record is verified.
class BatchReader {
 public:
  // The data set must outlive the reader. options.memory_bytes bounds what is fetched at a time,
  // not what a batch holds, which is what its records take.
  explicit BatchReader(const Dataset& dataset, const ReaderOptions& options = {});
  ~BatchReader();

  // An outcome per record: nothing throws but std::bad_alloc.
  void read_batch(std::span<const std::uint64_t> numbers, RecordBatch& out);
  void read_batch(std::span<const std::string_view> keys, RecordBatch& out);

  ReaderStats stats() const noexcept;

 private:
  std::unique_ptr<BatchReaderState> state_;
};

}  // namespace sml
