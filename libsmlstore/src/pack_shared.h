// What packing from lists and from streams shares: the header and the limits on what is in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlformat/layout.h"
#include "smlstore/packer.h"

namespace sml {

// Records that one task reads and encodes together.
inline constexpr std::uint64_t kBatchBytes = 512U << 10;
inline constexpr std::uint64_t kMaxBatchRecords = 4096;

inline Header header_of(const PackOptions& options) {
  Header header;
  header.seed = options.order == PackOrder::kRandom ? options.seed : 0;
  header.block_bytes = options.block_bytes;
  header.align = options.align;
  header.part = options.part;
  header.parts = options.parts;
  header.order = options.order;
  header.grouping = options.grouping;
  header.header_bytes =
      static_cast<std::uint32_t>(round_up(Header::kBytes, std::max(1U, options.align)));
  if (header.block_bytes >= kMinBlockBytes && header.align <= kMaxAlign) {
    header.piece_bytes = piece_bytes_of(header.block_bytes, header.align);
  }
  header.check();
  return header;
}

// What becomes the tag of a container: a hash of its header and of what is known of its records
// when the first block is built. Whatever holds another container as a record has another list, or
// begins otherwise.
class TagHash {
 public:
  explicit TagHash(const Header& header) : state_(xxh3_64(header.encode())) {}

  void add(std::string_view key, std::uint64_t raw_bytes) { mix(key_hash(key), raw_bytes); }
  void add(std::string_view key, ByteView raw) { mix(key_hash(key), xxh3_64(raw)); }
  std::uint32_t tag() const noexcept { return static_cast<std::uint32_t>(state_); }

 private:
  void mix(std::uint64_t a, std::uint64_t b) {
    std::byte bytes[3 * sizeof(std::uint64_t)];
    store(bytes, state_);
    store(bytes + 8, a);
    store(bytes + 16, b);
    state_ = xxh3_64(bytes);
  }

  std::uint64_t state_;
};

inline Error not_interrupted_pack() {
  return Error(ErrorCode::kInvalidArgument,
               "the sources or options are not those of the interrupted pack",
               "to start anew, remove what it left ('sml rm --unsealed' in a data set)");
}

// How much may be under way at once, so that records in flight stay within options.memory_bytes:
// half of it for batches, whose raw and encoded bytes and last record (at most a piece) count, half
// for blocks, each with the records it is built from.
struct InFlight {
  InFlight(const PackOptions& options, const Header& header, unsigned threads)
      : batches(limit(options.memory_bytes / 2, 2 * (kBatchBytes + header.piece_bytes), threads)),
        blocks(limit(options.memory_bytes / 2, 3 * std::uint64_t{header.block_bytes}, threads)) {}

  std::size_t batches;
  std::size_t blocks;

 private:
  static std::size_t limit(std::uint64_t memory, std::uint64_t each, unsigned threads) {
    return static_cast<std::size_t>(
        std::clamp<std::uint64_t>(memory / each, 1, 2 * std::uint64_t{threads}));
  }
};

}  // namespace sml
