#include "../../libsmlstore/src/read_plan.h"

#include <vector>

#include <doctest/doctest.h>

namespace {

using sml::ByteRange;
using sml::plan_read;
using sml::ReadPlan;
using Ranges = std::vector<std::vector<std::uint64_t>>;  // offset, bytes
using Positions = std::vector<std::uint64_t>;

Ranges ranges_of(const ReadPlan& plan) {
  Ranges ranges;
  std::uint64_t bytes = 0;
  for (const ByteRange& range : plan.ranges) {
    ranges.push_back({range.offset, range.bytes});
    bytes += range.bytes;
  }
  CHECK(plan.bytes == bytes);
  return ranges;
}

}  // namespace

TEST_CASE("slots side by side are one range") {
  const std::vector<ByteRange> slots = {{1000, 16}, {1016, 100}, {1116, 50}};
  const ReadPlan plan = plan_read(slots, 0);
  CHECK(ranges_of(plan) == Ranges{{1000, 166}});
  CHECK(plan.positions == Positions{0, 16, 116});
}

TEST_CASE("a gap is read along up to the largest one, and not above") {
  // The gaps have 10 and 11 bytes.
  const std::vector<ByteRange> slots = {{1000, 20}, {1030, 20}, {1061, 20}};
  const ReadPlan plan = plan_read(slots, 10);
  CHECK(ranges_of(plan) == Ranges{{1000, 50}, {1061, 20}});
  CHECK(plan.positions == Positions{0, 30, 50});
  CHECK(ranges_of(plan_read(slots, 9)) == Ranges{{1000, 20}, {1030, 20}, {1061, 20}});
  CHECK(ranges_of(plan_read(slots, 11)) == Ranges{{1000, 81}});
}

TEST_CASE("a slot that is wanted twice is read once") {
  const std::vector<ByteRange> slots = {{1000, 20}, {1000, 20}, {1020, 30}, {1020, 30}, {5000, 1}};
  const ReadPlan plan = plan_read(slots, 0);
  CHECK(ranges_of(plan) == Ranges{{1000, 50}, {5000, 1}});
  CHECK(plan.positions == Positions{0, 0, 20, 20, 50});
}

TEST_CASE("slots that overlap, as a forged index may give them, are each read whole") {
  const std::vector<ByteRange> slots = {{1000, 100}, {1010, 20}, {1050, 100}};
  const ReadPlan plan = plan_read(slots, 0);
  CHECK(ranges_of(plan) == Ranges{{1000, 150}});
  CHECK(plan.positions == Positions{0, 10, 50});
}

TEST_CASE("most of a block is read as one range, a few records of it as their own") {
  // Slots of 4 KiB in a block of 4 MiB.
  std::vector<ByteRange> slots;
  for (std::uint64_t i = 0; i < 1024; i += 13) slots.push_back({i << 12, 4096});
  // 12 slots between two: 48 KiB.
  CHECK(ranges_of(plan_read(slots, sml::kLargestGapBytes)) == Ranges{{0, (1014 << 12) + 4096}});
  slots.clear();
  for (std::uint64_t i = 0; i < 1024; i += 14) slots.push_back({i << 12, 4096});
  CHECK(plan_read(slots, sml::kLargestGapBytes).ranges.size() == 74);
  CHECK(plan_read(slots, sml::kLargestGapBytes).bytes == 74 * 4096);
}

TEST_CASE("an operation has so many ranges at most; the slots behind are left out") {
  std::vector<ByteRange> slots;
  for (std::uint64_t i = 0; i < 300; ++i) {
    slots.push_back({i * 100, 10});
    slots.push_back({i * 100 + 10, 10});
  }
  const ReadPlan plan = plan_read(slots, 0);
  CHECK(plan.ranges.size() == sml::kMaxRangesPerRead);
  CHECK(plan.positions.size() == 2 * sml::kMaxRangesPerRead);
  CHECK(plan.bytes == 20 * sml::kMaxRangesPerRead);
}
