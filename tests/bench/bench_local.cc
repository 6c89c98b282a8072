// The parts of scripts/bench-local that no command can measure, and synthetic inputs:
//   bench_local names N SEED            frames of N ImageNet-like names, 8-byte payloads
//   bench_local records N BYTES SEED    frames of N records of random bytes, such names
//   bench_local index CONTAINER SEED    look-ups: lines "name<TAB>nanoseconds", and private memory
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "smlformat/checksum.h"
#include "smlformat/container_reader.h"
#include "smlformat/frames.h"
#include "smlformat/permutation.h"
#include "smlstore/directory_store.h"

namespace {

using Clock = std::chrono::steady_clock;

class FrameOutput {
 public:
  FrameOutput() { sml::put_frames_magic(buffer_); }

  void add(std::string_view key, sml::ByteView payload) {
    sml::Frame frame;
    frame.key = key;
    frame.payload_bytes = static_cast<std::uint32_t>(payload.size());
    frame.payload_crc32c = sml::crc32c(payload);
    frame.number = sml::kNoNumber;
    frame.record_bytes = payload.size();
    sml::put_frame_header(buffer_, frame);
    buffer_.insert(buffer_.end(), payload.begin(), payload.end());
    ++records_;
    bytes_ += payload.size();
    if (buffer_.size() >= (1U << 20)) flush();
  }

  void finish() {
    sml::Frame end;
    end.type = sml::FrameType::kEnd;
    end.number = records_;
    end.record_bytes = bytes_;
    sml::put_frame_header(buffer_, end);
    flush();
  }

 private:
  void flush() {
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), stdout) != buffer_.size()) std::exit(1);
    buffer_.clear();
  }

  sml::Bytes buffer_;
  std::uint64_t records_ = 0;
  std::uint64_t bytes_ = 0;
};

void fill(std::mt19937_64& random, sml::Bytes& bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t value = random();
    std::memcpy(bytes.data() + at, &value, std::min<std::size_t>(8, bytes.size() - at));
  }
}

// Classes of unequal numbers, as ImageNet's; every name once, in no order.
void write_names(std::uint64_t count, std::uint64_t seed) {
  constexpr std::uint64_t kClasses = 1000;
  const sml::Permutation order(count, {sml::PermutationUse::kEpoch, seed, 0, 0});
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> wnids;
  for (std::uint64_t c = 0; c < kClasses; ++c)
    wnids.push_back(1440764 + c * 13000 + random() % 9000);
  FrameOutput out;
  sml::Bytes payload(8);
  char name[64];
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t id = order.apply(i);
    const std::uint64_t wnid = wnids[id % kClasses];
    const int length = std::snprintf(name, sizeof name, "train/n%08lu/n%08lu_%lu.JPEG", wnid, wnid,
                                     id / kClasses * 3 + id % 3);
    fill(random, payload);
    out.add({name, static_cast<std::size_t>(length)}, payload);
  }
  out.finish();
}

void write_records(std::uint64_t count, std::uint64_t bytes, std::uint64_t seed) {
  constexpr std::uint64_t kRecordsPerClass = 1300;
  std::mt19937_64 random(seed);
  FrameOutput out;
  sml::Bytes payload(bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    fill(random, payload);
    char name[64];
    const std::uint64_t wnid = 1440764 + i / kRecordsPerClass * 13;
    const int length = std::snprintf(name, sizeof name, "n%08lu/n%08lu_%lu.JPEG", wnid, wnid,
                                     i % kRecordsPerClass);
    out.add({name, static_cast<std::size_t>(length)}, payload);
  }
  out.finish();
}

std::uint64_t private_kib() {
  std::ifstream status("/proc/self/status");
  std::uint64_t kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0 || line.rfind("RssShmem:", 0) == 0)
      kib += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10);
  }
  return kib;
}

template <class Query>
double nanoseconds(std::uint64_t count, Query query) {
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) query(i);
  const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
  return taken.count() / static_cast<double>(count);
}

int measure_index(const char* path, std::uint64_t seed) {
  const auto opening = Clock::now();
  const sml::ContainerReader reader(std::make_shared<sml::FileSource>(path));
  const std::chrono::duration<double, std::milli> opened = Clock::now() - opening;
  const std::uint64_t memory = private_kib();
  const sml::Index& index = reader.index();
  const std::uint64_t queries = std::min<std::uint64_t>(index.records(), 500000);
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> numbers(queries);
  std::vector<std::string> present(queries);
  std::vector<std::string> absent(queries);
  for (std::uint64_t i = 0; i < queries; ++i) {
    numbers[i] = random() % index.records();
    index.key_of(random() % index.records(), present[i]);
    absent[i] = present[i];
    absent[i][absent[i].rfind('.') - 1] = 'x';
  }
  std::uint64_t found = 0;
  const double hit =
      nanoseconds(queries, [&](std::uint64_t i) { found += index.find(present[i]).has_value(); });
  if (found != queries) return 1;
  const double miss =
      nanoseconds(queries, [&](std::uint64_t i) { found -= !index.find(absent[i]).has_value(); });
  if (found != 0) return 1;
  std::uint64_t sum = 0;
  const double place =
      nanoseconds(queries, [&](std::uint64_t i) { sum += index.place(numbers[i]).offset; });
  std::printf("open\t%.3f\nprivate\t%lu\npresent\t%.1f\nabsent\t%.1f\nplace\t%.1f\n",
              opened.count(), memory, hit, miss, place);
  return sum == 0 ? 1 : 0;
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "names" && argc == 4) {
    write_names(number(argv[2]), number(argv[3]));
  } else if (what == "records" && argc == 5) {
    write_records(number(argv[2]), number(argv[3]), number(argv[4]));
  } else if (what == "index" && argc == 4) {
    return measure_index(argv[2], number(argv[3]));
  } else {
    std::fprintf(stderr,
                 "usage: bench_local names N SEED | records N BYTES SEED | index CONTAINER SEED\n");
    return 2;
  }
  return 0;
}
