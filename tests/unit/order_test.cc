#include "smlstore/order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "smlformat/permutation.h"
#include "support/containers.h"

namespace {

using sml::Even;
using sml::Order;
using sml::OrderMode;
using sml::OrderOptions;
using sml::Permutation;
using sml::PermutationUse;
using sml::Selection;
using sml::Share;
using sml::ShareOptions;
using Numbers = std::vector<std::uint64_t>;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

OrderOptions block_mode(std::uint64_t seed, std::uint64_t epoch, std::uint32_t lanes) {
  OrderOptions options;
  options.seed = seed;
  options.epoch = epoch;
  options.lanes = lanes;
  return options;
}

OrderOptions full_mode(std::uint64_t seed, std::uint64_t epoch) {
  OrderOptions options;
  options.seed = seed;
  options.epoch = epoch;
  options.mode = OrderMode::kFull;
  return options;
}

std::shared_ptr<const Selection> selection_of(Numbers samples) {
  auto selection = std::make_shared<Selection>();
  selection->samples = std::move(samples);
  return selection;
}

Numbers whole(const Order& order) {
  Numbers out(order.samples());
  order.at(0, 1, out);
  return out;
}

// What a cursor gives, asked for `step` samples at a time.
Numbers read(const Order& order, const ShareOptions& options, std::size_t step) {
  Order::Cursor cursor(order, share_of(order.samples(), options));
  Numbers out;
  Numbers some(step);
  while (const std::size_t count = cursor.next(some))
    out.insert(out.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  return out;
}

bool is_permutation_of(Numbers order, std::uint64_t n) {
  std::sort(order.begin(), order.end());
  Numbers all(n);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  return order == all;
}

// Blocks of uneven sizes that hold n samples.
Numbers uneven_blocks(std::uint64_t n, std::uint64_t mean) {
  Numbers blocks;
  for (std::uint64_t left = n, i = 0; left > 0; ++i) {
    blocks.push_back(std::min(left, 1 + (i * 7919) % (2 * mean)));
    left -= blocks.back();
  }
  return blocks;
}

double inversions(const Numbers& order) {
  Numbers tree(order.size() + 1);
  double count = 0;
  for (std::size_t i = order.size(); i-- > 0;) {
    for (std::size_t j = order[i]; j > 0; j &= j - 1) count += static_cast<double>(tree[j]);
    for (std::size_t j = order[i] + 1; j < tree.size(); j += j & (~j + 1)) ++tree[j];
  }
  return count;
}

double neighbours(const Numbers& order) {
  double count = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    count += order[i] + 1 == order[i - 1] || order[i - 1] + 1 == order[i];
  return count;
}

// Mean number of distinct classes in a batch of 256, where `per_class` samples in name order make a
// class.
double distinct_classes(const Numbers& order, const Permutation& pack, std::uint64_t per_class) {
  constexpr std::size_t kBatch = 256;
  double sum = 0;
  std::size_t batches = 0;
  for (std::size_t at = 0; at + kBatch <= order.size(); at += kBatch, ++batches) {
    std::set<std::uint64_t> classes;
    for (std::size_t i = at; i < at + kBatch; ++i)
      classes.insert(pack.invert(order[i]) / per_class);
    sum += static_cast<double>(classes.size());
  }
  return sum / static_cast<double>(batches);
}

const Numbers kSmallBlocks{5, 4, 1, 6};

}  // namespace

// Values of tests/conformance/sml_order.py.
TEST_CASE("orders equal the vectors of the specification") {
  CHECK(whole(Order(kSmallBlocks, full_mode(1, 2))) ==
        Numbers{9, 12, 14, 11, 0, 8, 3, 13, 2, 5, 7, 15, 6, 10, 4, 1});
  CHECK(whole(Order(kSmallBlocks, block_mode(1, 2, 1))) ==
        Numbers{4, 2, 1, 3, 0, 9, 5, 8, 6, 7, 15, 12, 14, 10, 13, 11});
  CHECK(whole(Order(kSmallBlocks, block_mode(1, 2, 3))) ==
        Numbers{4, 5, 12, 2, 8, 14, 1, 6, 10, 3, 7, 13, 0, 15, 11, 9});
  CHECK(whole(Order(kSmallBlocks, block_mode(1, 2, 64))) ==
        Numbers{4, 2, 1, 3, 0, 9, 5, 8, 6, 7, 15, 12, 14, 10, 13, 11});
  const auto selected = selection_of({1, 2, 3, 8, 12, 15});
  CHECK(whole(Order(kSmallBlocks, full_mode(1, 2), selected)) == Numbers{3, 15, 12, 8, 2, 1});
  CHECK(whole(Order(kSmallBlocks, block_mode(1, 2, 2), selected)) == Numbers{3, 8, 2, 15, 1, 12});

  // Blocks on both sides of every size at which the permutation changes its shape.
  const Numbers blocks{100, 70, 1, 5000, 64, 65, 300};
  const auto some = [](const Numbers& order, std::size_t at, std::size_t count) {
    return Numbers(order.begin() + static_cast<std::ptrdiff_t>(at),
                   order.begin() + static_cast<std::ptrdiff_t>(at + count));
  };
  Numbers order = whole(Order(blocks, block_mode(kMost, 3, 64)));
  CHECK(some(order, 0, 12) ==
        Numbers{104, 890, 4778, 3519, 2595, 2807, 2395, 2412, 3627, 1009, 685, 4514});
  CHECK(some(order, 2800, 6) == Numbers{3646, 4450, 1633, 1818, 287, 3412});
  CHECK(some(order, 5597, 3) == Numbers{1362, 4172, 2489});
  Numbers sevenths;
  for (std::uint64_t i = 3; i < 5600; i += 7) sevenths.push_back(i);
  order = whole(Order(blocks, block_mode(kMost, 3, 10), selection_of(sevenths)));
  CHECK(some(order, 0, 12) ==
        Numbers{5218, 5260, 1375, 1389, 703, 2348, 759, 1858, 5148, 2026, 5225, 5295});
  CHECK(some(order, 400, 6) == Numbers{5421, 2019, 2397, 899, 2677, 5106});
  CHECK(some(order, 797, 3) == Numbers{1130, 3615, 318});
  order = whole(Order(blocks, full_mode(kMost, 3), selection_of(sevenths)));
  CHECK(some(order, 0, 12) ==
        Numbers{381, 577, 1830, 3433, 4784, 157, 2831, 976, 38, 353, 507, 4154});
  CHECK(some(order, 797, 3) == Numbers{3657, 2964, 3846});
}

TEST_CASE("every sample comes once, for many sizes and lanes") {
  for (const std::uint64_t n : Numbers{0, 1, 2, 3, 17, 64, 65, 100, 1000, 5003}) {
    CAPTURE(n);
    CHECK(is_permutation_of(whole(Order(uneven_blocks(n, 9), full_mode(3, 1))), n));
    for (const std::uint32_t lanes : {1U, 2U, 3U, 64U, 100U, 5003U, 0xffffffffU}) {
      CAPTURE(lanes);
      for (const std::uint64_t mean : Numbers{1, 9, 900}) {
        CHECK(is_permutation_of(whole(Order(uneven_blocks(n, mean), block_mode(3, 1, lanes))), n));
      }
    }
  }
  CHECK_THROWS_AS(Order(kSmallBlocks, block_mode(0, 0, 0)), sml::Error);
}

TEST_CASE("the ranks of any world read every sample once, and any way of asking gives the same") {
  const std::uint64_t n = 3001;
  for (const OrderOptions& options :
       {block_mode(7, 2, 64), block_mode(7, 2, 6), block_mode(7, 2, 70000), full_mode(7, 2)}) {
    const Order order(uneven_blocks(n, 20), options);
    const Numbers all = whole(order);
    for (const std::uint64_t world : Numbers{1, 2, 3, 8, 64, 100, 5000}) {
      CAPTURE(world);
      Numbers together(n, kMost);
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        ShareOptions share;
        share.rank = rank;
        share.world = world;
        const Numbers mine = read(order, share, 1 + rank % 97);
        for (std::size_t i = 0; i < mine.size(); ++i) together.at(rank + i * world) = mine[i];
      }
      CHECK(together == all);
    }
    // Single positions, at random strides.
    for (std::uint64_t p = 0; p < n; p += 61) {
      Numbers one(1);
      order.at(p, 1, one);
      CHECK(one[0] == all[p]);
      Numbers strided((n - p - 1) / 250 + 1);
      order.at(p, 250, strided);
      for (std::size_t i = 0; i < strided.size(); ++i) REQUIRE(strided[i] == all[p + i * 250]);
    }
  }
}

