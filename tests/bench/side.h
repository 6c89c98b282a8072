// What all that bench_cache measures have in common: batches of records, asked for by their names.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "bench_cache: %s\n", what.c_str());
  std::_Exit(1);
}

// What is done with the bytes of each record.
enum class Look : std::uint8_t { kNothing, kTouch, kChecksum };

inline std::uint64_t look_at(sml::ByteView bytes, Look look) {
  if (look == Look::kNothing) return 0;
  if (look == Look::kChecksum) return sml::crc32c(bytes);
  std::uint64_t sum = 0;
  std::size_t at = 0;
  for (; at + sizeof sum <= bytes.size(); at += sizeof sum)
    sum += sml::load<std::uint64_t>(&bytes[at]);
  for (; at < bytes.size(); ++at) sum += std::to_integer<std::uint64_t>(bytes[at]);
  return sum;
}

// `names`: what the side calls the records; empty where it knows them by number.
struct Batch {
  std::span<const std::uint64_t> numbers;
  std::span<const std::string_view> names;
};

// For one thread.
class Side {
 public:
  virtual ~Side() = default;
  // Reads all, or fails. The sum of what was seen of each.
  virtual std::uint64_t read(const Batch& batch, Look look) = 0;
  // Reads that had to go to where the data set is.
  virtual std::uint64_t fetched() const { return 0; }
};
