#include "smlformat/block.h"

#include <algorithm>

#include <fmt/format.h>
#include <zstd.h>

#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {
namespace {

constexpr int kTableLevel = 3;
constexpr std::size_t kSmallestTableToCompress = 64;

// Space that a slot's lengths take in the record table, at most.
constexpr std::uint64_t kTableBytesPerSlot = 8;

// What a slot takes of a record table at most, whoever wrote it: a key and two varints.
constexpr std::uint64_t kMostTableBytesPerSlot = kMaxKeyBytes + 2 * std::uint64_t{10};

Bytes encode_table(const std::vector<EncodedRecord>& records,
                   const std::vector<std::uint32_t>& slot_bytes) {
  Bytes table;
  for (const EncodedRecord& r : records) put_varint(table, r.key.size());
  for (const std::uint32_t bytes : slot_bytes) put_varint(table, bytes);
  for (const EncodedRecord& r : records) {
    const ByteView key = as_bytes(r.key);
    table.insert(table.end(), key.begin(), key.end());
  }
  return table;
}

// Replaces `table` by its compressed form where that is smaller.
Codec compress_table(Bytes& table) {
  if (table.size() < kSmallestTableToCompress) return Codec::kStored;
  Bytes out(ZSTD_compressBound(table.size()));
  const std::size_t bytes =
      ZSTD_compress(out.data(), out.size(), table.data(), table.size(), kTableLevel);
  if (ZSTD_isError(bytes) != 0U || bytes >= table.size()) return Codec::kStored;
  out.resize(bytes);
  table.swap(out);
  return Codec::kZstd;
}

SealedBlock assemble(const Header& container, BlockHeader header,
                     const std::vector<EncodedRecord>& records) {
  SealedBlock block;
  header.tag = container.tag;
  const std::uint32_t align = container.align;
  const auto aligned = [align](std::uint64_t offset) { return round_up(offset, align); };

  // Each slot ends where the next payload's prefix must start; the last one at the end of the
  // block.
  std::vector<std::uint32_t> slot_bytes(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::uint64_t used = SlotPrefix::kBytes + records[i].stored.size();
    const bool last = i + 1 == records.size();
    slot_bytes[i] = static_cast<std::uint32_t>(
        last ? aligned(records[i].stored.size()) + SlotPrefix::kBytes : aligned(used));
  }
  Bytes table = encode_table(records, slot_bytes);
  header.table_raw_bytes = static_cast<std::uint32_t>(table.size());
  header.table_codec = compress_table(table);
  header.table_stored_bytes = static_cast<std::uint32_t>(table.size());
  header.slots = static_cast<std::uint32_t>(records.size());
  header.slots_offset = static_cast<std::uint32_t>(
      aligned(BlockHeader::kBytes + table.size() + SlotPrefix::kBytes) - SlotPrefix::kBytes);
  std::uint64_t end = header.slots_offset;
  for (const std::uint32_t bytes : slot_bytes) end += bytes;
  header.block_bytes = static_cast<std::uint32_t>(end);

  const auto encoded_header = header.encode(table);
  block.bytes.resize(end);
  MutableBytes rest(block.bytes);
  const auto put = [&rest](ByteView bytes) {
    if (!bytes.empty()) std::memcpy(rest.data(), bytes.data(), bytes.size());
    rest = rest.subspan(bytes.size());
  };
  const auto pad = [&rest](std::size_t bytes) {
    std::fill_n(rest.begin(), bytes, std::byte{0});
    rest = rest.subspan(bytes);
  };
  put(encoded_header);
  put(table);
  pad(header.slots_offset - encoded_header.size() - table.size());
  block.slots.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const EncodedRecord& r = records[i];
    SlotPrefix prefix;
    prefix.codec = r.codec;
    prefix.key_hash = r.key_hash;
    prefix.pad_bytes =
        static_cast<std::uint16_t>(slot_bytes[i] - SlotPrefix::kBytes - r.stored.size());
    prefix.crc32c = prefix.checksum(r.stored_crc32c);
    std::byte encoded[SlotPrefix::kBytes];
    prefix.encode(encoded);
    put(encoded);
    put(r.stored);
    pad(prefix.pad_bytes);
    block.slots.push_back({r.key_hash, r.raw_bytes, slot_bytes[i],
                           static_cast<std::uint32_t>(r.stored.size()),
                           r.codec == Codec::kStored && prefix.pad_bytes == 0});
  }
  block.header = header;
  block.crc32c = crc32c(block.bytes);
  block.xxh3 = xxh3_128(block.bytes);
  return block;
}

}  // namespace

std::uint64_t EncodedRecord::cost(std::uint32_t align) const noexcept {
  return round_up(SlotPrefix::kBytes + stored.size(), align) + key.size() + kTableBytesPerSlot;
}

