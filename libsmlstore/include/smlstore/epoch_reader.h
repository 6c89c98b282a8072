// The batches of an epoch, one rank's, read ahead while the last one is used.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/error.h"
#include "smlstore/dataset.h"
#include "smlstore/order.h"
#include "smlstore/reader.h"

namespace sml {

struct EpochOptions {
  std::uint64_t batch = 1;  // samples; at least 1
  // Of the rank's batches those whose number is `worker` modulo `workers`.
  std::uint64_t worker = 0;
  std::uint64_t workers = 1;
  // memory_bytes: what is read and decoded, and batches that are ready.
  ReaderOptions reader;
};

struct EpochRecord {
  std::uint64_t number = 0;
  std::string_view key;
  ByteView bytes;                // empty where there is an error
  bool immutable = false;        // as RecordPiece::immutable
  const Error* error = nullptr;  // as RecordPiece::error
};

// Stays as it is while it lives, also when its reader has ended; the data set must outlive it.
class EpochBatch {
 public:
  EpochBatch();
  ~EpochBatch();
  EpochBatch(const EpochBatch&) = delete;
  EpochBatch& operator=(const EpochBatch&) = delete;

  std::uint64_t number = 0;    // among the rank's batches
  std::uint64_t position = 0;  // of the global order, when all ranks have taken as many batches
  std::vector<EpochRecord> records;         // sample by sample
  std::vector<std::uint64_t> sample_sizes;  // records of each sample

 private:
  friend class EpochReaderState;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

class EpochReaderState;

// For one thread; it has others of its own.
class EpochReader {
 public:
  // The data set must outlive the reader. `share`: of this order. Throws kInvalidArgument for a
  // batch of 0 and for a worker that is none of `workers`.
  EpochReader(const Dataset& dataset, std::shared_ptr<const Order> order, const Share& share,
              const EpochOptions& options);
  ~EpochReader();

  // Batches that it gives in all.
  std::uint64_t batches() const noexcept;
  // The next one; null behind the last. Waits for it. A record that cannot be given is an error in
  // its batch; throws kUnavailable where the store did not answer in time, and the next call begins
  // with the same batch again.
  std::unique_ptr<EpochBatch> next();
  // Counters of all that was read so far; safe for other threads.
  ReaderStats stats() const;

 private:
  std::unique_ptr<EpochReaderState> state_;
};

}  // namespace sml