TEST_CASE("an order resumed at any position goes on as if it had not stopped") {
  const std::uint64_t n = 1500;
  for (const OrderOptions& options : {block_mode(1, 9, 64), full_mode(1, 9)}) {
    const Order order(uneven_blocks(n, 30), options);
    const Numbers all = whole(order);
    for (std::uint64_t start = 0; start <= n; start += 37) {
      ShareOptions share;
      share.start = start;
      CHECK(read(order, share, 100) ==
            Numbers(all.begin() + static_cast<std::ptrdiff_t>(start), all.end()));
      // In another world, from the same position of the global order.
      Numbers together;
      std::map<std::uint64_t, std::uint64_t> by_position;
      for (std::uint64_t rank = 0; rank < 5; ++rank) {
        share.rank = rank;
        share.world = 5;
        const Share mine = share_of(n, share);
        std::uint64_t p = mine.first;
        for (const std::uint64_t sample : read(order, share, 64)) {
          by_position[p] = sample;
          p += 5;
        }
      }
      for (const auto& [p, sample] : by_position) together.push_back(sample);
      CHECK(together == Numbers(all.begin() + static_cast<std::ptrdiff_t>(start), all.end()));
    }
  }
}

TEST_CASE(
    "with a world that divides the lanes a block is read by one rank, at a lane's border by two") {
  const Numbers blocks(640, 50);
  const Order order(blocks, block_mode(4, 4, 64));
  std::map<std::uint64_t, std::set<std::uint64_t>> readers;
  for (std::uint64_t rank = 0; rank < 8; ++rank) {
    ShareOptions share;
    share.rank = rank;
    share.world = 8;
    for (const std::uint64_t sample : read(order, share, 1000)) readers[sample / 50].insert(rank);
  }
  std::size_t shared = 0;
  for (const auto& [block, ranks] : readers) {
    CHECK(ranks.size() <= 2);
    shared += ranks.size() - 1;
  }
  CHECK(shared <= 63);
}

