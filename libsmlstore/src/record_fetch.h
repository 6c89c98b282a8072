// Finds, reads, verifies and decodes records: the part of reading that runs in parallel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/error.h"
#include "smlstore/dataset.h"

namespace sml {

// Memory that is given back all at once and used again.
class Arena {
 public:
  MutableBytes allocate(std::size_t bytes);
  void reset() noexcept;
  std::size_t used() const noexcept { return used_; }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  std::vector<Chunk> chunks_;
  std::size_t offset_ = 0;  // in the last chunk
  std::size_t used_ = 0;
};

struct RecordRequest {
  std::uint64_t number = 0;
  std::string key;
  bool by_key = false;  // the record is meant by `key`, else by `number`
};

struct FetchedRecord {
  std::uint64_t number = 0;
  std::string key;  // of the request, or looked up
  std::uint64_t record_bytes = 0;
  ByteView bytes;
  std::uint32_t crc32c = 0;
  bool immutable = false;
  std::uint64_t pieces = 1;  // more than 1: nothing is fetched yet, see fetch_piece()
  std::uint64_t slot_bytes = 0;
  std::optional<Error> error;
};

// Fetches `requests` in order until all are done or more than `most_bytes` are held in `arena`;
// returns how many are done, at least one. Whatever goes wrong with a record is its `error`.
// Neighbours in a container that is not mapped are read together.
std::size_t fetch_records(const Dataset& dataset, std::span<const RecordRequest> requests,
                          bool with_keys, std::size_t most_bytes, Arena& arena,
                          std::span<FetchedRecord> out);

// One piece of a record with several. Throws.
struct FetchedPiece {
  ByteView bytes;
  std::uint32_t crc32c = 0;
  bool immutable = false;
  std::uint64_t stored_bytes = 0;
  std::shared_ptr<Arena> arena;  // holds the bytes, unless they are mapped
};
FetchedPiece fetch_piece(const Dataset& dataset, std::uint64_t number, std::uint64_t piece);

// `error` as an outcome of a record: names it, and where it (or this piece of it) is, as far as
// known.
Error record_error(const Dataset& dataset, std::uint64_t number, std::string_view key,
                   const Error& error, std::uint64_t piece = 0);

}  // namespace sml
