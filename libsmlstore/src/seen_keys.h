// The keys of records that come one after another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "name_sort.h"
#include "smlformat/container_writer.h"
#include "smlformat/key.h"

namespace sml {

// Keys (or stems) by number, and which have been seen: what is kept of records that come one after
// another. For one thread.
class SeenKeys final : public NameList {
 public:
  explicit SeenKeys(std::pmr::memory_resource* memory)
      : text_(memory), ends_(memory), by_name_(memory), table_(memory) {}

  std::uint64_t size() const override { return ends_.size(); }
  std::string_view key(std::uint64_t rank) const override { return key_of(by_name_[rank]); }
  std::uint64_t number(std::uint64_t rank) const override { return by_name_[rank]; }

  std::string_view key_of(std::uint32_t number) const {
    const std::uint64_t begin = number == 0 ? 0 : ends_[number - 1];
    return {text_.data() + begin, ends_[number] - begin};
  }

  // False where the key is there already.
  bool add(std::string_view key) {
    if (2 * (ends_.size() + 1) > table_.size()) grow();
    std::uint32_t* place = find(key);
    if (*place != 0) return false;
    text_.insert(text_.end(), key.begin(), key.end());
    ends_.push_back(text_.size());
    *place = static_cast<std::uint32_t>(ends_.size());
    return true;
  }

  // After the last add().
  void sort() {
    table_.clear();
    table_.shrink_to_fit();
    by_name_.resize(ends_.size());
    for (std::uint32_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
    sort_by_name(by_name_, [this](std::uint32_t i) { return key_of(i); });
  }

 private:
  // The key's place in the table: its number plus one, or zero where it is free. Linear probing.
  std::uint32_t* find(std::string_view key) {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t i = key_hash(key) & mask;; i = (i + 1) & mask) {
      if (table_[i] == 0 || key_of(table_[i] - 1) == key) return &table_[i];
    }
  }

  void grow() {
    table_.assign(std::max<std::size_t>(1024, 2 * table_.size()), 0);
    for (std::uint32_t i = 0; i < ends_.size(); ++i) *find(key_of(i)) = i + 1;
  }

  std::pmr::vector<char> text_;
  std::pmr::vector<std::uint64_t> ends_;
  std::pmr::vector<std::uint32_t> by_name_;
  std::pmr::vector<std::uint32_t> table_;
};

}  // namespace sml
