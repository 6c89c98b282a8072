// CRC32C (Castagnoli, as in RFC 3720; ISA-L) guards every record; XXH3 gives identities.
// All functions are pure and safe for any number of threads.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "smlformat/bytes.h"

namespace sml {

// CRC32C of `bytes`; with `previous`, of what gave `previous` followed by `bytes`. crc32c({}) is 0.
// The standard value: crc32c("123456789") == 0xe3069283.
std::uint32_t crc32c(ByteView bytes, std::uint32_t previous = 0) noexcept;

// XXH3-64 with seed 0.
std::uint64_t xxh3_64(ByteView bytes) noexcept;

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  auto operator<=>(const Hash128&) const = default;
  // 32 lower-case hex digits, most significant first (XXH128's canonical order).
  std::string hex() const;
};

// XXH3-128 with seed 0.
Hash128 xxh3_128(ByteView bytes) noexcept;

}  // namespace sml
