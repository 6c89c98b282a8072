// What scripts/bench-cache measures: records in random order, as SML gives them from its block
// cache and as others give the same records. SIDE is one of
//   sml number|key CACHE_DIRECTORY        SML, the container far away and all its blocks cached
//   sml number|key -                      SML, the container mapped
//   lmdb number|key FILE                  LMDB, and a checksum of each record
//   limit FILE                            a mapped file of the records end to end, and a checksum
//   get|meta|libtext|libbinary SERVER     memcached: a Unix socket, or a port of this machine
// Commands:
//   bench_cache load CONTAINER lmdb number|key FILE    stores the records there
//   bench_cache load CONTAINER memcached SERVER
//   bench_cache read CONTAINER SEED THREADS BATCH RECORDS SIDE    when all was read three times,
//                                         and compared: records per second, seconds of the median
//                                         batch
//   bench_cache drain CONTAINER SEED BATCH get|meta SERVER        one epoch; a sum of all bytes
//   bench_cache drain frames < STREAM                             the same from a framed stream
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lmdb_side.h"
#include "memcached_clients.h"
#include "side.h"
#include "smlformat/error.h"
#include "smlformat/frames.h"
#include "smlformat/permutation.h"
#include "smlstore/batch_reader.h"
#include "smlstore/block_cache.h"
#include "smlstore/dataset.h"
#include "smlstore/reader.h"

namespace {

using Clock = std::chrono::steady_clock;
using Numbers = std::vector<std::uint64_t>;
using Arguments = std::span<char* const>;

[[noreturn]] void usage() { fail("wrong usage: see the first lines of bench_cache.cc"); }

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

bool is_by_key(std::string_view by) {
  if (by != "key" && by != "number") usage();
  return by == "key";
}

// ---- sides

class SmlSide final : public Side {
 public:
  explicit SmlSide(const sml::Dataset& dataset) : reader_(dataset) {}

  std::uint64_t read(const Batch& batch, Look look) override {
    if (batch.names.empty())
      reader_.read_batch(batch.numbers, records_);
    else
      reader_.read_batch(batch.names, records_);
    std::uint64_t sum = 0;
    for (const sml::BatchRecord& record : records_) {
      if (record.error != nullptr) fail(record.error->what());
      sum += look_at(record.bytes, look);
    }
    return sum;
  }
  std::uint64_t fetched() const override { return reader_.stats().operations; }

