// What the packer is tested with: lists and streams held in memory, and records of all kinds.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "smlstore/record_source.h"
#include "support/read_container.h"

namespace sml::test {

class TestList final : public RecordList {
 public:
  explicit TestList(Records records) : records_(std::move(records)) {}
  std::set<std::string> unreadable;
  mutable std::atomic<std::uint64_t> reads = 0;

  std::uint64_t size() const override { return records_.size(); }
  std::string_view key(std::uint64_t i) const override { return records_[i].first; }
  std::uint64_t bytes(std::uint64_t i) const override { return records_[i].second.size(); }
  std::string origin(std::uint64_t i) const override { return "origin" + std::to_string(i); }
  void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const override {
    ++reads;
    if (unreadable.contains(records_[i].first)) {
      throw Error(ErrorCode::kIo, records_[i].first + ": unreadable");
    }
    std::copy_n(as_bytes(records_[i].second).begin() + static_cast<std::ptrdiff_t>(offset),
                out.size(), out.begin());
  }

 private:
  Records records_;
};

class TestStream final : public RecordStream {
 public:
  TestStream(Records records, bool sizes_known)
      : records_(std::move(records)), sizes_known_(sizes_known) {}

  bool next(Record& record) override {
    if (next_ == records_.size()) return false;
    record.key = records_[next_].first;
    record.origin = "stream: " + record.key;
    record.bytes =
        sizes_known_ ? std::optional<std::uint64_t>(records_[next_].second.size()) : std::nullopt;
    ++next_;
    offset_ = 0;
    return true;
  }
  std::size_t read(MutableBytes out) override {
    const std::string& data = records_[next_ - 1].second;
    const std::size_t bytes = std::min(out.size(), data.size() - offset_);
    std::copy_n(as_bytes(data).begin() + static_cast<std::ptrdiff_t>(offset_), bytes, out.begin());
    offset_ += bytes;
    return bytes;
  }

 private:
  Records records_;
  bool sizes_known_;
  std::size_t next_ = 0;
  std::size_t offset_ = 0;
};

inline constexpr unsigned kSeed = 20261130;

inline std::string random_text(std::mt19937& random, std::size_t bytes) {
  static const char* const kWords[] = {"block ", "record ", "sample ", "order ",
                                       "index ", "\n",      "lane ",   "store "};
  std::string text;
  while (text.size() < bytes) text += kWords[random() % 8];
  text.resize(bytes);
  return text;
}

inline std::string random_noise(std::mt19937& random, std::size_t bytes) {
  std::string noise(bytes, '\0');
  for (char& c : noise) c = static_cast<char>(random() & 0xff);
  return noise;
}

// Records of all kinds: empty, text, noise, larger than a piece and than two; samples of several
// records.
inline Records mixed_records(int files = 400) {
  MESSAGE("seed ", kSeed);
  std::mt19937 random(kSeed);
  Records records;
  for (int i = 0; i < files; ++i) {
    const std::string stem = "d" + std::to_string(i % 7) + "/" + std::to_string(random() % 100000) +
                             "_" + std::to_string(i);
    records.emplace_back(stem + ".txt", random_text(random, random() % 3000));
    if (i % 3 == 0) records.emplace_back(stem + ".bin", random_noise(random, random() % 5000));
    if (i % 5 == 0) records.emplace_back(stem + ".cls", "");
    if (i % 50 == 0) records.emplace_back(stem + ".large.txt", random_text(random, 150000));
    if (i % 60 == 0)
      records.emplace_back(stem + ".large.bin", random_noise(random, 60000 + random() % 60000));
  }
  return records;
}

}  // namespace sml::test
