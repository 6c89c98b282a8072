#include "key_table.h"

#include <bit>

#include "smlformat/error.h"

namespace sml {
namespace {

constexpr std::uint64_t kRecordsPerBucket = 16;
constexpr unsigned kMinFingerprintBits = 7;
constexpr std::size_t kRowSlack = 8;  // zeros behind the rows, so that a row is read by one load

}  // namespace

void KeyTable::set_shape(std::uint64_t records) noexcept {
  records_ = records;
  bucket_count_ = records / kRecordsPerBucket + 1;
  number_bits_ = records < 2 ? 0 : static_cast<unsigned>(std::bit_width(records - 1));
  row_bytes_ = (number_bits_ + kMinFingerprintBits + 7) / 8;
  row_mask_ = (std::uint64_t{1} << (8 * row_bytes_)) - 1;
  number_mask_ = (std::uint64_t{1} << number_bits_) - 1;
  fingerprint_mask_ = row_mask_ >> number_bits_;
}

std::uint64_t KeyTable::bucket_number(std::uint64_t hash) const noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{hash} * bucket_count_) >> 64);
}

KeyTable::KeyTable(ByteView buckets, ByteView rows, std::uint64_t records)
    : buckets_(buckets.data()), rows_(rows.data()) {
  set_shape(records);
  if (buckets.size() != (bucket_count_ + 1) * sizeof(std::uint32_t) ||
      rows.size() != records * row_bytes_ + kRowSlack) {
    throw Error(ErrorCode::kCorrupt, "index: the key table has a wrong size");
  }
}

std::pair<std::uint64_t, std::uint64_t> KeyTable::bucket(std::uint64_t hash) const {
  const std::byte* at = buckets_ + bucket_number(hash) * sizeof(std::uint32_t);
  const std::uint64_t first = load<std::uint32_t>(at);
  const std::uint64_t last = load<std::uint32_t>(at + sizeof(std::uint32_t));
  if (first > last || last > records_)
    throw Error(ErrorCode::kCorrupt, "index: the key table is damaged");
  return {first, last};
}

KeyTableSections KeyTable::encode(std::span<const std::uint64_t> hashes) {
  KeyTable shape;
  shape.set_shape(hashes.size());
  KeyTableSections out;
  out.buckets.resize((shape.bucket_count_ + 1) * sizeof(std::uint32_t));
  out.rows.resize(hashes.size() * shape.row_bytes_ + kRowSlack);

  // A counting sort: next[b] becomes the place of the next row of bucket b.
  std::vector<std::uint32_t> next(shape.bucket_count_ + 1);
  for (const std::uint64_t hash : hashes) ++next[shape.bucket_number(hash) + 1];
  for (std::size_t b = 1; b < next.size(); ++b) next[b] += next[b - 1];
  std::memcpy(out.buckets.data(), next.data(), out.buckets.size());
  for (std::uint64_t number = 0; number < hashes.size(); ++number) {
    const std::uint64_t hash = hashes[number];
    const std::uint64_t row = shape.fingerprint(hash) << shape.number_bits_ | number;
    std::byte* at =
        out.rows.data() + std::uint64_t{next[shape.bucket_number(hash)]++} * shape.row_bytes_;
    std::memcpy(at, &row, shape.row_bytes_);
  }
  return out;
}

}  // namespace sml