TEST_CASE("a selection's order holds what is selected, once") {
  const std::uint64_t n = 4000;
  const Numbers blocks = uneven_blocks(n, 40);
  for (const std::uint64_t step : Numbers{1, 2, 13, 1000, 5000}) {
    CAPTURE(step);
    Numbers chosen;
    for (std::uint64_t i = step - 1; i < n; i += step) chosen.push_back(i);
    for (const OrderOptions& options :
         {block_mode(5, 0, 64), block_mode(5, 0, 1), full_mode(5, 0)}) {
      const Order order(blocks, options, selection_of(chosen));
      CHECK(order.samples() == chosen.size());
      Numbers sorted = whole(order);
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == chosen);
    }
  }
  CHECK_THROWS_AS(Order(blocks, {}, selection_of({n})), sml::Error);
  // All samples selected is the order without a selection.
  Numbers all(n);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  CHECK(whole(Order(blocks, block_mode(5, 0, 64), selection_of(all))) ==
        whole(Order(blocks, block_mode(5, 0, 64))));
}

TEST_CASE("seed, epoch, mode and lanes all change the order") {
  const Numbers blocks(100, 10);
  std::set<Numbers> orders;
  for (const OrderOptions& options :
       {block_mode(0, 0, 64), block_mode(1, 0, 64), block_mode(0, 1, 64), block_mode(0, 0, 63),
        full_mode(0, 0), full_mode(1, 0), full_mode(0, 1)}) {
    orders.insert(whole(Order(blocks, options)));
  }
  CHECK(orders.size() == 7);
}

TEST_CASE("all orders of four samples are equally frequent") {
  for (const Numbers& blocks : {Numbers{4}, Numbers{1, 1, 1, 1}}) {
    for (const OrderMode mode : {OrderMode::kBlock, OrderMode::kFull}) {
      std::map<Numbers, double> counts;
      for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
        OrderOptions options;
        options.seed = seed;
        options.mode = mode;
        ++counts[whole(Order(blocks, options))];
      }
      CHECK(counts.size() == 24);
      const double expected = 100'000.0 / 24;
      double chi_square = 0;
      for (const auto& [order, count] : counts)
        chi_square += (count - expected) * (count - expected) / expected;
      // 23 degrees of freedom: above 65.6 with probability 5e-6.
      CHECK(chi_square < 65.6);
    }
  }
}

