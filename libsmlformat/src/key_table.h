// The key table: from a key's hash to the numbers of the records that may have the key. Encoding:
// format-spec/index.md.
#pragma once

#include <cstdint>
#include <span>

#include "smlformat/bytes.h"

namespace sml {

struct KeyTableSections {
  Bytes buckets;
  Bytes rows;
};

class KeyTable {
 public:
  KeyTable() = default;
  // Throws kCorrupt unless both sections have the sizes that `records` needs.
  KeyTable(ByteView buckets, ByteView rows, std::uint64_t records);

  // Calls visit(number) for each record that may have this hash, until it returns true. Numbers are
  // below `records`. Throws kCorrupt.
  template <class Visit>
  void find(std::uint64_t hash, Visit visit) const {
    const auto [first, last] = bucket(hash);
    const std::uint64_t wanted = fingerprint(hash);
    for (std::uint64_t i = first; i < last; ++i) {
      const std::uint64_t row = this->row(i);
      if (row >> number_bits_ != wanted) continue;
      const std::uint64_t number = row & number_mask_;
      if (number < records_ && visit(number)) return;
    }
  }

  // hashes[number] is the hash of that record's key.
  static KeyTableSections encode(std::span<const std::uint64_t> hashes);

 private:
  void set_shape(std::uint64_t records) noexcept;
  std::pair<std::uint64_t, std::uint64_t> bucket(std::uint64_t hash) const;
  std::uint64_t bucket_number(std::uint64_t hash) const noexcept;
  std::uint64_t fingerprint(std::uint64_t hash) const noexcept { return hash & fingerprint_mask_; }
  std::uint64_t row(std::uint64_t i) const noexcept {
    return load<std::uint64_t>(rows_ + i * row_bytes_) & row_mask_;
  }

  const std::byte* buckets_ = nullptr;
  const std::byte* rows_ = nullptr;
  std::uint64_t records_ = 0;
  std::uint64_t bucket_count_ = 0;
  std::uint64_t number_mask_ = 0;
  std::uint64_t fingerprint_mask_ = 0;
  std::uint64_t row_mask_ = 0;
  unsigned number_bits_ = 0;
  unsigned row_bytes_ = 0;
};

}  // namespace sml
