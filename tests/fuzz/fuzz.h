// What the fuzz targets share: statements that must hold, the input taken apart, and a limit on
// memory. A target may end in sml::Error only; everything else that goes wrong ends the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "smlformat/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace sml::fuzz {

// Writes one line to standard error and aborts. Allocates nothing.
[[noreturn]] void fail(const char* what) noexcept;

inline void check(bool holds, const char* what) noexcept {
  if (!holds) fail(what);
}

// Fields from the front of an input; zeros behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  template <class T>
  T number() noexcept {
    T value = 0;
    const std::size_t bytes = std::min(sizeof value, rest_.size());
    if (bytes != 0) std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  ByteView take(std::size_t bytes) noexcept {
    const ByteView taken = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  ByteView rest() const noexcept { return rest_; }

 private:
  ByteView rest_;
};

// While it exists, this thread may have at most `bytes` more allocated than at its beginning;
// otherwise the process ends, at the allocation that is too much. One at a time.
//
// Under AddressSanitizer everything is counted; with other compilers what operator new gives.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes) noexcept;
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  // A new limit, from the beginning on.
  void set(std::uint64_t bytes) noexcept;
};

}  // namespace sml::fuzz