 private:
  sml::BatchReader reader_;
  sml::RecordBatch records_;
};

class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) fail(path);
    bytes_ = static_cast<std::size_t>(status.st_size);
    memory_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory_ == MAP_FAILED) fail(path);
    close(file);
  }
  ~MappedFile() { munmap(memory_, bytes_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  sml::ByteView bytes() const { return {static_cast<const std::byte*>(memory_), bytes_}; }

 private:
  void* memory_;
  std::size_t bytes_;
};

class LimitSide final : public Side {
 public:
  LimitSide(sml::ByteView bytes, std::uint64_t records)
      : bytes_(bytes), record_bytes_(bytes.size() / records) {}

  std::uint64_t read(const Batch& batch, Look look) override {
    std::uint64_t sum = 0;
    for (const std::uint64_t record : batch.numbers)
      sum += look_at(bytes_.subspan(record * record_bytes_, record_bytes_), look);
    return sum;
  }

 private:
  sml::ByteView bytes_;
  std::size_t record_bytes_;
};

// One of them for each thread, what they share, and how they are used.
struct Sides {
  std::function<std::unique_ptr<Side>()> make;
  std::function<std::string(std::uint64_t number)> name;  // null: by number
  Look look = Look::kNothing;                             // what is measured beside reading
};

std::string key_of(const sml::Dataset& dataset, std::uint64_t record) {
  std::string key;
  dataset.key_of(record, key);
  return key;
}

Sides sides(Arguments given, const char* container, const sml::Dataset& dataset) {
  const std::string kind = given.empty() ? "" : given[0];
  const auto name = [&dataset](std::uint64_t record) { return key_of(dataset, record); };
  Sides made;
  if (kind == "sml" && given.size() == 3) {
    sml::DatasetOptions options;
    options.mapped = given[2] == std::string_view("-");
    if (!options.mapped) options.block_cache = sml::BlockCache::open(given[2]);
    if (!options.mapped && !options.block_cache) fail("no block cache there");
    const auto opened =
        std::make_shared<const sml::Dataset>(sml::Dataset::open(sml::Location(container), options));
    made.make = [opened] { return std::make_unique<SmlSide>(*opened); };
    if (is_by_key(given[1])) made.name = name;
  } else if (kind == "lmdb" && given.size() == 3) {
    const bool by_key = is_by_key(given[1]);
    const auto file = std::make_shared<const LmdbFile>(given[2], by_key, LmdbFile::Use::kRead);
    made.make = [file] { return lmdb_side(*file); };
    if (by_key) made.name = name;
    made.look = Look::kChecksum;
  } else if (kind == "limit" && given.size() == 2) {
    const auto file = std::make_shared<const MappedFile>(given[1]);
    const std::uint64_t records = dataset.records();
    made.make = [file, records] { return std::make_unique<LimitSide>(file->bytes(), records); };
    made.look = Look::kChecksum;
  } else if (given.size() == 2 && (kind == "get" || kind == "meta")) {
    const std::string server = given[1];
    const bool meta = kind == "meta";
    made.make = [server, meta] { return std::make_unique<RawMemcached>(server, meta); };
    made.name = memcached_name;
  } else if (given.size() == 2 && (kind == "libtext" || kind == "libbinary")) {
    const std::string server = given[1];
    const bool binary = kind == "libbinary";
    made.make = [server, binary] { return libmemcached_side(server, binary); };
    made.name = memcached_name;
  } else {
    usage();
  }
  return made;
}

// ---- what is read

// Positions of epochs end to end, each in the order of `sml shuffle --mode full`.
Numbers order(std::uint64_t records, std::uint64_t seed, std::uint64_t first, std::uint64_t last) {
  Numbers numbers;
  for (std::uint64_t at = first; at < last;) {
    const std::uint64_t epoch = at / records;
    const sml::Permutation epochs(records, {sml::PermutationUse::kEpoch, seed, epoch, 0});
    for (; at < last && at / records == epoch; ++at) numbers.push_back(epochs.apply(at % records));
  }
  return numbers;
}

// Batches of these records, made ready before anything is measured.
class Requests {
 public:
  Requests(Numbers numbers, const Sides& sides, std::size_t batch)
      : numbers_(std::move(numbers)), batch_(batch) {
    if (!sides.name) return;
    for (const std::uint64_t record : numbers_) texts_.push_back(sides.name(record));
    names_.assign(texts_.begin(), texts_.end());
  }

  std::size_t batches() const { return (numbers_.size() + batch_ - 1) / batch_; }
  Batch operator[](std::size_t i) const {
    const std::size_t first = i * batch_;
    const std::size_t count = std::min(batch_, numbers_.size() - first);
    return {std::span(numbers_).subspan(first, count),
            names_.empty() ? std::span<const std::string_view>()
                           : std::span(names_).subspan(first, count)};
  }

 private:
  Numbers numbers_;
  std::size_t batch_;
  std::vector<std::string> texts_;
  std::vector<std::string_view> names_;
};

// The records of a container in the order asked for.
template <class Take>
void each_record(const sml::Dataset& dataset, const Numbers& numbers, Take take) {
  sml::Reader reader(dataset, {}, true);
  sml::RecordPiece piece;
  for (auto next = numbers.begin(); next != numbers.end() || reader.pending() > 0;) {
    while (next != numbers.end() && reader.wants_more()) reader.request(*next++);
    reader.next(piece);
    if (piece.error != nullptr) fail(piece.error->what());
    if (piece.bytes.size() != piece.record_bytes) fail("a record is too large");
    take(piece);
  }
}

Numbers all(const sml::Dataset& dataset) {
  Numbers numbers(dataset.records());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// ---- commands

void load_lmdb(const sml::Dataset& dataset, bool by_key, const char* path) {
  Numbers numbers = all(dataset);
  if (by_key) {
    std::vector<std::string> keys;
    for (const std::uint64_t record : numbers) keys.push_back(key_of(dataset, record));
    std::sort(numbers.begin(), numbers.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
  }
  LmdbFile file(path, by_key, LmdbFile::Use::kWrite);
  each_record(dataset, numbers, [&](const sml::RecordPiece& record) {
    file.append(record.number, record.key, record.bytes);
  });
  file.finish();
}

void load_memcached(const sml::Dataset& dataset, const char* server) {
  MemcachedConnection connection(server);
  std::string commands;
  each_record(dataset, all(dataset), [&](const sml::RecordPiece& record) {
    commands += "set " + memcached_name(record.number) + " 0 0 " +
                std::to_string(record.bytes.size()) + " noreply\r\n";
    commands += sml::as_text(record.bytes);
    commands += "\r\n";
    if (commands.size() < (1U << 20)) return;
    connection.send(commands);
    commands.clear();
  });
  connection.send(commands + "version\r\n");
  const std::string_view answer = connection.input().take_line();
  if (!answer.starts_with("VERSION ")) fail(std::string(answer));
}

// The part of one thread.
std::pair<std::uint64_t, std::uint64_t> part(std::uint64_t count, unsigned thread,
                                             unsigned threads) {
  return {count * thread / threads, count * (thread + 1) / threads};
}

void measure(const char* container, std::uint64_t seed, unsigned threads, std::size_t batch,
             std::uint64_t count, Arguments side) {
  const sml::Dataset dataset = sml::Dataset::open(sml::Location(container));
  const Sides measured = sides(side, container, dataset);
  const std::uint64_t records = dataset.records();
  std::uint64_t expected = 0;
  each_record(dataset, all(dataset), [&](const sml::RecordPiece& record) {
    expected += look_at(record.bytes, Look::kChecksum);
  });

  std::atomic<std::uint64_t> seen = 0;
  std::vector<std::vector<double>> seconds(threads);
  std::barrier start(threads + 1);
  std::vector<std::jthread> running;
  for (unsigned thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      const auto requests = [&](std::uint64_t first, std::uint64_t positions, std::size_t size) {
        const auto mine = part(positions, thread, threads);
        return Requests(order(records, seed, first + mine.first, first + mine.second), measured,
                        size);
      };
      const std::unique_ptr<Side> reading = measured.make();
      // Until all is mapped and as fast as it gets; first to see that it is what is in the
      // container.
      const Requests warming = requests(0, records, 256);
      for (std::size_t i = 0; i < warming.batches(); ++i)
        seen += reading->read(warming[i], Look::kChecksum);
      for (std::size_t i = 0; i < 2 * warming.batches(); ++i)
        reading->read(warming[i % warming.batches()], measured.look);
      const std::uint64_t fetched = reading->fetched();
      const Requests again = requests(records, count, batch);
      seconds[thread].reserve(again.batches());
      start.arrive_and_wait();
      for (std::size_t i = 0; i < again.batches(); ++i) {
        const auto begun = Clock::now();
        reading->read(again[i], measured.look);
        const std::chrono::duration<double> taken = Clock::now() - begun;
        seconds[thread].push_back(taken.count());
      }
      if (reading->fetched() != fetched) fail("not everything was in the cache");
    });
  }
  start.arrive_and_wait();
  const auto begun = Clock::now();
  running.clear();
  const std::chrono::duration<double> taken = Clock::now() - begun;
  if (seen != expected) fail("other bytes than those in the container");

  std::vector<double> of_all;
  for (const auto& some : seconds) of_all.insert(of_all.end(), some.begin(), some.end());
  const auto middle = of_all.begin() + static_cast<std::ptrdiff_t>(of_all.size() / 2);
  std::nth_element(of_all.begin(), middle, of_all.end());
  std::printf("%.1f\t%.9f\n", static_cast<double>(count) / taken.count(), *middle);
}

// The next batch is asked for before this one is received, so that nobody waits.
std::uint64_t drain_memcached(const char* container, std::uint64_t seed, std::size_t batch,
                              bool meta, const char* server) {
  const std::uint64_t records = sml::Dataset::open(sml::Location(container)).records();
  Sides named;
  named.name = memcached_name;
  const Requests requests(order(records, seed, 0, records), named, batch);
  RawMemcached memcached(server, meta);
  std::uint64_t sum = 0;
  memcached.ask(requests[0].names);
  for (std::size_t i = 0; i < requests.batches(); ++i) {
    if (i + 1 < requests.batches()) memcached.ask(requests[i + 1].names);
    sum += memcached.receive(requests[i].names, Look::kTouch);
  }
  return sum;
}

// As a trainer's parser does it: the frames are checked, the payloads are used.
std::uint64_t drain_frames() {
  DescriptorInput input(STDIN_FILENO);
  sml::Bytes magic;
  sml::put_frames_magic(magic);
  if (input.take(magic.size()) != sml::as_text(magic)) fail("no framed stream");
  std::uint64_t sum = 0;
  std::uint64_t records = 0;
  for (;; ++records) {
    // Copied: what is taken next may move what was taken before.
    char header[sml::kFrameHeaderBytes];
    input.take(sizeof header).copy(header, sizeof header);
    const auto key_bytes = sml::load<std::uint16_t>(header + 6);
    const auto payload_bytes = sml::load<std::uint32_t>(header + 8);
    const auto record_bytes = sml::load<std::uint64_t>(header + 24);
    const std::uint32_t crc32c = sml::crc32c(sml::as_bytes({header + 4, sizeof header - 4}));
    if (sml::crc32c(sml::as_bytes(input.take(key_bytes)), crc32c) !=
        sml::load<std::uint32_t>(header))
      fail("a frame is damaged");
    const auto type = static_cast<sml::FrameType>(header[4]);
    if (type == sml::FrameType::kEnd) {
      if (sml::load<std::uint64_t>(header + 16) != records) fail("records are missing");
      return sum;
    }
    if (type != sml::FrameType::kRecord || payload_bytes != record_bytes)
      fail("a frame that is no whole record");
    sum += look_at(sml::as_bytes(input.take(payload_bytes)), Look::kTouch);
  }
}

int run(Arguments given) {
  const std::string what = given.empty() ? "" : given[0];
  if (what == "load" && given.size() >= 4) {
    const sml::Dataset dataset = sml::Dataset::open(sml::Location(given[1]));
    const std::string where = given[2];
    if (where == "lmdb" && given.size() == 5) {
      load_lmdb(dataset, is_by_key(given[3]), given[4]);
      return 0;
    }
    if (where == "memcached" && given.size() == 4) {
      load_memcached(dataset, given[3]);
      return 0;
    }
  } else if (what == "read" && given.size() > 6) {
    measure(given[1], number(given[2]), static_cast<unsigned>(number(given[3])), number(given[4]),
            number(given[5]), given.subspan(6));
    return 0;
  } else if (what == "drain" && given.size() == 6) {
    const std::uint64_t sum = drain_memcached(given[1], number(given[2]), number(given[3]),
                                              given[4] == std::string_view("meta"), given[5]);
    std::printf("%lu\n", sum);
    return 0;
  } else if (what == "drain" && given.size() == 2 && given[1] == std::string_view("frames")) {
    std::printf("%lu\n", drain_frames());
    return 0;
  }
  usage();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(Arguments(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}
