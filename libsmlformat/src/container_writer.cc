#include "smlformat/container_writer.h"

#include <stdexcept>

#include <fmt/format.h>

#include "index_builder.h"
#include "smlformat/error.h"

namespace sml {

ContainerWriter::ContainerWriter(ByteSink& sink, const Header& header,
                                 std::pmr::memory_resource* memory)
    : sink_(sink), header_(header), hashes_(memory), places_(memory), raw_sums_(memory) {
  header_.header_bytes = static_cast<std::uint32_t>(round_up(Header::kBytes, header_.align));
  header_.check();
  Bytes bytes(header_.header_bytes);
  const auto encoded = header_.encode();
  std::copy(encoded.begin(), encoded.end(), bytes.begin());
  put(bytes);
}

void ContainerWriter::put(ByteView bytes) {
  sink_.append(bytes);
  offset_ += bytes.size();
}

void ContainerWriter::append(const SealedBlock& block) {
  if (sealed_) throw std::logic_error("append to a sealed container");
  const BlockHeader& h = block.header;
  if (h.number != rows_.size() || h.first_record != hashes_.size()) {
    throw std::logic_error("blocks must be appended in order");
  }
  if (starts_records(h.kind)) {
    if (block.slots.size() > kMaxRecords - hashes_.size()) {
      throw Error(ErrorCode::kLimit,
                  fmt::format("a container holds at most {} records", kMaxRecords),
                  "pack into several containers with --part");
    }
    std::uint64_t place = offset_ + h.slots_offset;
    std::uint64_t raw_sum = raw_sums_.empty() ? 0 : raw_sums_.back();
    for (const SealedBlock::Slot& slot : block.slots) {
      raw_sum += slot.raw_bytes;
      hashes_.push_back(slot.key_hash);
      places_.push_back(place);
      raw_sums_.push_back(raw_sum);
      place += slot.slot_bytes;
    }
  }
  if (h.kind == BlockKind::kDictionary) {
    const auto begin = block.bytes.begin() + h.slots_offset + SlotPrefix::kBytes;
    dictionary_.assign(begin, begin + block.slots[0].stored_bytes);
  } else {
    for (const SealedBlock::Slot& slot : block.slots) {
      stored_bytes_ += slot.stored_bytes;
      all_plain_ = all_plain_ && slot.plain;
    }
  }
  BlockRow row;
  row.first_record = h.first_record;
  row.slots = h.slots;
  row.slots_offset = h.slots_offset;
  row.crc32c = block.crc32c;
  row.kind = h.kind;
  row.xxh3 = block.xxh3;
  rows_.push_back(row);
  block_offsets_.push_back(offset_);
  sink_.append_block(block.bytes, block.crc32c);
  offset_ += block.bytes.size();
}

ContainerSummary ContainerWriter::seal(const NameList& names,
                                       const std::vector<bool>& sample_starts) {
  if (sealed_) throw std::logic_error("sealing a container twice");
  sealed_ = true;
  block_offsets_.push_back(offset_);
  ContainerSummary summary;
  const Bytes footer = build_footer({header_, rows_, block_offsets_, hashes_, places_, raw_sums_,
                                     all_plain_, stored_bytes_, dictionary_, names, sample_starts},
                                    summary.counts);
  sink_.begin_footer();
  put(Bytes(round_up(offset_, kFooterAlign) - offset_));
  Tail tail;
  tail.footer_offset = offset_;
  tail.footer_bytes = footer.size();
  tail.container_bytes = offset_ + footer.size() + Tail::kBytes;
  tail.id = xxh3_128(footer);
  tail.footer_crc32c = crc32c(footer);
  put(footer);
  put(tail.encode());
  summary.id = tail.id;
  summary.container_bytes = offset_;
  return summary;
}

}  // namespace sml
