// The keys of many records at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "smlstore/dataset.h"

namespace sml {

// Names are stored in pages of 32, and a page takes as long to decode as a key that is asked for
// alone. So the records of a batch are sorted by page, and each page is decoded once: with a
// million records of ten million some 0.2 us a key instead of 1. For one thread (its workers are
// its own).
class KeyBatch {
 public:
  // Records of a batch, at most.
  static constexpr std::size_t kMaxRecords = std::size_t{1} << 21;

  // The data set must outlive it. threads 0: one per processor; they are started by the first large
  // batch.
  explicit KeyBatch(const Dataset& dataset, unsigned threads = 0);
  ~KeyBatch();
  KeyBatch(const KeyBatch&) = delete;
  KeyBatch& operator=(const KeyBatch&) = delete;

  // Records that a batch should have, at most, so that its keys take some 96 MiB if they are as
  // long as the data set's are on average.
  std::size_t limit() const noexcept;

  // Replaces the batch. At most kMaxRecords numbers, each below dataset.records(); the same may
  // come again. Memory: 48 bytes and the key for each. Throws kCorrupt, naming the container.
  void load(std::span<const std::uint64_t> numbers);

  // The key of numbers[i], valid until the next load().
  std::string_view operator[](std::size_t i) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sml