TEST_CASE("inversions and neighbouring pairs are those of random orders") {
  const std::uint64_t n = 100'000;
  const auto x = static_cast<double>(n);
  const double mean_inversions = x * (x - 1) / 4;
  const double sigma_inversions = std::sqrt(x * (x - 1) * (2 * x + 5) / 72);
  const Numbers blocks(n / 40, 40);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    const Permutation pack(n, {PermutationUse::kPack, seed, 0, 0});
    for (const OrderMode mode : {OrderMode::kBlock, OrderMode::kFull}) {
      OrderOptions options;
      options.seed = seed;
      options.epoch = 3;
      options.mode = mode;
      Numbers order = whole(Order(blocks, options));
      // Block mode relies on the pack order: seen from the names the order must be random.
      if (mode == OrderMode::kBlock) {
        for (std::uint64_t& sample : order) sample = pack.invert(sample);
      }
      CHECK(std::abs(inversions(order) - mean_inversions) < 5 * sigma_inversions);
      // Neighbours that differ by one: 2 on average, with variance 2.
      CHECK(std::abs(neighbours(order) - 2) < 5 * std::sqrt(2.0));
    }
  }
}

TEST_CASE(
    "batches of a class-sorted source packed at random are as mixed in block mode as in full "
    "mode") {
  const std::uint64_t n = 200'000;
  const std::uint64_t per_class = n / 1000;
  for (const std::uint64_t samples_per_block : Numbers{37, 1000}) {
    CAPTURE(samples_per_block);
    Numbers blocks(n / samples_per_block, samples_per_block);
    if (n % samples_per_block != 0) blocks.push_back(n % samples_per_block);
    const Permutation pack(n, {PermutationUse::kPack, 0, 0, 0});
    const double block =
        distinct_classes(whole(Order(blocks, block_mode(0, 0, 64))), pack, per_class);
    const double full = distinct_classes(whole(Order(blocks, full_mode(0, 0))), pack, per_class);
    CHECK(full > 220);
    CHECK(block >= 0.98 * full);
  }
}

