#include "smlformat/checksum.h"

#include <algorithm>

#include <isa-l/crc.h>

// Inlined, so that the short keys of the key table cost no call into the shared library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sml {

std::uint32_t crc32c(ByteView bytes, std::uint32_t previous) noexcept {
  // ISA-L works on the register without the inversions of the standard, and counts bytes with an
  // int.
  constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;
  std::uint32_t state = ~previous;
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kMaxPieceBytes);
    // It does not write; its parameter merely lacks the const.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(piece), state);
    bytes = bytes.subspan(piece);
  }
  return ~state;
}

std::uint64_t xxh3_64(ByteView bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string Hash128::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (std::size_t i = 0; i < 16; ++i) {
    text[i] = kDigits[(high >> (60 - 4 * i)) & 15];
    text[16 + i] = kDigits[(low >> (60 - 4 * i)) & 15];
  }
  return text;
}

}  // namespace sml
