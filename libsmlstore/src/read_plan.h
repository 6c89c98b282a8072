// Which ranges of a block to read for the slots that are wanted of it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sml {

// What reading takes, measured with librados against a cluster on the same machine: another range
// of an operation some 33 us, bytes of one stream 1.5 GB/s. So a gap is read along with its
// neighbours where it is smaller than what passes in that time: 33 us * 1.5 GB/s = 49.5 kB.
constexpr std::uint64_t kLargestGapBytes = 48U << 10;
// Of one operation. A store takes more; but a block must not keep one of its threads for long.
constexpr std::size_t kMaxRangesPerRead = 256;

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  std::uint64_t end() const noexcept { return offset + bytes; }
};

// Ranges, and where in them, laid end to end, the slots begin.
struct ReadPlan {
  std::vector<ByteRange> ranges;
  std::vector<std::uint64_t> positions;  // of the first slots: those that the ranges hold
  std::uint64_t bytes = 0;               // of all ranges
};

// `slots` in ascending order of offset; they may overlap. Slots are read together where the gap
// between them is at most `largest_gap`. At least one slot is planned, and those that would take
// more than kMaxRangesPerRead are left out.
ReadPlan plan_read(std::span<const ByteRange> slots, std::uint64_t largest_gap);

}  // namespace sml
