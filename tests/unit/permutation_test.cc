#include "smlformat/permutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

namespace {

using sml::Permutation;
using sml::PermutationKey;
using sml::PermutationUse;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

struct Vector {
  std::uint64_t n;
  PermutationUse use;
  std::uint64_t seed, epoch, index;
  std::vector<std::uint64_t> first;
  std::uint64_t last;
  std::uint64_t inverse_of_0;
};

// The table of format-spec/order.md, computed by tests/conformance/sml_order.py.
const std::vector<Vector> kVectors = {
    {1, PermutationUse::kPack, 0, 0, 0, {0}, 0, 0},
    {2, PermutationUse::kEpoch, 0, 0, 0, {1, 0}, 0, 1},
    {3, PermutationUse::kEpoch, 0, 0, 0, {2, 0, 1}, 1, 1},
    {4, PermutationUse::kEpoch, 0, 0, 0, {3, 2, 0, 1}, 1, 2},
    {4, PermutationUse::kEpoch, 1, 0, 0, {2, 3, 1, 0}, 0, 3},
    {4, PermutationUse::kEpoch, 0, 1, 0, {0, 1, 3, 2}, 2, 0},
    {10, PermutationUse::kPack, 0, 0, 0, {6, 0, 5, 9, 4, 3, 1, 7, 8, 2}, 2, 1},
    {10, PermutationUse::kEpoch, 0, 0, 0, {6, 1, 3, 7, 9, 8, 5, 2, 0, 4}, 4, 8},
    {10, PermutationUse::kBlocks, 0, 0, 0, {4, 8, 5, 0, 2, 1, 9, 6, 3, 7}, 7, 3},
    {10, PermutationUse::kBlock, 0, 0, 0, {6, 9, 5, 7, 4, 0, 2, 1, 8, 3}, 3, 5},
    {10, PermutationUse::kBlock, 0, 0, 1, {6, 0, 3, 5, 2, 9, 1, 8, 4, 7}, 7, 1},
    {64, PermutationUse::kEpoch, 42, 7, 0, {40, 36, 35, 38, 46, 6, 61, 10, 47, 14}, 51, 14},
    {65, PermutationUse::kEpoch, 42, 7, 0, {27, 33, 43, 22, 38, 51, 55, 49, 14, 48}, 37, 12},
    {1000,
     PermutationUse::kEpoch,
     0,
     0,
     0,
     {930, 873, 416, 419, 972, 155, 70, 396, 876, 813},
     508,
     722},
    {1000,
     PermutationUse::kBlock,
     42,
     7,
     123456,
     {398, 315, 634, 929, 879, 193, 917, 463, 955, 347},
     723,
     730},
    {4096,
     PermutationUse::kEpoch,
     42,
     7,
     0,
     {3174, 1604, 1726, 1790, 4003, 2631, 404, 1770, 2541, 441},
     2335,
     985},
    {4097,
     PermutationUse::kEpoch,
     42,
     7,
     0,
     {1473, 1050, 330, 864, 3306, 265, 383, 2843, 2327, 1274},
     2564,
     856},
    {10000000,
     PermutationUse::kEpoch,
     0,
     0,
     0,
     {1140788, 2620695, 1069959, 9934120, 4178350, 7040786, 7007896, 5030091, 9625881, 3655613},
     5027193,
     4057176},
    {10000000,
     PermutationUse::kPack,
     kMax,
     0,
     0,
     {8733852, 5578374, 2540650, 6747869, 7236439, 3011184, 8293379, 8289634, 9760883, 5650352},
     8554774,
     7084203},
    {1099511627776,
     PermutationUse::kEpoch,
     42,
     7,
     0,
     {192841501885, 478060988836, 717983882976, 871455705686, 818533229123, 547828377336,
      355433072200, 942895180712, 199719383447, 109911306335},
     375847971586,
     150218246578},
    {9223372036854775808U,
     PermutationUse::kEpoch,
     42,
     7,
     0,
     {6157209269944037709, 5954271114419742611, 2262280812033484546, 3382466370111572384,
      7571807324489873229, 4512989115134191919, 1890457240669098352, 4917537025798615717,
      2342676007973339536, 7739170430660406185},
     1331878161309956762,
     2285723893766410893},
};

std::vector<std::uint64_t> whole(std::uint64_t n, const PermutationKey& key) {
  std::vector<std::uint64_t> order(n);
  Permutation(n, key).apply(0, order);
  return order;
}

double inversions(const std::vector<std::uint64_t>& order) {
  std::vector<std::uint32_t> tree(order.size() + 1);
  double count = 0;
  for (std::size_t i = order.size(); i-- > 0;) {
    for (std::size_t j = order[i]; j > 0; j &= j - 1) count += tree[j];
    for (std::size_t j = order[i] + 1; j < tree.size(); j += j & -j) ++tree[j];
  }
  return count;
}

// How many neighbours in `order` differ by one.
double neighbours(const std::vector<std::uint64_t>& order) {
  double count = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    count += order[i] + 1 == order[i - 1] || order[i - 1] + 1 == order[i];
  }
  return count;
}

}  // namespace

