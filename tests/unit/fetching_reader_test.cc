// Reading containers that are far away.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "smlformat/frames.h"
#include "smlstore/reader.h"
#include "support/containers.h"
#include "support/readers.h"

namespace {

using sml::ByteSource;
using sml::ContainerReader;
using sml::Dataset;
using sml::Error;
using sml::ErrorCode;
using sml::MemorySource;
using sml::MutableBytes;
using sml::Reader;
using sml::ReaderOptions;
using sml::ReadRange;
using sml::RecordPiece;
using sml::test::build_container;
using sml::test::compressed;
using sml::test::ContainerOptions;
using sml::test::content_of;
using sml::test::Given;
using sml::test::read_all;
using sml::test::Record;
using sml::test::some_records;
using sml::test::take;

// What far sources were asked for, all together.
struct Traffic {
  std::uint64_t operations = 0;
  std::uint64_t ranges = 0;
  std::uint64_t bytes = 0;
  std::uint64_t in_flight = 0;
  std::uint64_t most_in_flight = 0;
  std::uint64_t live_bytes = 0;  // of operations in flight
  std::uint64_t most_live_bytes = 0;
};

// A store with a thread of its own, which carries out operations in an order drawn from a seed.
class Store {
 public:
  explicit Store(std::uint64_t seed = 1) : random_(seed), thread_([this] { serve(); }) {}
  ~Store() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Carries out the first operation only when so many are there.
  void hold_until(std::size_t operations) { hold_until_ = operations; }

  void submit(std::uint64_t ranges, std::uint64_t bytes, std::function<void()> operation) {
    const std::lock_guard lock(mutex_);
    ++traffic_.operations;
    traffic_.ranges += ranges;
    traffic_.bytes += bytes;
    traffic_.most_in_flight = std::max(traffic_.most_in_flight, ++traffic_.in_flight);
    traffic_.live_bytes += bytes;
    traffic_.most_live_bytes = std::max(traffic_.most_live_bytes, traffic_.live_bytes);
    waiting_.push_back({bytes, std::move(operation)});
    changed_.notify_all();
  }
  Traffic traffic() const {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }

 private:
  struct Waiting {
    std::uint64_t bytes;
    std::function<void()> operation;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(
          lock, [this] { return stop_ || (!waiting_.empty() && waiting_.size() >= hold_until_); });
      if (waiting_.empty()) return;
      hold_until_ = 0;
      std::swap(waiting_[random_() % waiting_.size()], waiting_.back());
      const Waiting next = std::move(waiting_.back());
      waiting_.pop_back();
      // Over before the callback: another one may be started from then on.
      --traffic_.in_flight;
      traffic_.live_bytes -= next.bytes;
      lock.unlock();
      next.operation();
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting> waiting_;
  std::size_t hold_until_ = 0;
  bool stop_ = false;
  Traffic traffic_;
  std::mt19937_64 random_;
  std::thread thread_;
};

class FarSource final : public ByteSource {
 public:
  FarSource(Store& store, sml::Bytes bytes) : store_(store), bytes_(std::move(bytes)) {}

  // Operations with bytes from `begin` to `end` fail.
  void fail(std::uint64_t begin, std::uint64_t end) { failing_.push_back({begin, end}); }
  void damage(std::uint64_t offset) { bytes_[offset] ^= std::byte{0x20}; }

  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, MutableBytes out) const override {
    for (const auto& range : failing_) {
      if (offset < range.second && range.first < offset + out.size()) {
        throw Error(ErrorCode::kIo, "the disk is broken");
      }
    }
    MemorySource(bytes_).read(offset, out);
  }
  void start_read(std::span<const ReadRange> ranges,
                  std::function<void(std::exception_ptr)> done) const override {
    std::uint64_t bytes = 0;
    for (const ReadRange& range : ranges) bytes += range.out.size();
    store_.submit(ranges.size(), bytes,
                  [this, done = std::move(done),
                   copy = std::vector<ReadRange>(ranges.begin(), ranges.end())] {
                    std::exception_ptr error;
                    try {
                      for (const ReadRange& range : copy) read(range.offset, range.out);
                    } catch (...) {
                      error = std::current_exception();
                    }
                    done(error);
                  });
  }

