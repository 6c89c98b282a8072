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

// Records that start in a block.
std::uint64_t records_in(const BlockHeader& header) noexcept {
  return header.kind == BlockKind::kRecords || header.kind == BlockKind::kFirstPiece ? header.slots
                                                                                     : 0;
}

}  // namespace

BlockScan::BlockScan(const ByteSource& source, std::uint64_t begin, std::uint64_t end,
                     std::uint32_t block_bytes)
    : source_(source),
      end_(std::min(end, source.size())),
      block_bytes_(block_bytes),
      at_(std::min(begin, end_)) {}

std::optional<ScannedBlock> BlockScan::next() {
  std::optional<ScannedBlock> block = at(at_);
  if (!block || block->table.header().number != number_ ||
      block->table.header().first_record != record_) {
    block = search();
  }
  if (!block) return std::nullopt;
  const BlockHeader& header = block->table.header();
  at_ = block->offset + header.block_bytes;
  number_ = header.number + 1;
  record_ = header.first_record + records_in(header);
  return block;
}

// The block at an offset, where one is intact.
std::optional<ScannedBlock> BlockScan::at(std::uint64_t offset) const {
  if (offset > end_ || end_ - offset < BlockHeader::kBytes) return std::nullopt;
  const SourceBytes front(source_, offset, BlockHeader::kBytes);
  const std::uint32_t bytes = BlockHeader::unchecked_block_bytes(*front);
  if (bytes < BlockHeader::kBytes || bytes > block_bytes_ || bytes > end_ - offset)
    return std::nullopt;
  ScannedBlock block{offset, SourceBytes(source_, offset, bytes), {}};
  try {
    block.table = BlockTable::decode(*block.bytes);
  } catch (const Error&) {
    return std::nullopt;
  }
  // No container has as many blocks or records; with one more, counting would start again at 0.
  const BlockHeader& header = block.table.header();
  if (header.number >= kNumbersEnd || header.first_record > kMaxRecords) return std::nullopt;
  return block;
}

bool BlockScan::may_follow(const ScannedBlock& block) const noexcept {
  const BlockHeader& header = block.table.header();
  return header.number >= number_ && header.first_record >= record_;
}

std::optional<ScannedBlock> BlockScan::search() {
  std::optional<ScannedBlock> best;
  std::uint64_t best_reach = 0;
  std::uint64_t last = end_;  // candidates beyond could only follow the first one
  for (std::uint64_t offset = find_magic(at_); offset < last; offset = find_magic(offset + 1)) {
    std::optional<ScannedBlock> candidate = at(offset);
    if (!candidate || !may_follow(*candidate)) continue;
    if (!best) last = std::min(end_, offset + block_bytes_);
    const std::uint64_t candidate_reach = reach(*candidate, last);
    if (candidate_reach > best_reach) {
      best = std::move(candidate);
      best_reach = candidate_reach;
    }
    if (best_reach >= last) break;  // no record is as large
  }
  return best;
}

// Where the next block magic starts; end_ where there is none.
std::uint64_t BlockScan::find_magic(std::uint64_t from) const {
  while (from < end_ && end_ - from >= BlockHeader::kBytes) {
    const std::uint64_t bytes = std::min(kWindowBytes, end_ - from);
    const SourceBytes window(source_, from, bytes);
    const std::size_t found = as_text(*window).find(kBlockMagic);
    if (found != std::string_view::npos) return from + found;
    from += bytes - std::min<std::uint64_t>(bytes - 1, kBlockMagic.size() - 1);
  }
  return end_;
}

// Where the last of the blocks ends that follow each other without a gap from `block` on, at least
// as far as `limit`.
std::uint64_t BlockScan::reach(const ScannedBlock& block, std::uint64_t limit) const {
  BlockHeader last = block.table.header();
  std::uint64_t end = block.offset + last.block_bytes;
  while (end < limit) {
    const std::optional<ScannedBlock> next = at(end);
    if (!next) break;
    const BlockHeader& header = next->table.header();
    if (header.number != last.number + 1 ||
        header.first_record != last.first_record + records_in(last)) {
      break;
    }
    last = header;
    end += last.block_bytes;
  }
  return end;
}

}  // namespace sml
