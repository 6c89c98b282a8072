#include "read_plan.h"

#include <algorithm>

namespace sml {

ReadPlan plan_read(std::span<const ByteRange> slots, std::uint64_t largest_gap) {
  ReadPlan plan;
  for (const ByteRange& slot : slots) {
    const std::uint64_t end = plan.ranges.empty() ? 0 : plan.ranges.back().end();
    if (plan.ranges.empty() || slot.offset > end + largest_gap) {
      if (plan.ranges.size() == kMaxRangesPerRead) break;
      plan.ranges.push_back({slot.offset, 0});
    }
    ByteRange& range = plan.ranges.back();
    const std::uint64_t grown = std::max(range.end(), slot.end()) - range.end();
    plan.positions.push_back(plan.bytes - range.bytes + (slot.offset - range.offset));
    range.bytes += grown;
    plan.bytes += grown;
  }
  return plan;
}

}  // namespace sml