std::uint64_t block_overhead(std::uint32_t align) noexcept {
  return BlockHeader::kBytes + 2 * std::uint64_t{align};
}

SealedBlock build_block(const Header& header, std::uint64_t number, std::uint64_t first_record,
                        const std::vector<EncodedRecord>& records) {
  BlockHeader block;
  block.number = number;
  block.first_record = first_record;
  return assemble(header, block, records);
}

SealedBlock build_piece(const Header& header, std::uint64_t number, std::uint64_t records_before,
                        const EncodedRecord& piece, std::uint64_t record_bytes,
                        std::uint32_t piece_number) {
  BlockHeader block;
  block.number = number;
  block.first_record = records_before;
  block.kind = piece_number == 0 ? BlockKind::kFirstPiece : BlockKind::kNextPiece;
  block.record_bytes = record_bytes;
  block.piece = piece_number;
  SealedBlock sealed = assemble(header, block, {piece});
  sealed.slots[0].raw_bytes = piece_number == 0 ? record_bytes : 0;
  sealed.slots[0].plain = false;
  return sealed;
}

SealedBlock build_dictionary_block(const Header& header, std::uint64_t number,
                                   ByteView dictionary) {
  BlockHeader block;
  block.number = number;
  block.kind = BlockKind::kDictionary;
  EncodedRecord record;
  record.stored = dictionary;
  record.raw_bytes = dictionary.size();
  record.stored_crc32c = crc32c(dictionary);
  return assemble(header, block, {record});
}

BlockTable BlockTable::decode(ByteView block, bool whole) {
  const auto corrupt = [](const char* what) { throw Error(ErrorCode::kCorrupt, what); };
  BlockTable t;
  try {
    t.header_ = BlockHeader::decode(block);
  } catch (const Error& e) {
    // All of the block is here: nothing is still to come, a length is wrong.
    if (e.code() == ErrorCode::kTruncated) corrupt(e.what());
    throw;
  }
  const BlockHeader& h = t.header_;
  if (whole && h.block_bytes > block.size())
    corrupt("block header: the block is larger than its place");

  ByteView table = block.subspan(BlockHeader::kBytes, h.table_stored_bytes);
  Bytes raw;
  if (h.table_codec == Codec::kZstd) {
    // A table of a few bytes may claim any size.
    if (h.table_raw_bytes > h.slots * kMostTableBytesPerSlot)
      corrupt("the record table is too large for its slots");
    raw.resize(h.table_raw_bytes);
    try {
      Decoder::local().decode(Codec::kZstd, table, nullptr, raw);
    } catch (const Error& error) {
      throw error.within("record table");
    }
    table = raw;
  }
  t.key_ends_.reserve(h.slots);
  t.slot_ends_.reserve(h.slots);
  std::uint64_t key_bytes = 0;
  for (std::uint32_t i = 0; i < h.slots; ++i) {
    std::uint64_t bytes = 0;
    if (!get_varint(table, bytes) || bytes > kMaxKeyBytes)
      corrupt("the record table has a bad key length");
    key_bytes += bytes;
    if (key_bytes > kMaxBlockBytes) corrupt("the record table's keys are too long");
    t.key_ends_.push_back(static_cast<std::uint32_t>(key_bytes));
  }
  std::uint64_t end = h.slots_offset;
  for (std::uint32_t i = 0; i < h.slots; ++i) {
    std::uint64_t bytes = 0;
    if (!get_varint(table, bytes) || bytes < SlotPrefix::kBytes || bytes > h.block_bytes - end) {
      corrupt("the record table has a bad slot size");
    }
    end += bytes;
    t.slot_ends_.push_back(static_cast<std::uint32_t>(end));
  }
  if (end != h.block_bytes) corrupt("the slots do not fill the block");
  if (table.size() != key_bytes) corrupt("the record table has a wrong size");
  t.keys_ = as_text(table);
  const bool keys_expected = h.kind != BlockKind::kDictionary;
  for (std::uint32_t i = 0; i < h.slots; ++i) {
    if (keys_expected ? !is_valid_key(t.key(i)) : !t.key(i).empty())
      corrupt("the record table has a bad key");
  }
  return t;
}

void BlockCutter::place(std::span<const std::uint64_t> costs, std::vector<bool>& starts_block) {
  starts_block.assign(costs.size(), false);
  std::uint64_t total = 0;
  for (const std::uint64_t cost : costs) {
    total = cost == kOwnBlocks || total > capacity_ ? capacity_ + 1 : total + cost;
  }
  if (total > capacity_ || total > capacity_ - used_) open_ = false;  // the sample starts a block
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const bool own = costs[i] == kOwnBlocks;
    if (!open_ || own || costs[i] > capacity_ - used_) {
      starts_block[i] = true;
      used_ = 0;
    }
    open_ = !own;
    if (!own) used_ += costs[i];
  }
}

}  // namespace sml
