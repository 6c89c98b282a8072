// Records in the order asked for: looked ahead, verified and decoded in parallel, within a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "smlformat/error.h"
#include "smlstore/dataset.h"

namespace sml {

struct ReaderOptions {
  // In flight and decoded together; mapped files not counted. The default holds the 64 blocks of 4
  // MiB that block mode reads from at a time, whole, and some that come next.
  std::uint64_t memory_bytes = 384U << 20;
  unsigned threads = 0;  // 0: one per processor
  // Check a record in pieces as a whole before its first piece is given, so that a damaged one
  // gives no bytes at all. Reads it twice.
  bool whole_records = false;
  // Called now and then from next() while it waits for storage.
  std::function<void()> while_waiting;
};

struct ReaderStats {
  std::uint64_t records = 0;       // given whole
  std::uint64_t bytes = 0;         // raw bytes given
  std::uint64_t stored_bytes = 0;  // read from containers
  std::uint64_t failed = 0;

  // How containers that are not mapped are read; 0 where all are.
  std::uint64_t operations = 0;      // reads of one block each, with one range or several
  std::uint64_t ranges = 0;          // of all operations
  std::uint64_t read_bytes = 0;      // asked for by operations, gaps between records included
  std::uint64_t most_in_flight = 0;  // operations under way at a time
  std::uint64_t waited_ns = 0;       // that next() waited for storage and workers
  std::uint64_t in_flight = 0;       // operations under way now
  std::uint64_t oldest_ns = 0;       // how long the oldest of them has been

  // Of records in containers whose blocks are cached; each piece of a large one counts. A record is
  // a hit where its block was in the cache, or another process fetched it, when it was looked for.
  std::uint64_t cache_hits = 0;
  std::uint64_t cache_misses = 0;
  std::uint64_t cache_bytes = 0;     // stored bytes given from cached blocks
  std::uint64_t blocks_kept = 0;     // fetched into the cache
  std::uint64_t blocks_damaged = 0;  // dropped from it

  // Of two readers together.
  ReaderStats& operator+=(const ReaderStats& other) noexcept;
};

// A record, or one piece of a large one, as it comes out of a reader.
struct RecordPiece {
  std::uint64_t number = 0;  // kNoNumber where the key is unknown
  std::string_view key;      // always set for requests by key; for others where keys were asked for
  std::uint64_t record_bytes = 0;  // of the whole record
  std::uint64_t offset = 0;        // of these bytes in it
  ByteView bytes;
  std::uint32_t crc32c = 0;  // of `bytes`
  bool last = true;          // no more pieces of this request
  bool immutable =
      false;  // the bytes lie in a mapped container file and never change (vmsplice is safe)
  // What keeps immutable bytes in place when they are wanted longer than until the next call; null
  // where the data set does.
  std::shared_ptr<const void> kept;
  const Error* error = nullptr;  // the record cannot be given (kNotFound, kAmbiguous, kCorrupt,
                                 // ...): bytes are empty and last is true
};

class ReaderState;

// For one thread (its workers are its own). Use: request() as far as wants_more(), next() for the
// result; results come in the order of requests.
class Reader {
 public:
  // with_keys: fill in RecordPiece::key for requests by number. The data set must outlive the
  // reader.
  Reader(const Dataset& dataset, const ReaderOptions& options, bool with_keys);
  ~Reader();

  // A record by number (kNotFound as its outcome where number >= records()) or by key.
  void request(std::uint64_t number);
  void request(std::string_view key);
  // Of a record, the pieces that hold bytes from `offset` on, at most so many, and at least one
  // piece: they come whole, with more around it. A record in one piece comes all.
  void request_range(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes);

  // Whether the look-ahead has room: asking for more now helps speed. Always true when nothing is
  // pending.
  bool wants_more() const noexcept;
  // Requests whose last piece has not been given.
  std::uint64_t pending() const noexcept;

  // The next pieces: as many as are there, at least one, at most pieces.size() (not 0); how many,
  // 0 where nothing is pending. Waits for storage where the first one is not there, never for
  // requests. They are valid until the next call; one with an error is the last of a call.
  std::size_t next(std::span<RecordPiece> pieces);
  bool next(RecordPiece& piece) { return next(std::span(&piece, 1)) > 0; }

  ReaderStats stats() const noexcept;

 private:
  std::unique_ptr<ReaderState> state_;
};

}  // namespace sml
