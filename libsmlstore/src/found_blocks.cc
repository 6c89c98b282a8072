#include "found_blocks.h"

#include <utility>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "verify_block.h"

namespace sml {
namespace {

std::vector<FoundBlock::Slot> slots_of(const BlockTable& table) {
  std::vector<FoundBlock::Slot> slots(table.slots());
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i] = {std::string(table.key(i)), table.slot_begin(i), table.slot_end(i)};
  return slots;
}

bool zero_paddings(ByteView block, const BlockTable& table) {
  const BlockHeader& h = table.header();
  if (h.block_bytes > block.size()) return false;  // cut short
  const std::uint64_t table_end = BlockHeader::kBytes + h.table_stored_bytes;
  if (!all_zero(block.subspan(table_end, h.slots_offset - table_end))) return false;
  for (std::size_t i = 0; i < table.slots(); ++i) {
    const ByteView slot =
        block.subspan(table.slot_begin(i), table.slot_end(i) - table.slot_begin(i));
    const std::size_t pad = SlotPrefix::decode(slot.data()).pad_bytes;
    if (pad > slot.size() || !all_zero(slot.last(pad))) return false;
  }
  return true;
}

class IndexedBlocks final : public FoundBlocks {
 public:
  IndexedBlocks(const ContainerReader& reader,
                std::function<std::string(std::uint64_t offset)> why_missing)
      : reader_(reader), index_(reader.index()), why_missing_(std::move(why_missing)) {}

  std::optional<FoundBlock> next() override {
    if (number_ == index_.blocks()) return std::nullopt;
    const BlockRow row = index_.block(number_);
    FoundBlock block;
    block.offset = index_.block_offset(number_);
    const std::uint64_t bytes = index_.block_offset(number_ + 1) - block.offset;
    block.bytes = std::make_shared<const SourceBytes>(reader_.source(), block.offset, bytes);
    if (crc32c(**block.bytes) == row.crc32c && xxh3_128(**block.bytes) == row.xxh3) {
      try {
        const BlockTable table = BlockTable::decode(**block.bytes);
        block.header = table.header();
        block.slots = slots_of(table);
        block.framed = block.header.number == number_ && block.header.kind == row.kind &&
                       block.header.first_record == row.first_record &&
                       block.header.tag == reader_.header().tag &&
                       zero_paddings(**block.bytes, table) && block.header.slots == row.slots;
      } catch (const Error&) {
        block.framed = false;  // written so
      }
    }
    if (!block.framed) {
      describe_by_index(row, block);
      block.unreadable = why_missing_(block.offset);
    }
    ++number_;
    return block;
  }

 private:
  void describe_by_index(const BlockRow& row, FoundBlock& block) {
    block.header = {};
    block.header.number = number_;
    block.header.first_record = row.first_record;
    block.header.kind = row.kind;
    block.header.slots = row.slots;
    const std::uint64_t size = (**block.bytes).size();
    block.header.block_bytes = static_cast<std::uint32_t>(size);
    block.slots.assign(row.slots, {});
    for (std::uint32_t i = 0; i < row.slots; ++i) {
      FoundBlock::Slot& slot = block.slots[i];
      try {
        switch (row.kind) {
          case BlockKind::kDictionary:
            slot = {{}, row.slots_offset, size};
            break;
          case BlockKind::kRecords: {
            index_.key_of(row.first_record + i, slot.key);
            const Place place = index_.place(row.first_record + i);
            slot.begin = place.offset - block.offset;
            slot.end = slot.begin + place.slot_bytes;
            break;
          }
          case BlockKind::kFirstPiece:
          case BlockKind::kNextPiece: {
            const std::uint64_t record =
                row.kind == BlockKind::kFirstPiece ? row.first_record : row.first_record - 1;
            index_.key_of(record, slot.key);
            block.header.record_bytes = index_.raw_bytes(record);
            block.header.piece = static_cast<std::uint32_t>(number_ - index_.place(record).block);
            slot.begin = row.slots_offset;
            slot.end = size;
            break;
          }
        }
      } catch (const Error&) {
        slot.begin = slot.end = 0;
      }
    }
  }

  const ContainerReader& reader_;
  const Index& index_;
  std::function<std::string(std::uint64_t offset)> why_missing_;
  std::uint64_t number_ = 0;
};

class ScannedBlocks final : public FoundBlocks {
 public:
  ScannedBlocks(const ByteSource& source, std::uint64_t begin, std::uint64_t end, std::uint32_t tag)
      : scan_(source, begin, end, tag) {}

  std::optional<FoundBlock> next() override {
    std::optional<ScannedBlock> scanned = scan_.next();
    if (!scanned) return std::nullopt;
    FoundBlock block;
    block.header = scanned->table.header();
    block.offset = scanned->offset;
    block.slots = slots_of(scanned->table);
    block.framed = zero_paddings(*scanned->bytes, scanned->table);
    block.bytes = std::make_shared<const SourceBytes>(std::move(scanned->bytes));
    return block;
  }

 private:
  BlockScan scan_;
};

}  // namespace

std::unique_ptr<FoundBlocks> blocks_by_index(
    const ContainerReader& reader, std::function<std::string(std::uint64_t offset)> why_missing) {
  return std::make_unique<IndexedBlocks>(reader, std::move(why_missing));
}

std::unique_ptr<FoundBlocks> blocks_by_scan(const ByteSource& source, std::uint64_t begin,
                                            std::uint64_t end, std::uint32_t tag) {
  return std::make_unique<ScannedBlocks>(source, begin, end, tag);
}

}  // namespace sml
