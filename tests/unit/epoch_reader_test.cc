#include "smlstore/epoch_reader.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/bytes.h"
#include "smlformat/error.h"
#include "smlstore/order.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/readers.h"

namespace {

using sml::Dataset;
using sml::DatasetOptions;
using sml::EpochBatch;
using sml::EpochOptions;
using sml::EpochReader;
using sml::ErrorCode;
using sml::Even;
using sml::Grouping;
using sml::Location;
using sml::Order;
using sml::OrderMode;
using sml::OrderOptions;
using sml::Share;
using sml::ShareOptions;
using sml::test::build_container;
using sml::test::compressed;
using sml::test::ContainerOptions;
using sml::test::Record;
using sml::test::some_records;
using sml::test::TemporaryDirectory;

struct Opened {
  TemporaryDirectory directory;
  std::map<std::string, std::string> contents;
  std::unique_ptr<const Dataset> dataset;

  Opened(const std::vector<Record>& records, const ContainerOptions& options, bool mapped) {
    for (const Record& record : records) contents[record.key] = record.content;
    const std::string path = directory.write("data.sml", build_container(records, options));
    DatasetOptions opening;
    opening.mapped = mapped;
    dataset = std::make_unique<const Dataset>(Dataset::open(Location{path}, opening));
  }

  std::shared_ptr<const Order> order(OrderMode mode, std::uint64_t seed) const {
    OrderOptions options;
    options.mode = mode;
    options.seed = seed;
    options.lanes = 3;
    return std::make_shared<const Order>(*dataset, options);
  }
};

// The samples of an epoch, checked against the packed bytes; batch numbers and positions against
// their definition.
std::vector<std::uint64_t> samples_of(const Opened& opened,
                                      const std::shared_ptr<const Order>& order,
                                      const ShareOptions& part, const EpochOptions& options) {
  const Share share = share_of(order->samples(), part);
  EpochReader reader(*opened.dataset, order, share, options);
  std::vector<std::uint64_t> samples;
  std::uint64_t batches = 0;
  std::unique_ptr<EpochBatch> before;  // stays as it is
  for (; std::unique_ptr<EpochBatch> batch = reader.next(); ++batches) {
    CHECK(batch->number == options.worker + batches * options.workers);
    const std::uint64_t taken = (batch->number + 1) * options.batch * part.world;
    CHECK(batch->position == std::min({part.start + taken, share.end, order->samples()}));
    std::size_t next = 0;
    for (const std::uint64_t size : batch->sample_sizes) {
      const std::uint64_t sample = opened.dataset->sample_of(batch->records.at(next).number);
      CHECK(opened.dataset->sample(sample).first == batch->records[next].number);
      CHECK(opened.dataset->sample(sample).size() == size);
      samples.push_back(sample);
      next += size;
    }
    CHECK(next == batch->records.size());
    before = std::move(batch);
    for (const auto& record : before->records) {
      REQUIRE(record.error == nullptr);
      CHECK(sml::as_text(record.bytes) == opened.contents.at(std::string(record.key)));
    }
  }
  CHECK(reader.next() == nullptr);
  CHECK(batches == reader.batches());
  return samples;
}

std::vector<std::uint64_t> positions_of(const Order& order, const ShareOptions& part) {
  const Share share = share_of(order.samples(), part);
  std::vector<std::uint64_t> out;
  for (std::uint64_t p = share.first; p < share.end; p += part.world) {
    std::uint64_t sample = 0;
    order.at(p % order.samples(), 1, std::span(&sample, 1));
    out.push_back(sample);
  }
  return out;
}

}  // namespace

TEST_CASE("an epoch gives the samples of its share, batch by batch") {
  ContainerOptions grouped;
  grouped.grouping = Grouping::kStem;
  std::vector<Record> pairs;
  for (const Record& record : some_records(90, 2000)) {
    pairs.push_back({record.key + ".img", record.content});
    pairs.push_back({record.key + ".txt", "label of " + record.key});
  }
  for (const bool mapped : {true, false}) {
    const Opened plain(some_records(211, 3000), compressed(), mapped);
    const Opened samples(pairs, grouped, mapped);
    for (const Opened* opened : {&plain, &samples}) {
      for (const OrderMode mode : {OrderMode::kBlock, OrderMode::kFull}) {
        const auto order = opened->order(mode, 5);
        for (const Even even : {Even::kNone, Even::kDrop, Even::kWrap}) {
          for (const std::uint64_t world : {1, 4}) {
            ShareOptions part;
            part.world = world;
            part.rank = world - 1;
            part.batch = 7;
            part.even = even;
            part.start = 10 * world;
            EpochOptions options;
            options.batch = 7;
            options.reader.threads = mapped ? 1 : 3;
            options.reader.memory_bytes = even == Even::kDrop ? 1U << 16 : 64U << 20;
            CHECK(samples_of(*opened, order, part, options) == positions_of(*order, part));
          }
        }
      }
    }
  }
}