 private:
  Store& store_;
  sml::Bytes bytes_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> failing_;
};

// The same containers, mapped and far away.
struct FarDataset {
  FarDataset(Store& store, const std::vector<sml::Bytes>& containers) : bytes(containers) {
    std::vector<Dataset::Container> near_containers;
    std::vector<Dataset::Container> far_containers;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      Dataset::Container container;
      container.name = container.path = "c" + std::to_string(i);
      container.reader =
          std::make_shared<const ContainerReader>(std::make_shared<MemorySource>(bytes[i]));
      near_containers.push_back(container);
      sources.push_back(std::make_shared<FarSource>(store, bytes[i]));
      container.reader = std::make_shared<const ContainerReader>(sources.back());
      far_containers.push_back(container);
    }
    near = Dataset::from(std::move(near_containers));
    far = Dataset::from(std::move(far_containers));
  }

  const sml::Index& index(std::size_t container = 0) const {
    return far.containers()[container].reader->index();
  }

  std::vector<sml::Bytes> bytes;
  std::vector<std::shared_ptr<FarSource>> sources;
  Dataset near;
  Dataset far;
};

ContainerOptions in_input_order(std::uint32_t block_bytes = sml::kMinBlockBytes) {
  ContainerOptions options;
  options.order = sml::PackOrder::kInput;
  options.block_bytes = block_bytes;
  return options;
}

// Records whose slots take `bytes`, prefix included.
std::vector<Record> equal_records(std::size_t count, std::size_t bytes) {
  std::vector<Record> records;
  for (std::size_t i = 0; i < count; ++i) {
    records.push_back({"k" + std::to_string(i), content_of(i, bytes - sml::SlotPrefix::kBytes)});
  }
  return records;
}

void check_same(const Given& far, const Given& near) {
  CHECK(far.number == near.number);
  CHECK(far.key == near.key);
  CHECK(far.content == near.content);
  CHECK(far.pieces == near.pieces);
  CHECK(far.error == near.error);
  CHECK(far.message == near.message);
}

}  // namespace

TEST_CASE("what is far away comes as what is mapped does: bytes, keys, errors, order") {
  // Compressed with a dictionary, stored, in pieces, empty.
  std::vector<sml::Bytes> containers;
  std::vector<std::string> keys;
  for (std::size_t c = 0; c < 3; ++c) {
    std::vector<Record> records;
    for (std::size_t i = 0; i < 150; ++i) {
      const std::size_t bytes = i % 50 == 7 ? 90'000 + 1000 * i : i % 9 == 0 ? 0 : (i * 131) % 4000;
      records.push_back({"c" + std::to_string(c) + "/" + std::to_string(i), content_of(i, bytes)});
      keys.push_back(records.back().key);
    }
    ContainerOptions options = c == 0 ? ContainerOptions{} : compressed();
    options.piece_bytes = 40'000;
    if (c == 2) options.dictionary = content_of(1, 4000);
    containers.push_back(build_container(records, options));
  }
  Store store;
  const FarDataset dataset(store, containers);
  const std::uint64_t count = dataset.far.records();
  for (const unsigned threads : {1U, 4U}) {
    for (const std::uint64_t memory : {0ULL, 1000ULL, 200'000ULL, 2'000'000ULL, 256'000'000ULL}) {
      for (const bool whole : {false, true}) {
        CAPTURE(threads);
        CAPTURE(memory);
        CAPTURE(whole);
        ReaderOptions options;
        options.threads = threads;
        options.memory_bytes = memory;
        options.whole_records = whole;
        Reader far(dataset.far, options, whole);
        Reader near(dataset.near, options, whole);
        std::mt19937_64 random(memory + threads);
        read_all(
            far, 700,
            [&](std::size_t) {
              const std::uint64_t drawn = random() % 20;
              const std::string key = drawn == 0 ? "no/such" : keys[random() % keys.size()];
              // Some beyond the last.
              const std::uint64_t number = drawn == 1 ? sml::kNoNumber : random() % (count + 3);
              for (Reader* reader : {&far, &near}) {
                drawn % 2 == 0 ? reader->request(key) : reader->request(number);
              }
            },
            [&](std::size_t, const Given& given) {
              Given expected;
              REQUIRE(take(near, expected));
              check_same(given, expected);
            });
        CHECK(far.stats().records == near.stats().records);
        CHECK(far.stats().bytes == near.stats().bytes);
        CHECK(far.stats().stored_bytes == near.stats().stored_bytes);
        CHECK(far.stats().failed == near.stats().failed);
      }
    }
  }
}

TEST_CASE("what is in flight keeps to the budget, or is one record") {
  Store empty_store;
  const std::vector<Record> records = some_records(2000, 1000);
  for (const bool compress : {false, true}) {
    const sml::Bytes container =
        build_container(records, compress ? compressed() : ContainerOptions{});
    for (const std::uint64_t memory : {0U, 3000U, 20'000U, 100'000U, 1'000'000U, 10'000'000U}) {
      Store store;
      const FarDataset dataset(store, {container});
      ReaderOptions options;
      options.threads = 3;
      options.memory_bytes = memory;
      Reader reader(dataset.far, options, false);
      std::mt19937_64 random(1);
      read_all(
          reader, 3000, [&](std::size_t) { reader.request(random() % 2000); },
          [&](std::size_t, const Given& given) { CHECK_FALSE(given.error); });
      CHECK(store.traffic().most_live_bytes <= std::max<std::uint64_t>(memory, 2016));
    }
  }
}

TEST_CASE("in the order of the container every block is read once, as one range") {
  // 63 slots of 1024 bytes in a block of 64 KiB, whose table takes less than the rest.
  const std::vector<Record> records = equal_records(630, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order())});
  REQUIRE(dataset.index().blocks() == 10);
  Reader reader(dataset.far, {}, false);
  read_all(
      reader, 630, [&](std::size_t i) { reader.request(i); },
      [&](std::size_t i, const Given& given) { CHECK(given.content == records[i].content); });
  CHECK(store.traffic().operations == 10);
  CHECK(store.traffic().ranges == 10);
  CHECK(store.traffic().bytes == 630 * 1024);
  const sml::ReaderStats stats = reader.stats();
  CHECK(stats.operations == 10);
  CHECK(stats.ranges == 10);
  CHECK(stats.read_bytes == 630 * 1024);
  CHECK(stats.stored_bytes == 630 * 1024);
}

