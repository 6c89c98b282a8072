#include "smlformat/bytes.h"

#include <string>

#include <sys/mman.h>

#include "smlformat/error.h"

namespace sml {
namespace {

constexpr std::size_t kLargePage = 2U << 20;  // on x86-64 and AArch64

}  // namespace

void* allocate_large(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, kLargePage);
  void* const memory = ::operator new (whole, std::align_val_t{kLargePage});
  ::madvise(memory, whole, MADV_HUGEPAGE);
  return memory;
}

void free_large(void* memory) noexcept { ::operator delete (memory, std::align_val_t{kLargePage}); }

void put_varint(Bytes& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<std::byte>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<std::byte>(value));
}

bool get_varint(ByteView& in, std::uint64_t& value) noexcept {
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < in.size() && i < 10; ++i) {
    const auto byte = std::to_integer<std::uint64_t>(in[i]);
    if (i == 9 && byte > 1) return false;
    result |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      value = result;
      in = in.subspan(i + 1);
      return true;
    }
  }
  return false;
}

void ByteSource::start_read(std::span<const ReadRange> ranges,
                            std::function<void(std::exception_ptr)> done) const {
  std::exception_ptr error;
  try {
    for (const ReadRange& range : ranges) read(range.offset, range.out);
  } catch (...) {
    error = std::current_exception();
  }
  done(error);
}

void MemorySource::read(std::uint64_t offset, MutableBytes out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    throw Error(ErrorCode::kTruncated, "read of " + std::to_string(out.size()) + " bytes at " +
                                           std::to_string(offset) + " ends after the last byte (" +
                                           std::to_string(bytes_.size()) + ")");
  }
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

}  // namespace sml
