// The cache of blocks that lie far away: what is kept, found, shared and removed.
#include "smlstore/block_cache.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "smlstore/batch_reader.h"
#include "smlstore/dataset.h"
#include "smlstore/reader.h"
#include "smlstore/warm.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/readers.h"

namespace {

namespace fs = std::filesystem;

using sml::BatchReader;
using sml::BlockCache;
using sml::Dataset;
using sml::DatasetOptions;
using sml::ErrorCode;
using sml::Location;
using sml::Reader;
using sml::ReaderOptions;
using sml::RecordBatch;
using sml::test::build_container;
using sml::test::compressed;
using sml::test::ContainerOptions;
using sml::test::content_of;
using sml::test::Given;
using sml::test::Record;
using sml::test::some_records;
using sml::test::TemporaryDirectory;

constexpr std::uint64_t kRoom = 64U << 20;

// A container file that is read as if it were far away, and a cache directory.
class Fixture {
 public:
  explicit Fixture(std::vector<Record> records, const ContainerOptions& options = {},
                   std::uint64_t room = kRoom)
      : records_(std::move(records)) {
    bytes_ = build_container(records_, options);
    file_ = directory_.write("data.sml", bytes_);
    BlockCache::init(cache(), room, false);
  }

  std::string cache() const { return directory_.file("cache"); }
  const std::string& file() const { return file_; }
  const sml::Bytes& bytes() const { return bytes_; }
  const std::vector<Record>& records() const { return records_; }
  std::shared_ptr<BlockCache> open_cache() const { return BlockCache::open(cache()); }

  Dataset open(std::shared_ptr<BlockCache> block_cache) const {
    DatasetOptions options;
    options.mapped = false;
    options.block_cache = std::move(block_cache);
    return Dataset::open(Location::parse(file_), options);
  }
  Dataset open() const { return open(open_cache()); }
  // Files of blocks, by path.
  std::vector<fs::path> blocks() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(cache() + "/blocks")) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && name != "state" && name != "locks")
        found.push_back(entry.path());
    }
    return found;
  }
  std::uint64_t taken() const {
    std::ifstream state(cache() + "/blocks/state", std::ios::binary);
    state.seekg(24);
    std::uint64_t value = 0;
    state.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }

 private:
  TemporaryDirectory directory_;
  std::vector<Record> records_;
  sml::Bytes bytes_;
  std::string file_;
};

