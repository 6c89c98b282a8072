// Blocks: records laid end to end behind a table of their keys and sizes. See
// format-spec/container.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/codec.h"
#include "smlformat/layout.h"

namespace sml {

// A record ready to be put into a block: what the parallel part of packing produces.
struct EncodedRecord {
  std::string_view key;
  std::uint64_t key_hash = 0;
  std::uint64_t raw_bytes = 0;
  Codec codec = Codec::kStored;
  ByteView stored;
  std::uint32_t stored_crc32c = 0;

  // Bytes that the record adds to a block: the measure by which blocks are cut.
  std::uint64_t cost(std::uint32_t align) const noexcept;
};

// A finished block and what the index needs to know of it.
struct SealedBlock {
  struct Slot {
    std::uint64_t key_hash;
    std::uint64_t raw_bytes;  // of the whole record; further pieces: 0
    std::uint32_t slot_bytes;
    std::uint32_t stored_bytes;
    bool plain;  // stored as it is, without padding: its raw size follows from the slot
  };

  Buffer bytes;
  BlockHeader header;
  std::uint32_t crc32c = 0;
  Hash128 xxh3;
  std::vector<Slot> slots;
};

// Records of one block, in order; at least one; costs sum to at most header.block_bytes -
// block_overhead(header.align). Pure; safe for threads.
SealedBlock build_block(const Header& header, std::uint64_t number, std::uint64_t first_record,
                        const std::vector<EncodedRecord>& records);

// One piece of a record larger than header.piece_bytes. `records_before`: records that start in
// earlier blocks (so, for further pieces, this record included).
SealedBlock build_piece(const Header& header, std::uint64_t number, std::uint64_t records_before,
                        const EncodedRecord& piece, std::uint64_t record_bytes,
                        std::uint32_t piece_number);

SealedBlock build_dictionary_block(const Header& header, std::uint64_t number, ByteView dictionary);

// What a block holds before its first slot, at most, whatever its keys: counted when blocks are
// cut.
std::uint64_t block_overhead(std::uint32_t align) noexcept;

// The record table of a block, decoded and checked against the block's size.
class BlockTable {
 public:
  // `block` is a whole block; with `whole` false one that may be cut anywhere behind its table.
  // Throws kCorrupt, kTruncated.
  static BlockTable decode(ByteView block, bool whole = true);

  const BlockHeader& header() const noexcept { return header_; }
  std::size_t slots() const noexcept { return slot_ends_.size(); }
  // Key of a slot; empty in a dictionary block.
  std::string_view key(std::size_t slot) const noexcept {
    const std::uint32_t begin = slot == 0 ? 0 : key_ends_[slot - 1];
    return std::string_view(keys_).substr(begin, key_ends_[slot] - begin);
  }
  // A slot's range in the block: prefix, stored bytes, padding.
  std::uint32_t slot_begin(std::size_t slot) const noexcept {
    return slot == 0 ? header_.slots_offset : slot_ends_[slot - 1];
  }
  std::uint32_t slot_end(std::size_t slot) const noexcept { return slot_ends_[slot]; }

 private:
  BlockHeader header_;
  std::string keys_;
  std::vector<std::uint32_t> key_ends_;
  std::vector<std::uint32_t> slot_ends_;
};

// Cuts records, in order, into blocks by their cost. Keeps a sample together where it fits a block.
// Pure bookkeeping.
class BlockCutter {
 public:
  BlockCutter(std::uint32_t block_bytes, std::uint32_t align) noexcept
      : capacity_(block_bytes - block_overhead(align)) {}

  // The cost of a record cut into pieces, which takes blocks of its own.
  static constexpr std::uint64_t kOwnBlocks = ~std::uint64_t{0};

  // Places the next sample, whose records have these costs: starts_block[i] is true where record i
  // must start a new block. A sample that fits a block is kept in one; a larger one starts a block.
  void place(std::span<const std::uint64_t> costs, std::vector<bool>& starts_block);

 private:
  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  bool open_ = false;  // a block is under way, and more fits into it
};

}  // namespace sml