TEST_CASE("blocks that are read side by side are each read once where the window holds them") {
  const std::vector<Record> records = equal_records(630, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order())});
  Reader reader(dataset.far, {}, false);
  // One record of each block in turn.
  read_all(
      reader, 630, [&](std::size_t i) { reader.request(i % 10 * 63 + i / 10); },
      [&](std::size_t, const Given& given) { CHECK_FALSE(given.error); });
  CHECK(store.traffic().operations == 10);
  CHECK(store.traffic().bytes == 630 * 1024);
}

TEST_CASE("a group is what the window holds of a block") {
  const std::vector<Record> records = equal_records(630, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order())});
  Reader reader(dataset.far, {}, false);
  Given given;
  // Of two blocks by turns, eight at a time, all of which are given before the next eight.
  for (std::uint64_t i = 0; i < 40; i += 8) {
    for (std::uint64_t n = i; n < i + 8; ++n) reader.request(n % 2 * 63 + n / 2);
    for (std::uint64_t n = i; n < i + 8; ++n) REQUIRE(take(reader, given));
    CHECK(store.traffic().operations == i / 8 * 2 + 2);
    CHECK(store.traffic().bytes == (i + 8) * 1024);
  }
}

TEST_CASE("records are fetched when they come near the front of the window") {
  // A block for each record. Of the budget seven eighths are for the window: a slot takes 50,016
  // bytes, and 320 beside it, so that it holds 14 of them. A seventh of it begins with the third.
  const std::vector<Record> records = equal_records(40, 50'016);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order())});
  REQUIRE(dataset.index().blocks() == 40);
  ReaderOptions options;
  options.memory_bytes = 50'400 * 16;
  Reader reader(dataset.far, options, false);
  std::uint64_t requested = 0;
  while (reader.wants_more()) reader.request(requested++);
  CHECK(requested == 15);  // the last one waits for room
  CHECK(store.traffic().operations == 0);
  Given given;
  REQUIRE(take(reader, given));
  CHECK(store.traffic().operations == 3);
}

TEST_CASE("small gaps between records are read along, large ones are not") {
  const std::vector<Record> records = equal_records(900, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order(1U << 20))});
  REQUIRE(dataset.index().blocks() == 1);
  Reader reader(dataset.far, {}, false);
  // 48 slots between the first two, 49 before the third.
  for (const std::uint64_t n : {149U, 50U, 99U}) reader.request(n);
  Given given;
  for (const std::uint64_t n : {149U, 50U, 99U}) {
    REQUIRE(take(reader, given));
    CHECK(given.content == records[n].content);
  }
  CHECK(store.traffic().operations == 1);
  CHECK(store.traffic().ranges == 2);
  CHECK(store.traffic().bytes == 50 * 1024 + 1024);
}