TEST_CASE("an order over a data set takes its blocks through all containers") {
  const sml::test::TemporaryDirectory dir;
  // Blocks of 64 KiB with records of 20 KB: three a block. The large record starts in its first
  // piece only.
  const auto container = [](const std::string& prefix, int count, std::size_t large) {
    std::vector<sml::test::Record> records;
    for (int i = 0; i < count; ++i)
      records.push_back({prefix + std::to_string(i), std::string(20'000, 'x')});
    if (large != 0) records.push_back({prefix + "large", std::string(large, 'y')});
    sml::test::ContainerOptions options;
    options.order = sml::PackOrder::kName;
    return build_container(records, options);
  };
  dir.write("a.sml", container("a", 7, 0));
  dir.write("b.sml", container("b", 4, 200'000));
  dir.write("c.sml", container("c", 0, 0));
  const sml::Dataset dataset = sml::Dataset::open(sml::Location{dir.path()});
  REQUIRE(dataset.samples() == 12);
  const Numbers blocks{3, 3, 1, 3, 1, 1};
  for (const OrderOptions& options : {block_mode(2, 3, 2), block_mode(2, 3, 64), full_mode(2, 3)}) {
    CHECK(whole(Order(dataset, options)) == whole(Order(blocks, options)));
    const auto selected = selection_of({0, 5, 7, 11});
    CHECK(whole(Order(dataset, options, selected)) == whole(Order(blocks, options, selected)));
  }
}

// --- shares

TEST_CASE("shares equal those of the specification") {
  // rank, even -> positions; start 3, world 2, batch 2, 16 samples
  const std::map<std::pair<std::uint64_t, Even>, Numbers> expected = {
      {{0, Even::kNone}, {4, 6, 8, 10, 12, 14}},
      {{1, Even::kNone}, {3, 5, 7, 9, 11, 13, 15}},
      {{0, Even::kDrop}, {4, 6, 8, 10, 12, 14}},
      {{1, Even::kDrop}, {3, 5, 7, 9, 11, 13}},
      {{0, Even::kWrap}, {4, 6, 8, 10, 12, 14, 16, 18}},
      {{1, Even::kWrap}, {3, 5, 7, 9, 11, 13, 15, 17}}};
  for (const auto& [key, positions] : expected) {
    ShareOptions options;
    options.rank = key.first;
    options.even = key.second;
    options.world = 2;
    options.batch = 2;
    options.start = 3;
    const Share share = share_of(16, options);
    Numbers got;
    for (std::uint64_t i = 0; i < share.size(); ++i) got.push_back(share.first + i * share.world);
    CHECK(got == positions);
    CHECK(share.dropped == (key.second == Even::kDrop ? 1 : 0));
    CHECK(share.wrapped == (key.second == Even::kWrap ? 3 : 0));
    CHECK(share.next_start == (key.second == Even::kDrop ? 15 : 16));
  }
}

TEST_CASE("wrapped positions hold the samples from the start of the order") {
  for (const OrderOptions& options : {block_mode(1, 1, 64), full_mode(1, 1)}) {
    const Order order(uneven_blocks(100, 7), options);
    const Numbers all = whole(order);
    for (const std::uint64_t world : Numbers{3, 7, 64, 1000}) {
      Numbers positions(world > 100 ? 1000 : (100 + 5 * world - 1) / (5 * world) * 5 * world,
                        kMost);
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        ShareOptions share;
        share.rank = rank;
        share.world = world;
        share.batch = world > 100 ? 1 : 5;
        share.even = Even::kWrap;
        std::uint64_t p = rank;
        for (const std::uint64_t sample : read(order, share, 3)) {
          positions.at(p) = sample;
          p += world;
        }
      }
      for (std::size_t p = 0; p < positions.size(); ++p) REQUIRE(positions[p] == all[p % 100]);
    }
  }
}

TEST_CASE("a count cuts after drop and wrap") {
  ShareOptions options;
  options.world = 4;
  options.even = Even::kDrop;
  options.count = 7;
  Share share = share_of(10, options);
  CHECK(share.end == 7);
  CHECK(share.dropped == 0);  // what is left is for the next range
  CHECK(share.next_start == 7);
  options.count = 9;
  share = share_of(10, options);
  CHECK(share.end == 8);
  CHECK(share.dropped == 1);
  options.count = 100;
  CHECK(share_of(10, options).dropped == 2);
  options.even = Even::kWrap;
  options.count = 11;
  share = share_of(10, options);
  CHECK(share.end == 11);
  CHECK(share.wrapped == 1);
  CHECK(share.next_start == 10);
  options.even = Even::kNone;
  options.count = 0;
  CHECK(share_of(10, options).size() == 0);
}

TEST_CASE("shares of huge worlds, batches and counts are exact or refused") {
  const auto refused = [](std::uint64_t n, const ShareOptions& options) {
    try {
      share_of(n, options);
    } catch (const sml::Error& e) {
      return e.code() == sml::ErrorCode::kInvalidArgument;
    }
    return false;
  };
  ShareOptions options;
  options.world = kMost;
  options.batch = kMost;
  options.even = Even::kDrop;
  CHECK(share_of(10, options).end == 0);
  CHECK(share_of(10, options).dropped == 10);
  CHECK(share_of(10, options).size() == 0);
  options.even = Even::kWrap;
  options.batch = 1;
  CHECK(share_of(10, options).end == kMost);
  CHECK(share_of(10, options).size() == 1);
  options.start = 5;
  CHECK(refused(10, options));
  options.even = Even::kNone;
  options.rank = 3;
  options.count = kMost;
  CHECK(share_of(10, options).size() == 0);
  options.rank = 7;
  CHECK(share_of(10, options).size() == 1);
  CHECK(share_of(10, options).first == 7);
  options.rank = kMost - 1;
  CHECK(share_of(10, options).size() == 0);
  options.rank = kMost;
  CHECK(refused(10, options));
  options = {};
  options.world = 0;
  CHECK(refused(10, options));
  options.world = 1;
  options.start = 11;
  CHECK(refused(10, options));
  options.start = 10;
  CHECK(share_of(10, options).size() == 0);
  options.start = 0;
  options.even = Even::kWrap;
  CHECK(refused(0, options));
  options.even = Even::kDrop;
  CHECK(share_of(0, options).size() == 0);
}
