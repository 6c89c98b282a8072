// Finds, verifies and decodes records: the part of reading that runs in parallel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/error.h"
#include "smlformat/frames.h"
#include "smlstore/dataset.h"

namespace sml {

// Memory that is given back all at once and used again.
class Arena {
 public:
  // chunk_bytes: what is taken from the system at a time, at least.
  explicit Arena(std::size_t chunk_bytes = 512U << 10) : chunk_bytes_(chunk_bytes) {}
  MutableBytes allocate(std::size_t bytes);
  void reset() noexcept;
  std::size_t used() const noexcept { return used_; }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  std::size_t chunk_bytes_;
  std::vector<Chunk> chunks_;
  std::size_t offset_ = 0;  // in the last chunk
  std::size_t used_ = 0;
};

struct RecordRequest {
  std::uint64_t number = 0;
  std::string key;
  bool by_key = false;  // the record is meant by `key`, else by `number`
  // What is wanted of it: its pieces with these bytes, and one in any case.
  std::uint64_t offset = 0;
  std::uint64_t bytes = kNoNumber;
};

// Where a record is.
struct LocatedRecord {
  const Dataset::Container* container = nullptr;
  std::uint64_t number = 0;  // in the container
  std::uint64_t record_bytes = 0;
  Place place;
};

// The number of the record meant. Throws kNotFound where there is none, and what Dataset::find()
// throws.
std::uint64_t find_record(const Dataset& dataset, std::string_view key);
std::uint64_t find_record(const Dataset& dataset, std::uint64_t number);
std::uint64_t find_record(const Dataset& dataset, const RecordRequest& request);
// Whether records of a container are given in place, from a mapping of all of it.
bool is_mapped(const ContainerReader& reader);
// The size of a record that is in one piece; `number` in the container. Throws kCorrupt where it is
// out of range.
std::uint64_t whole_record_bytes(const ContainerReader& reader, std::uint64_t number);
// Throws kCorrupt where the index contradicts itself.
LocatedRecord locate_record(const Dataset& dataset, std::uint64_t number);

// Records that lie in place and are soon verified: the processor is told of so many ahead, since it
// would wait for the memory of each, and of so much of it; the rest it foresees by itself.
inline constexpr std::size_t kPrefetchRecords = 4;
inline void prefetch_slot(ByteView slot) noexcept {
  constexpr std::size_t kBytes = 512;
  constexpr std::size_t kCacheLine = 64;
  const std::size_t end = slot.size() < kBytes ? slot.size() : kBytes;
  for (std::size_t i = 0; i < end; i += kCacheLine) __builtin_prefetch(slot.data() + i);
}

// A slot's record: where it lies if it is stored as it is, else decoded into the arena.
struct DecodedSlot {
  ByteView bytes;
  std::uint32_t crc32c = 0;
  bool in_place = false;
};
DecodedSlot decode_slot(const ContainerReader& reader, const VerifiedSlot& slot,
                        std::uint64_t raw_bytes, Arena& arena);

// The pieces that a request wants, [first, end), of a record with that many.
struct PieceRange {
  std::uint64_t first = 0;
  std::uint64_t end = 1;
};
PieceRange wanted_pieces(const RecordRequest& request, std::uint64_t pieces,
                         std::uint64_t piece_bytes) noexcept;

// One piece of a record with several, from its block.
struct PiecePlace {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;  // of the block, in the container
  std::uint64_t block_bytes = 0;
  std::uint64_t raw_bytes = 0;
};
// Throws kCorrupt where the record has not as many pieces as its size takes.
PiecePlace place_piece(const LocatedRecord& record, std::uint64_t piece);

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

// Fetches `requests`, from containers that are mapped, in order until all are done or more than
// `most_bytes` are held in `arena`; returns how many are done, at least one. Whatever goes wrong
// with a record is its `error`.
std::size_t fetch_records(const Dataset& dataset, std::span<const RecordRequest> requests,
                          bool with_keys, std::size_t most_bytes, Arena& arena,
                          std::span<FetchedRecord> out);

// One piece of a record with several, from a container that is mapped. Throws.
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