TEST_CASE("gaps are not read where there is no memory for them") {
  const std::vector<Record> records = equal_records(900, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order(1U << 20))});
  ReaderOptions options;
  options.memory_bytes = 30'000;
  Reader reader(dataset.far, options, false);
  for (std::uint64_t n = 0; n < 400; n += 40) reader.request(n);
  Given given;
  for (std::uint64_t n = 0; n < 400; n += 40) {
    REQUIRE(take(reader, given));
    CHECK(given.content == records[n].content);
  }
  CHECK(store.traffic().ranges == 10);
  CHECK(store.traffic().bytes == 10 * 1024);
}

TEST_CASE("more ranges than an operation may have are read by several") {
  // Every 50th slot of a large block.
  const std::vector<Record> records = equal_records(15'000, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order(16U << 20))});
  REQUIRE(dataset.index().blocks() == 1);
  Reader reader(dataset.far, {}, false);
  for (std::uint64_t n = 0; n < 15'000; n += 50) reader.request(n);
  Given given;
  for (std::uint64_t n = 0; n < 15'000; n += 50) {
    REQUIRE(take(reader, given));
    CHECK(given.content == records[n].content);
  }
  CHECK(store.traffic().operations == 2);
  CHECK(store.traffic().ranges == 300);
  CHECK(store.traffic().bytes == 300 * 1024);
}

TEST_CASE("32 operations are in flight, and never more") {
  const std::vector<Record> records = equal_records(100, 50'016);
  for (const unsigned threads : {1U, 3U}) {
    Store store;
    const FarDataset dataset(store, {build_container(records, in_input_order())});
    store.hold_until(32);  // for ever, if fewer came
    ReaderOptions options;
    options.threads = threads;
    Reader reader(dataset.far, options, false);
    read_all(
        reader, 100, [&](std::size_t i) { reader.request(i); },
        [&](std::size_t i, const Given& given) { CHECK(given.content == records[i].content); });
    CHECK(store.traffic().operations == 100);
    CHECK(store.traffic().most_in_flight == 32);
    CHECK(reader.stats().most_in_flight == 32);
  }
}

TEST_CASE("who asks for one key and reads one record never waits for ever") {
  const std::vector<Record> records = some_records(100, 500);
  for (const unsigned threads : {1U, 2U}) {
    Store store;
    const FarDataset dataset(store, {build_container(records, compressed())});
    ReaderOptions options;
    options.threads = threads;
    Reader reader(dataset.far, options, false);
    Given given;
    for (const Record& r : records) {
      CHECK(reader.wants_more());
      reader.request(r.key);
      REQUIRE(take(reader, given));
      CHECK(given.content == r.content);
      CHECK(reader.pending() == 0);
    }
    // Or for many before it takes the first, beyond what the reader wants.
    for (int round = 0; round < 20; ++round) {
      for (const Record& r : records) reader.request(r.key);
    }
    for (int round = 0; round < 20; ++round) {
      for (const Record& r : records) {
        REQUIRE(take(reader, given));
        CHECK(given.content == r.content);
      }
    }
    CHECK_FALSE(take(reader, given));
  }
}

TEST_CASE("a block that cannot be read costs its records, and no others") {
  const std::vector<Record> records = equal_records(630, 1024);
  for (const unsigned threads : {1U, 3U}) {
    Store store;
    const FarDataset dataset(store, {build_container(records, in_input_order())});
    dataset.sources[0]->fail(dataset.index().block_offset(3), dataset.index().block_offset(4));
    ReaderOptions options;
    options.threads = threads;
    Reader reader(dataset.far, options, true);
    std::vector<std::uint64_t> order(630);
    for (std::uint64_t i = 0; i < 630; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
    read_all(
        reader, 630, [&](std::size_t i) { reader.request(order[i]); },
        [&](std::size_t i, const Given& given) {
          const std::uint64_t n = order[i];
          CHECK(given.key == records[n].key);
          if (n / 63 == 3) {
            const std::string offset = std::to_string(dataset.index().place(n).offset);
            CHECK(given.error == ErrorCode::kIo);
            CHECK(given.message == "record '" + records[n].key +
                                       "': the disk is broken in block 3 at offset " + offset +
                                       " of c0");
          } else {
            CHECK(given.content == records[n].content);
          }
        });
    CHECK(reader.stats().failed == 63);
  }
}

TEST_CASE("a damaged record is an outcome of that record") {
  const std::vector<Record> records = equal_records(630, 1024);
  Store store;
  const FarDataset dataset(store, {build_container(records, in_input_order())});
  dataset.sources[0]->damage(dataset.index().place(100).offset + 500);
  Reader reader(dataset.far, {}, false);
  read_all(
      reader, 630, [&](std::size_t i) { reader.request(records[i].key); },
      [&](std::size_t i, const Given& given) {
        CHECK(given.error == (i == 100 ? std::optional(ErrorCode::kCorrupt) : std::nullopt));
        if (i != 100) CHECK(given.content == records[i].content);
      });
}

TEST_CASE("a record far larger than the budget streams through it, and others are read ahead") {
  ContainerOptions options = in_input_order();
  options.piece_bytes = 50'000;
  const std::vector<Record> records = {
      {"a", "1"}, {"large", content_of(1, 5'000'000)}, {"b", content_of(2, 40'000)}, {"c", "3"}};
  const sml::Bytes container = build_container(records, options);
  for (const bool whole : {false, true}) {
    Store store;
    const FarDataset dataset(store, {container});
    ReaderOptions reading;
    reading.memory_bytes = 600'000;
    reading.threads = 2;
    reading.whole_records = whole;
    Reader reader(dataset.far, reading, false);
    read_all(
        reader, 8, [&](std::size_t i) { reader.request(i % 4); },
        [&](std::size_t i, const Given& given) {
          CHECK(given.content == records[i % 4].content);
          CHECK(given.pieces == (i % 4 == 1 ? 100 : 1));
        });
    const Traffic traffic = store.traffic();
    CHECK(traffic.most_live_bytes <= 600'000);
    CHECK(traffic.most_live_bytes > 100'000);  // two pieces at a time, at least
    // With whole records every piece is read twice.
    CHECK(traffic.bytes > (whole ? 20'000'000 : 10'000'000));
    CHECK(traffic.bytes < (whole ? 20'400'000 : 10'400'000));
  }
}

TEST_CASE("the pieces behind a damaged one are not read") {
  ContainerOptions options = in_input_order();
  options.piece_bytes = 50'000;
  const std::vector<Record> records = {{"large", content_of(1, 5'000'000)}, {"b", "2"}};
  const sml::Bytes container = build_container(records, options);
  for (const unsigned threads : {1U, 3U}) {
    for (const bool whole : {false, true}) {
      Store store;
      const FarDataset dataset(store, {container});
      dataset.sources[0]->damage(dataset.index().block_offset(11) - 100);  // in piece 10
      ReaderOptions reading;
      reading.memory_bytes = 1'000'000;
      reading.threads = threads;
      reading.whole_records = whole;
      Reader reader(dataset.far, reading, false);
      for (int i = 0; i < 2; ++i) {
        reader.request("large");
        reader.request("b");
      }
      Given given;
      for (int i = 0; i < 2; ++i) {
        REQUIRE(take(reader, given));
        CHECK(given.error == ErrorCode::kCorrupt);
        CHECK(given.pieces == (whole ? 0 : 10));
        CHECK(given.message.find(" in block 10 ") != std::string::npos);
        REQUIRE(take(reader, given));
        CHECK(given.content == "2");
      }
      CHECK_FALSE(take(reader, given));
      CHECK(store.traffic().operations <= 2 * (11 + 20));  // and the window behind it
    }
  }
}

TEST_CASE("a far reader may go away with operations in flight") {
  std::vector<Record> records = some_records(300, 5000);
  records.push_back({"large", content_of(1, 300'000)});
  ContainerOptions options = compressed();
  options.piece_bytes = 20'000;
  const sml::Bytes container = build_container(records, options);
  for (const unsigned threads : {1U, 3U}) {
    for (std::size_t taken = 0; taken < 40; ++taken) {
      Store store(taken);
      const FarDataset dataset(store, {container});
      {
        ReaderOptions reading;
        reading.threads = threads;
        Reader reader(dataset.far, reading, false);
        if (taken % 2 == 0) reader.request("large");
        for (const Record& r : records) reader.request(r.key);
        RecordPiece piece;
        for (std::size_t i = 0; i < taken; ++i) REQUIRE(reader.next(piece));
      }
      CHECK(store.traffic().in_flight == 0);
    }
  }
}