// Reads all records in an order drawn from a seed, and compares them.
sml::ReaderStats read_epoch(const Fixture& fixture, const Dataset& dataset, std::uint64_t seed,
                            ReaderOptions options = {}) {
  std::vector<std::size_t> order(fixture.records().size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  Reader reader(dataset, options, true);
  sml::test::read_all(
      reader, order.size(),
      [&](std::size_t i) { reader.request(std::string_view(fixture.records()[order[i]].key)); },
      [&](std::size_t i, const Given& given) {
        CHECK(!given.error);
        CHECK(given.key == fixture.records()[order[i]].key);
        CHECK(given.content == fixture.records()[order[i]].content);
      });
  return reader.stats();
}

std::uint64_t block_count(const Dataset& dataset) {
  return dataset.containers()[0].reader->index().blocks();
}

void damage(const fs::path& file, std::uint64_t offset) {
  // A new file instead of the old one: what is mapped stays as it is.
  std::ifstream in(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  text[offset] = static_cast<char>(text[offset] ^ 0x40);
  fs::remove(file);
  std::ofstream(file, std::ios::binary) << text;
}

// As who unlinks blocks does it.
void count_generation(const Fixture& fixture) {
  std::fstream state(fixture.cache() + "/blocks/state",
                     std::ios::in | std::ios::out | std::ios::binary);
  std::uint64_t value = 0;
  state.seekg(32);
  state.read(reinterpret_cast<char*>(&value), sizeof value);
  ++value;
  state.seekp(32);
  state.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST_CASE("what was read once is found in the cache, and comes from nowhere else") {
  for (const bool compress : {false, true}) {
    CAPTURE(compress);
    const Fixture fixture(some_records(700, 3000), compress ? compressed() : ContainerOptions());
    const Dataset dataset = fixture.open();
    REQUIRE(block_count(dataset) >= 8);
    for (const unsigned threads : {1U, 2U, 4U}) {
      BlockCache::open(fixture.cache());
      ReaderOptions options;
      options.threads = threads;
      const auto stats = read_epoch(fixture, dataset, threads, options);
      CHECK(stats.cache_hits + stats.cache_misses == 700);
      if (threads == 1) {
        CHECK(stats.blocks_kept == block_count(dataset));
        CHECK(fixture.blocks().size() == block_count(dataset));
      } else {
        CHECK(stats.cache_misses == 0);
        CHECK(stats.operations == 0);
      }
    }
    // A block's file is its bytes in the container.
    const sml::Index& index = dataset.containers()[0].reader->index();
    for (const fs::path& path : fixture.blocks()) {
      const auto block = std::stoull(path.filename().string(), nullptr, 16);
      const std::uint64_t begin = index.block_offset(block);
      std::ifstream in(path, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      CHECK(text == sml::as_text(sml::ByteView(fixture.bytes())
                                     .subspan(begin, index.block_offset(block + 1) - begin)));
      CHECK(path.parent_path().filename() == dataset.containers()[0].reader->id().hex());
    }
  }
}

TEST_CASE("records that are stored as they are lie in the cache, and stay when it is emptied") {
  const Fixture fixture(some_records(100, 3000));
  const Dataset dataset = fixture.open();
  read_epoch(fixture, dataset, 1);
  const Dataset near = Dataset::open(Location::parse(fixture.file()));
  std::vector<std::uint32_t> checksums;
  Given given;
  {
    Reader all(near, {}, false);
    for (std::uint64_t i = 0; i < 100; ++i) all.request(i);
    while (sml::test::take(all, given))
      checksums.push_back(sml::crc32c(sml::as_bytes(given.content)));
  }
  Reader reader(dataset, {}, false);
  for (std::uint64_t i = 0; i < 100; ++i) reader.request(i);
  REQUIRE(sml::test::take(reader, given));
  CHECK(given.immutable);
  for (const fs::path& path : fixture.blocks()) fs::remove(path);
  count_generation(fixture);
  for (std::uint64_t i = 1; i < 100; ++i) {
    REQUIRE(sml::test::take(reader, given));
    CHECK(!given.error);
    CHECK(sml::crc32c(sml::as_bytes(given.content)) == checksums[i]);
  }
}

TEST_CASE("records in pieces go through the cache as well") {
  ContainerOptions options;
  options.piece_bytes = 10'000;
  std::vector<Record> records = some_records(20, 2000);
  records.push_back({"large", content_of(77, 123'456)});
  const Fixture fixture(records, options);
  const Dataset dataset = fixture.open();
  read_epoch(fixture, dataset, 1);
  const auto stats = read_epoch(fixture, dataset, 2);
  CHECK(stats.operations == 0);
  CHECK(stats.cache_hits == 20 + 13);
}

TEST_CASE("a cache with room for half of the data keeps half, and its share of reads hits") {
  const std::vector<Record> records = some_records(2000, 3000);
  const std::uint64_t bytes = build_container(records).size();
  const Fixture fixture(records, {}, bytes / 2);
  const Dataset dataset = fixture.open();
  read_epoch(fixture, dataset, 1);
  for (std::uint64_t epoch = 2; epoch < 5; ++epoch) {
    const auto stats = read_epoch(fixture, dataset, epoch);
    const double ratio = static_cast<double>(stats.cache_hits) / 2000;
    CHECK(ratio > 0.46);
    CHECK(ratio < 0.51);
    CHECK(stats.blocks_kept == 0);
  }
  std::uint64_t kept = 0;
  for (const fs::path& path : fixture.blocks()) kept += (fs::file_size(path) + 4095) / 4096 * 4096;
  CHECK(kept <= bytes / 2);
  CHECK(kept == fixture.taken());
}

TEST_CASE("another data set takes the room of one that is not in use, and not of one that is") {
  const std::vector<Record> records = some_records(1000, 3000);
  const std::uint64_t bytes = build_container(records).size();
  const Fixture first(records, {}, bytes * 3 / 4);
  std::vector<Record> others = some_records(1000, 3000);
  for (Record& record : others) record.key = "other/" + record.key;
  const Fixture second(others, {}, kRoom);

  const auto cache = first.open_cache();
  {
    const Dataset dataset = first.open(cache);
    read_epoch(first, dataset, 1);
    const Dataset rival = second.open(first.open_cache());
    CHECK(read_epoch(second, rival, 1).blocks_kept <= block_count(rival) * 2 / 5);
    CHECK(read_epoch(first, dataset, 2).cache_hits > 650);
  }
  const Dataset rival = second.open(first.open_cache());
  read_epoch(second, rival, 2);
  CHECK(read_epoch(second, rival, 3).cache_hits > 700);
  const Dataset dataset = first.open(cache);
  CHECK(read_epoch(first, dataset, 3).cache_hits < 300);
}

TEST_CASE("a block that is damaged in the cache is dropped and fetched again") {
  const Fixture fixture(some_records(300, 3000), compressed());
  {
    const Dataset dataset = fixture.open();
    read_epoch(fixture, dataset, 1);
  }
  std::set<fs::path> damaged;
  for (const fs::path& path : fixture.blocks()) {
    if (damaged.size() == 3) break;
    damage(path, fs::file_size(path) / 2);
    damaged.insert(path);
  }
  // One is cut short.
  for (const fs::path& path : fixture.blocks()) {
    if (damaged.contains(path)) continue;
    fs::resize_file(path, 100);
    break;
  }
  const Dataset dataset = fixture.open();
  const auto stats = read_epoch(fixture, dataset, 2);
  CHECK(stats.failed == 0);
  CHECK(stats.blocks_damaged == 4);
  CHECK(stats.blocks_kept == 4);
  CHECK(read_epoch(fixture, dataset, 3).operations == 0);
  CHECK(fixture.blocks().size() == block_count(dataset));

  // The same for batches.
  damage(*damaged.begin(), 20'000);
  const Dataset again = fixture.open();
  BatchReader reader(again);
  RecordBatch batch;
  std::vector<std::uint64_t> numbers(300);
  for (std::size_t i = 0; i < 300; ++i) numbers[i] = i;
  reader.read_batch(numbers, batch);
  for (const auto& record : batch) CHECK(record.error == nullptr);
  CHECK(reader.stats().blocks_damaged == 1);
}

TEST_CASE("a record that is damaged at its origin is told, and its block is not kept") {
  const std::vector<Record> records = some_records(300, 3000);
  const Fixture fixture(records);
  const Dataset sound = fixture.open();
  const std::uint64_t block = 3;
  const std::uint64_t offset = sound.containers()[0].reader->index().block_offset(block) + 30'000;
  std::fstream(fixture.file(), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(offset))
      .write("damage", 6);
  const Dataset dataset = fixture.open();
  for (int epoch = 0; epoch < 2; ++epoch) {
    Reader reader(dataset, {}, false);
    std::size_t failed = 0;
    sml::test::read_all(
        reader, 300, [&](std::size_t i) { reader.request(i); },
        [&](std::size_t, const Given& given) {
          if (given.error) CHECK(*given.error == ErrorCode::kCorrupt);
          failed += given.error ? 1 : 0;
        });
    CHECK(failed >= 1);
    CHECK(failed <= 2);
    CHECK(reader.stats().blocks_damaged == 0);
    CHECK(fixture.blocks().size() == block_count(dataset) - 1);
  }
}

TEST_CASE("many readers of one machine fetch each block once") {
  const Fixture fixture(some_records(2000, 3000));
  const auto shared = fixture.open_cache();
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> fetched{0};
  for (std::uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      // Half of them by caches of their own, as processes have.
      const Dataset dataset = fixture.open(i % 2 == 0 ? shared : fixture.open_cache());
      Reader reader(dataset, {}, false);
      std::vector<std::uint64_t> order(2000);
      for (std::size_t at = 0; at < order.size(); ++at) order[at] = at;
      std::mt19937_64 random(i);
      std::shuffle(order.begin(), order.end(), random);
      std::size_t asked = 0;
      sml::RecordPiece piece;
      for (std::size_t given = 0; given < order.size(); ++given) {
        while (asked < order.size() && reader.wants_more()) reader.request(order[asked++]);
        if (!reader.next(piece) || piece.error != nullptr) return;
      }
      fetched += reader.stats().blocks_kept;
      if (reader.stats().operations != reader.stats().blocks_kept) fetched += 1'000'000;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(fetched == block_count(fixture.open()));
}

TEST_CASE("batches are what the records are, whatever is cached") {
  ContainerOptions options = compressed();
  options.piece_bytes = 10'000;
  std::vector<Record> records = some_records(500, 3000);
  records.push_back({"large", content_of(5, 54'321)});
  records.push_back({"empty", ""});
  const Fixture fixture(records, options);
  const Dataset near = Dataset::open(Location::parse(fixture.file()));
  const Dataset far = fixture.open(nullptr);
  const Dataset cached = fixture.open();
  std::mt19937_64 random(7);
  for (const Dataset* dataset : {&near, &far, &cached}) {
    BatchReader reader(*dataset);
    RecordBatch batch;
    for (int i = 0; i < 20; ++i) {
      std::vector<std::string_view> keys;
      std::vector<const Record*> wanted;
      for (int k = 0; k < 64; ++k) {
        wanted.push_back(&records[random() % records.size()]);
        keys.push_back(wanted.back()->key);
      }
      keys.push_back("no such key");
      reader.read_batch(keys, batch);
      REQUIRE(batch.size() == keys.size());
      std::vector<std::uint64_t> numbers;
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        REQUIRE(batch[k].error == nullptr);
        CHECK(sml::as_text(batch[k].bytes) == wanted[k]->content);
        CHECK(batch[k].crc32c == sml::crc32c(batch[k].bytes));
        numbers.push_back(batch[k].number);
      }
      REQUIRE(batch[wanted.size()].error != nullptr);
      CHECK(batch[wanted.size()].error->code() == ErrorCode::kNotFound);
      numbers.push_back(dataset->records());
      reader.read_batch(numbers, batch);
      for (std::size_t k = 0; k < wanted.size(); ++k)
        CHECK(sml::as_text(batch[k].bytes) == wanted[k]->content);
      REQUIRE(batch[wanted.size()].error != nullptr);
      CHECK(batch[wanted.size()].error->code() == ErrorCode::kNotFound);
    }
    reader.read_batch(std::span<const std::uint64_t>(), batch);
    CHECK(batch.size() == 0);
  }
}

TEST_CASE("a batch holds its records though the reader goes, and the cache is emptied") {
  const Fixture fixture(some_records(100, 3000));
  const auto cache = fixture.open_cache();
  const Dataset dataset = fixture.open(cache);
  read_epoch(fixture, dataset, 1);
  RecordBatch batch;
  std::vector<std::string_view> keys;
  for (const Record& record : fixture.records()) keys.push_back(record.key);
  BatchReader(dataset).read_batch(keys, batch);
  // As who made room does it: readers give up their mappings, and fetch again.
  for (const fs::path& path : fixture.blocks()) fs::remove(path);
  count_generation(fixture);
  CHECK(read_epoch(fixture, dataset, 2).blocks_kept == block_count(dataset));
  for (std::size_t i = 0; i < keys.size(); ++i)
    CHECK(sml::as_text(batch[i].bytes) == fixture.records()[i].content);
}

TEST_CASE("trimming leaves what is in use, and removes only what is the cache's") {
  const Fixture fixture(some_records(300, 3000));
  std::ofstream(fixture.cache() + "/blocks/00000001") << "not a directory";
  {
    const Dataset dataset = fixture.open();
    read_epoch(fixture, dataset, 1);
    const std::size_t blocks = fixture.blocks().size() - 1;
    const auto removed = fixture.open_cache()->trim(0);
    CHECK(removed.blocks == 0);
    CHECK(removed.bytes_in_use == fixture.taken());
    CHECK(fixture.blocks().size() - 1 == blocks);
    const auto info = fixture.open_cache()->info();
    REQUIRE(info.containers.size() == 1);
    CHECK(info.containers[0].in_use);
    CHECK(info.containers[0].id == dataset.containers()[0].reader->id());
    CHECK(info.blocks == blocks);
    CHECK(info.block_bytes == fixture.taken());
  }
  const fs::path directory =
      fixture.blocks().back().parent_path() == fs::path(fixture.cache() + "/blocks")
          ? fixture.blocks().front().parent_path()
          : fixture.blocks().back().parent_path();
  std::ofstream(directory / "0000ffff") << "begins otherwise";
  std::ofstream(directory / "notes.txt") << "mine";
  std::ofstream(directory / "0123456789abcdef.tmp") << "left over";
  CHECK_FALSE(fixture.open_cache()->info().containers[0].in_use);
  const auto removed = fixture.open_cache()->trim(0);
  CHECK(removed.blocks > 3);
  std::set<std::string> left;
  for (const fs::path& path : fixture.blocks()) left.insert(path.filename().string());
  CHECK(left == std::set<std::string>{"00000001", "0000ffff", "notes.txt"});
}

TEST_CASE("a number of bytes that was left too large is mended") {
  const std::vector<Record> records = some_records(500, 3000);
  const Fixture fixture(records, {}, build_container(records).size() + (1U << 20));
  {
    // As by a process that was killed before it named its block.
    std::fstream state(fixture.cache() + "/blocks/state",
                       std::ios::in | std::ios::out | std::ios::binary);
    state.seekp(24);
    const std::uint64_t much = std::uint64_t{1} << 50;
    state.write(reinterpret_cast<const char*>(&much), sizeof much);
  }
  const Dataset dataset = fixture.open();
  CHECK(read_epoch(fixture, dataset, 1).blocks_kept == block_count(dataset));
}

TEST_CASE("caches that cannot be used are refused, with what is wrong") {
  const Fixture fixture(some_records(50, 3000));
  TemporaryDirectory empty;
  CHECK(BlockCache::open(empty.path()) == nullptr);
  CHECK(BlockCache::open(empty.file("none")) == nullptr);

  BlockCache::init(empty.path(), sml::kMinBlockBytes / 2, false);
  try {
    fixture.open(BlockCache::open(empty.path()));
    FAIL("opened");
  } catch (const sml::Error& error) {
    CHECK(error.code() == ErrorCode::kLimit);
    CHECK(std::string(error.what()).find("a block of") != std::string::npos);
    CHECK(error.hint().find("sml cache init --size 6") != std::string::npos);
  }

  const auto state = fixture.cache() + "/blocks/state";
  const auto with = [&](std::streamoff offset, const std::string& bytes, ErrorCode code) {
    std::ifstream in(state, std::ios::binary);
    const std::string before((std::istreambuf_iterator<char>(in)), {});
    std::fstream(state, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(offset)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      BlockCache::open(fixture.cache());
      FAIL("opened");
    } catch (const sml::Error& error) {
      CHECK(error.code() == code);
    }
    std::ofstream(state, std::ios::binary) << before;
  };
  with(0, "X", ErrorCode::kCorrupt);
  with(8, "\x02", ErrorCode::kUnsupported);
  fs::resize_file(state, 100);
  CHECK_THROWS_AS(BlockCache::open(fixture.cache()), sml::Error);
}

TEST_CASE("blocks that cannot be mapped are read like any other, and stay for others") {
  const Fixture fixture(some_records(300, 3000));
  std::size_t blocks = 0;
  {
    const Dataset dataset = fixture.open();
    read_epoch(fixture, dataset, 1);
    blocks = fixture.blocks().size();
  }
  ReaderOptions options;
  options.threads = 1;
  const Dataset dataset = fixture.open();
  // What a FIFO is in place of a block: neither mapped nor waited for.
  const fs::path block = fixture.blocks().front();
  fs::remove(block);
  REQUIRE(::mkfifo(block.c_str(), 0600) == 0);
  CHECK(read_epoch(fixture, dataset, 2, options).failed == 0);
  CHECK(fixture.blocks().size() == blocks - 1);
  CHECK(fs::is_fifo(block));
}

TEST_CASE("a reader that waits for nothing keeps nothing that was unmapped") {
  const Fixture fixture(some_records(300, 3000));
  const Dataset dataset = fixture.open();
  BatchReader reader(dataset);
  RecordBatch batch;
  std::vector<std::uint64_t> numbers(300);
  for (std::size_t i = 0; i < 300; ++i) numbers[i] = i;
  reader.read_batch(numbers, batch);  // fetched
  reader.read_batch(numbers, batch);  // in place
  const auto mapped = [&] {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find(fixture.cache() + "/blocks/") != line.npos;
    return count;
  };
  CHECK(mapped() > 3);
  for (const fs::path& path : fixture.blocks()) fs::remove(path);
  count_generation(fixture);
  reader.read_batch(std::vector<std::uint64_t>{1}, batch);
  // The state, and the block that was fetched again. A worker may still have the other end in hand.
  while (mapped() > 2) std::this_thread::yield();
  CHECK(mapped() == 2);
}

TEST_CASE("what has become damaged is made anew by init") {
  const Fixture fixture(some_records(100, 3000));
  { read_epoch(fixture, fixture.open(), 1); }
  const std::uint64_t taken = fixture.taken();
  std::ofstream(fixture.cache() + "/blocks/state", std::ios::binary) << std::string(4096, '\0');
  CHECK_THROWS_AS(fixture.open_cache(), sml::Error);
  BlockCache::init(fixture.cache(), kRoom, false);
  CHECK(fixture.taken() == taken);
  CHECK(read_epoch(fixture, fixture.open(), 2).operations == 0);
}

TEST_CASE("a cache that is gone, or full, while it is used is one warning") {
  const Fixture fixture(some_records(300, 3000));
  std::vector<std::string> warnings;
  const auto cache = BlockCache::open(
      fixture.cache(), [&](const std::string& warning) { warnings.push_back(warning); });
  const Dataset dataset = fixture.open(cache);
  fs::remove_all(fixture.cache());
  ReaderOptions options;
  options.threads = 1;
  read_epoch(fixture, dataset, 1, options);
  read_epoch(fixture, dataset, 2, options);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find(fixture.cache()) == 0);
}

TEST_CASE(
    "the index of a container file that is not mapped is kept, and a damaged one fetched again") {
  const Fixture fixture(some_records(300, 3000));
  DatasetOptions options;
  options.mapped = false;
  options.index_directory = fixture.cache();
  const auto open = [&] { return Dataset::open(Location::parse(fixture.file()), options); };
  const std::string id = open().containers()[0].reader->id().hex();
  const std::string kept = fixture.cache() + "/index/" + id + ".footer";
  const auto content = [&] {
    std::ifstream in(kept, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  const std::string whole = content();
  REQUIRE(whole.size() > 64);
  CHECK(sml::as_text(fixture.bytes()).ends_with(whole));
  // The tail, at its end, is read from the file.
  for (const std::size_t offset : {std::size_t{0}, whole.size() / 2, whole.size() - 65}) {
    damage(kept, offset);
    CHECK(read_epoch(fixture, open(), 1).failed == 0);
    CHECK(content() == whole);
  }
  fs::resize_file(kept, 100);
  CHECK(read_epoch(fixture, open(), 1).failed == 0);
  // The file's own index may be damaged: then it is refused, whatever is kept.
  fs::resize_file(fixture.file(), fixture.bytes().size() - 1);
  CHECK_THROWS_AS(open(), sml::Error);
}

TEST_CASE("warming fetches what is not there, once") {
  const Fixture fixture(some_records(1000, 3000));
  const Dataset dataset = fixture.open();
  BatchReader reader(dataset);
  RecordBatch batch;
  reader.read_batch(std::vector<std::uint64_t>{1}, batch);
  std::uint64_t last = 0;
  sml::WarmOptions options;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    CHECK(done > last);
    CHECK(done <= total);
    last = done;
  };
  auto report = sml::warm(dataset, options);
  CHECK(report.blocks == block_count(dataset));
  CHECK(report.there == 1);
  CHECK(report.kept == report.blocks - 1);
  last = 0;
  report = sml::warm(dataset, options);
  CHECK(report.there == report.blocks);
  CHECK(read_epoch(fixture, dataset, 1).operations == 0);
}

TEST_CASE("files and directories have the rights of who shares them") {
  const auto mode = [](const std::string& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 07777U;
  };
  const mode_t before = ::umask(0);
  for (const mode_t mask : {0U, 022U, 077U}) {
    ::umask(mask);
    for (const bool group : {false, true}) {
      const Fixture data(some_records(50, 3000));
      TemporaryDirectory directory;
      const std::string path = directory.file("cache");
      BlockCache::init(path, kRoom, group);
      const Dataset dataset = data.open(BlockCache::open(path));
      read_epoch(data, dataset, 1);
      const std::string blocks = path + "/blocks/" + dataset.containers()[0].reader->id().hex();
      for (const std::string& one : {path, path + "/blocks", blocks})
        CHECK(mode(one) == (group ? 02770U : 0700U));
      for (const std::string& one : {path + "/CACHEDIR.TAG", path + "/blocks/state",
                                     path + "/blocks/locks", blocks + "/00000000"})
        CHECK(mode(one) == (group ? 0660U : 0600U));
      if (!group) CHECK_THROWS_AS(BlockCache::init(path, kRoom, true), sml::Error);
    }
  }
  ::umask(before);
}

}  // namespace
