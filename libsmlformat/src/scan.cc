#include "smlformat/scan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "smlformat/error.h"

namespace sml {
namespace {

constexpr std::uint64_t kWindowBytes = 4U << 20;

// Above the numbers of all blocks that 2^64 bytes can hold.
constexpr std::uint64_t kNumbersEnd =
    std::numeric_limits<std::uint64_t>::max() / BlockHeader::kBytes;

}  // namespace

BlockScan::BlockScan(const ByteSource& source, std::uint64_t begin, std::uint64_t end,
                     std::optional<std::uint32_t> tag)
    : source_(source), end_(std::min(end, source.size())), tag_(tag), at_(std::min(begin, end_)) {}

std::optional<ScannedBlock> BlockScan::next() {
  while ((at_ = find_magic(at_)) < end_) {
    std::optional<ScannedBlock> block = at(at_);
    ++at_;
    if (!block) continue;
    if (!tag_) return block;
    const BlockHeader& header = block->table.header();
    if (header.number < number_ || header.first_record < record_) continue;
    at_ = block->offset + (*block->bytes).size();
    number_ = header.number + 1;
    record_ = header.first_record + (starts_records(header.kind) ? header.slots : 0);
    return block;
  }
  return std::nullopt;
}

// The block at an offset, where one is intact.
std::optional<ScannedBlock> BlockScan::at(std::uint64_t offset) {
  if (end_ - offset < BlockHeader::kBytes) return std::nullopt;
  const auto glance = BlockHeader::glance(window(offset, BlockHeader::kBytes));
  if (!glance || glance->block_bytes < BlockHeader::kBytes ||
      glance->block_bytes > kMaxBlockBytes || glance->front_bytes > glance->block_bytes ||
      glance->front_bytes > end_ - offset || glance->number >= kNumbersEnd ||
      (tag_ && (glance->tag != *tag_ || glance->number < number_))) {
    return std::nullopt;
  }
  ScannedBlock block{
      offset,
      SourceBytes(source_, offset, std::min<std::uint64_t>(glance->block_bytes, end_ - offset)),
      {}};
  try {
    block.table = BlockTable::decode(*block.bytes, false);
  } catch (const Error&) {
    return std::nullopt;
  }
  // No container has as many records; with one more, counting would start again at 0.
  if (block.table.header().first_record > kMaxRecords) return std::nullopt;
  return block;
}

ByteView BlockScan::window(std::uint64_t offset, std::uint64_t bytes) {
  if (offset < window_offset_ || offset + bytes > window_offset_ + (*window_).size()) {
    window_offset_ = offset;
    window_ = SourceBytes(source_, offset, std::min(std::max(bytes, kWindowBytes), end_ - offset));
  }
  return (*window_).subspan(offset - window_offset_, bytes);
}

// Where the next block magic starts, from `from` on; end_ where there is none.
std::uint64_t BlockScan::find_magic(std::uint64_t from) {
  while (end_ - from >= BlockHeader::kBytes) {
    window(from, BlockHeader::kBytes);
    const ByteView rest = (*window_).subspan(from - window_offset_);
    const std::size_t found = as_text(rest).find(kBlockMagic);
    if (found != std::string_view::npos) return from + found;
    from += rest.size() - (kBlockMagic.size() - 1);
  }
  return end_;
}

}  // namespace sml