TEST_CASE("the vectors of the specification") {
  for (const Vector& v : kVectors) {
    CAPTURE(v.n);
    CAPTURE(v.seed);
    const Permutation p(v.n, {v.use, v.seed, v.epoch, v.index});
    CHECK(p.size() == v.n);
    std::vector<std::uint64_t> first(v.first.size());
    p.apply(0, first);
    CHECK(first == v.first);
    for (std::uint64_t i = 0; i < v.first.size(); ++i) {
      CHECK(p.apply(i) == v.first[i]);
      CHECK(p.invert(v.first[i]) == i);
    }
    CHECK(p.apply(v.n - 1) == v.last);
    CHECK(p.invert(v.last) == v.n - 1);
    CHECK(p.invert(0) == v.inverse_of_0);
    CHECK(p.apply(v.inverse_of_0) == 0);
  }
}

TEST_CASE("every position once, the inverse and the span agree, for many sizes") {
  std::vector<std::uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 0U);
  for (const std::uint64_t n :
       {511U, 512U, 513U, 1024U, 2049U, 4095U, 4096U, 4097U, 8191U, 65536U, 65537U}) {
    sizes.push_back(n);
  }
  for (const std::uint64_t n : sizes) {
    CAPTURE(n);
    const Permutation p(n, {PermutationUse::kBlocks, 11, 5, 0});
    std::vector<std::uint64_t> order(n);
    p.apply(0, order);
    std::vector<bool> seen(n);
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      REQUIRE(order[i] < n);
      wrong += seen[order[i]] || p.apply(i) != order[i] || p.invert(order[i]) != i;
      seen[order[i]] = true;
    }
    CHECK(wrong == 0);
    if (n > 5) {
      std::vector<std::uint64_t> part(n - 5);
      p.apply(3, part);
      CHECK(std::equal(part.begin(), part.end(), order.begin() + 3));
    }
  }
}

TEST_CASE("huge sizes keep within bounds and invert") {
  for (const std::uint64_t n : {(1ULL << 32) - 1, 1ULL << 32, (1ULL << 32) + 1, (1ULL << 62) + 1,
                                (1ULL << 63) - 1, 1ULL << 63}) {
    CAPTURE(n);
    const Permutation p(n, {PermutationUse::kEpoch, kMax, kMax, 0});
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t position = i * (n / 1000) + (i & 1 ? n % 1000 : 0);
      const std::uint64_t value = p.apply(position);
      REQUIRE(value < n);
      REQUIRE(p.invert(value) == position);
    }
  }
}

TEST_CASE("all orders of a few are equally frequent over 100,000 seeds") {
  std::uint64_t orders = 1;
  for (std::uint64_t n = 2; n <= 8; ++n) {
    orders *= n;
    CAPTURE(n);
    std::map<std::vector<std::uint64_t>, double> counts;
    constexpr int kSeeds = 100000;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      ++counts[whole(n, {PermutationUse::kEpoch, seed, 0, 0})];
    }
    const double expected = kSeeds / static_cast<double>(orders);
    // Orders that never came up contribute `expected` each.
    double chi_square = expected * static_cast<double>(orders - counts.size());
    for (const auto& [order, count] : counts) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    const double freedom = static_cast<double>(orders - 1);
    CHECK(std::abs(chi_square - freedom) < 5 * std::sqrt(2 * freedom));
    if (n <= 6) CHECK(counts.size() == orders);
  }
}

TEST_CASE("inversions and neighbouring pairs of 100,000 are those of a random order") {
  constexpr double kSize = 100000;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const auto order = whole(100000, {PermutationUse::kEpoch, seed, 0, 0});
    const double mean = kSize * (kSize - 1) / 4;
    const double deviation = std::sqrt(kSize * (kSize - 1) * (2 * kSize + 5) / 72);
    CHECK(std::abs(inversions(order) - mean) < 5 * deviation);
    CHECK(std::abs(neighbours(order) - 2) < 5 * std::sqrt(2.0));
  }
}

TEST_CASE("neighbouring pairs over many seeds, where each number of rounds is weakest") {
  for (const std::uint64_t n : {64U, 65U, 129U, 257U, 4097U}) {
    CAPTURE(n);
    const auto seeds = 4000000 / n;
    double count = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      count += neighbours(whole(n, {PermutationUse::kBlock, 1, 1, seed}));
    }
    const double mean =
        2.0 * static_cast<double>(n - 1) / static_cast<double>(n) * static_cast<double>(seeds);
    CHECK(std::abs(count - mean) < 5 * std::sqrt(mean));
  }
}

TEST_CASE("keys that differ in one word by one give unrelated orders") {
  constexpr std::uint64_t kSize = 100000;
  const PermutationKey key{PermutationUse::kBlock, 5, 6, 7};
  const auto order = whole(kSize, key);
  std::vector<std::uint64_t> place(kSize);
  for (std::uint64_t i = 0; i < kSize; ++i) place[order[i]] = i;
  for (const PermutationKey& other : {PermutationKey{PermutationUse::kBlocks, 5, 6, 7},
                                      PermutationKey{PermutationUse::kBlock, 6, 6, 7},
                                      PermutationKey{PermutationUse::kBlock, 5, 7, 7},
                                      PermutationKey{PermutationUse::kBlock, 5, 6, 8},
                                      PermutationKey{PermutationUse::kBlock, 6, 5, 7},
                                      PermutationKey{PermutationUse::kBlock, 5, 5, 8}}) {
    auto second = whole(kSize, other);
    double same = 0;
    for (std::uint64_t i = 0; i < kSize; ++i) same += order[i] == second[i];
    CHECK(same <= 6);  // one on average
    for (auto& value : second) value = place[value];
    CHECK(neighbours(second) < 2 + 5 * std::sqrt(2.0));
  }
}