TEST_CASE("workers share the batches of a rank") {
  const Opened opened(some_records(100, 500), ContainerOptions(), true);
  const auto order = opened.order(OrderMode::kFull, 1);
  ShareOptions part;
  part.batch = 8;
  const std::vector<std::uint64_t> all = positions_of(*order, part);
  for (const std::uint64_t workers : {1, 2, 5, 13, 20}) {
    std::map<std::uint64_t, std::vector<std::uint64_t>> of_batch;
    for (std::uint64_t worker = 0; worker < workers; ++worker) {
      EpochOptions options;
      options.batch = 8;
      options.worker = worker;
      options.workers = workers;
      const std::vector<std::uint64_t> given = samples_of(opened, order, part, options);
      for (std::size_t i = 0; i < given.size(); ++i)
        of_batch[worker + i / 8 * workers].push_back(given[i]);
    }
    std::vector<std::uint64_t> together;
    for (const auto& [batch, samples] : of_batch)
      together.insert(together.end(), samples.begin(), samples.end());
    CHECK(together == all);
  }
}

TEST_CASE("a batch outlives its reader, and an epoch need not be read to its end") {
  for (const bool mapped : {true, false}) {
    const Opened opened(some_records(300, 4000), compressed(), mapped);
    std::unique_ptr<EpochBatch> batch;
    {
      EpochOptions options;
      options.batch = 20;
      EpochReader reader(*opened.dataset, opened.order(OrderMode::kBlock, 2),
                         share_of(300, ShareOptions()), options);
      batch = reader.next();
      const EpochReader never_read(*opened.dataset, opened.order(OrderMode::kBlock, 2),
                                   share_of(300, ShareOptions()), options);
      CHECK(never_read.batches() == 15);
    }
    REQUIRE(batch != nullptr);
    CHECK(batch->records.size() == 20);
    for (const auto& record : batch->records)
      CHECK(sml::as_text(record.bytes) == opened.contents.at(std::string(record.key)));
  }
}

TEST_CASE("a damaged record is an error in its batch; the batches stay") {
  for (const bool mapped : {true, false}) {
    const TemporaryDirectory directory;
    const std::vector<Record> records = some_records(60, 3000);
    sml::Bytes bytes = build_container(records);
    // Its content is nowhere else.
    const std::string& hit = records[17].content;
    const std::size_t at = sml::as_text(bytes).find(hit);
    REQUIRE(at != std::string_view::npos);
    bytes[at + hit.size() / 2] ^= std::byte{1};
    const std::string path = directory.write("data.sml", bytes);
    DatasetOptions opening;
    opening.mapped = mapped;
    const Dataset dataset = Dataset::open(Location{path}, opening);
    EpochOptions options;
    options.batch = 9;
    EpochReader reader(dataset, std::make_shared<const Order>(dataset, OrderOptions()),
                       share_of(60, ShareOptions()), options);
    CHECK(reader.batches() == 7);
    std::size_t batches = 0;
    std::set<std::string> failed;
    std::set<std::string> given;
    for (; const auto batch = reader.next(); ++batches) {
      for (const auto& record : batch->records) {
        if (record.error != nullptr) {
          CHECK(record.error->code() == ErrorCode::kCorrupt);
          CHECK(record.bytes.empty());
          failed.insert(std::string(record.key));
        } else {
          given.insert(std::string(record.key));
        }
      }
    }
    CHECK(batches == 7);
    CHECK(failed == std::set<std::string>{records[17].key});
    CHECK(given.size() == 59);
  }
}

TEST_CASE("what is no epoch is refused") {
  const Opened opened(some_records(3, 10), ContainerOptions(), true);
  const auto order = opened.order(OrderMode::kFull, 1);
  const Share share = share_of(3, ShareOptions());
  const auto check = [&](std::uint64_t batch, std::uint64_t worker, std::uint64_t workers,
                         const std::string& part) {
    EpochOptions options;
    options.batch = batch;
    options.worker = worker;
    options.workers = workers;
    sml::test::check_error(ErrorCode::kInvalidArgument, part, [&] {
      const EpochReader reader(*opened.dataset, order, share, options);
    });
  };
  check(0, 0, 1, "batches of 0");
  check(1, 1, 1, "worker 1 of 1");
  check(1, 0, 0, "worker 0 of 0");
}
