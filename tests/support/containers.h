// Containers for tests: built in memory from keys and contents, one call each, by the simplest use
// of the format library.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <stdlib.h>

#include "smlformat/block.h"
#include "smlformat/codec.h"
#include "smlformat/container_writer.h"
#include "smlformat/key.h"
#include "smlformat/permutation.h"

namespace sml::test {

struct Record {
  std::string key;
  std::string content;
};

struct ContainerOptions {
  PackOrder order = PackOrder::kRandom;
  Grouping grouping = Grouping::kNone;
  std::uint64_t seed = 0;
  std::uint32_t block_bytes = kMinBlockBytes;
  std::uint32_t align = 1;
  std::uint32_t piece_bytes = 0;  // 0: the largest
  std::uint32_t part = 0;
  std::uint32_t parts = 0;
  CompressionOptions::Mode compress = CompressionOptions::Mode::kNone;
  std::string dictionary;  // empty: none
  std::uint32_t tag = 0;
};

namespace detail {

// Keys in name order, with the numbers of their records.
class SortedNames final : public NameList {
 public:
  explicit SortedNames(std::vector<std::pair<std::string, std::uint64_t>> names)
      : names_(std::move(names)) {
    std::sort(names_.begin(), names_.end(),
              [](const auto& a, const auto& b) { return compare_names(a.first, b.first) < 0; });
  }
  std::uint64_t size() const override { return names_.size(); }
  std::string_view key(std::uint64_t rank) const override { return names_[rank].first; }
  std::uint64_t number(std::uint64_t rank) const override { return names_[rank].second; }

 private:
  std::vector<std::pair<std::string, std::uint64_t>> names_;
};

// The records, sample by sample, in the order in which they are packed.
inline std::vector<std::vector<Record>> pack_samples(std::vector<Record> records,
                                                     const ContainerOptions& options) {
  if (options.order != PackOrder::kInput) {
    std::sort(records.begin(), records.end(),
              [](const Record& a, const Record& b) { return compare_names(a.key, b.key) < 0; });
  }
  std::vector<std::vector<Record>> samples;
  for (Record& record : records) {
    const bool same = options.grouping == Grouping::kStem && !samples.empty() &&
                      key_stem(samples.back().front().key) == key_stem(record.key);
    if (!same) samples.emplace_back();
    samples.back().push_back(std::move(record));
  }
  if (options.order != PackOrder::kRandom) return samples;
  std::vector<std::vector<Record>> packed(samples.size());
  const Permutation permutation(samples.size(), {PermutationUse::kPack, options.seed, 0, 0});
  for (std::size_t i = 0; i < samples.size(); ++i)
    packed[permutation.apply(i)] = std::move(samples[i]);
  return packed;
}

}  // namespace detail

// The bytes of a sealed container. With options.order kInput, records of one stem must be adjacent
// where they are grouped.
inline Bytes build_container(const std::vector<Record>& records,
                             const ContainerOptions& options = {}) {
  Header header;
  header.seed = options.seed;
  header.block_bytes = options.block_bytes;
  header.align = options.align;
  header.piece_bytes = options.piece_bytes != 0
                           ? options.piece_bytes
                           : piece_bytes_of(options.block_bytes, options.align);
  header.part = options.part;
  header.parts = options.parts;
  header.order = options.order;
  header.grouping = options.grouping;
  header.tag = options.tag;

  MemorySink sink;
  ContainerWriter writer(sink, header);
  std::shared_ptr<const Dictionary> dictionary;
  if (!options.dictionary.empty()) {
    const ByteView bytes = as_bytes(options.dictionary);
    dictionary =
        std::make_shared<const Dictionary>(Bytes(bytes.begin(), bytes.end()), kDefaultZstdLevel);
    writer.append(build_dictionary_block(writer.header(), 0, bytes));
  }
  CompressionOptions compression;
  compression.mode = options.compress;
  Encoder encoder(compression, dictionary);

  std::vector<std::pair<std::string, std::uint64_t>> names;
  std::vector<bool> sample_starts;
  std::vector<EncodedRecord> block;  // under way
  std::vector<std::unique_ptr<Bytes>> stored;
  std::uint64_t first = 0;  // number of the block's first record
  const auto flush = [&] {
    if (!block.empty()) writer.append(build_block(writer.header(), writer.blocks(), first, block));
    first += block.size();
    block.clear();
  };
  const auto encode = [&](const std::string& key, std::string_view raw) {
    const Encoded encoded = encoder.encode(as_bytes(raw));
    stored.push_back(std::make_unique<Bytes>(encoded.stored.begin(), encoded.stored.end()));
    EncodedRecord out;
    out.key = key;
    out.key_hash = key_hash(key);
    out.raw_bytes = raw.size();
    out.codec = encoded.codec;
    out.stored = *stored.back();
    out.stored_crc32c = crc32c(out.stored);
    return out;
  };

  BlockCutter cutter(options.block_bytes, options.align);
  const std::vector<std::vector<Record>> samples = detail::pack_samples(records, options);
  for (const std::vector<Record>& sample : samples) {
    std::vector<EncodedRecord> encoded;
    std::vector<std::uint64_t> costs;
    for (const Record& record : sample) {
      const bool pieces = record.content.size() > header.piece_bytes;
      encoded.push_back(pieces ? EncodedRecord{} : encode(record.key, record.content));
      costs.push_back(pieces ? BlockCutter::kOwnBlocks : encoded.back().cost(options.align));
    }
    std::vector<bool> starts_block;
    cutter.place(costs, starts_block);
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const Record& record = sample[i];
      names.emplace_back(record.key, names.size());
      sample_starts.push_back(i == 0);
      if (starts_block[i]) flush();
      if (costs[i] != BlockCutter::kOwnBlocks) {
        block.push_back(encoded[i]);
        continue;
      }
      std::uint32_t piece = 0;
      for (std::size_t at = 0; at < record.content.size(); at += header.piece_bytes, ++piece) {
        const auto part =
            encode(record.key, std::string_view(record.content).substr(at, header.piece_bytes));
        writer.append(build_piece(writer.header(), writer.blocks(), first + (piece == 0 ? 0 : 1),
                                  part, record.content.size(), piece));
      }
      ++first;
    }
  }
  flush();
  if (options.grouping == Grouping::kNone) sample_starts.clear();
  writer.seal(detail::SortedNames(std::move(names)), sample_starts);
  return sink.bytes();
}

// A directory of its own that goes away with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "sml-test-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      throw std::runtime_error("no temporary directory: " + path);
    path_ = path;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file in it and returns its path.
  std::string write(std::string_view name, ByteView bytes) const {
    std::string path = file(name);
    std::ofstream out(path, std::ios::binary);
    out << as_text(bytes);
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
    return path;
  }

 private:
  std::string path_;
};

}  // namespace sml::test
