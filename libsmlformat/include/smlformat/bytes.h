// Bytes in, bytes out: views, little-endian fields, variable-length integers, and the two
// interfaces through which the format library touches the world (positional read, append).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sml {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Memory for buffers of kLargeBuffer bytes and more: in large pages where the system has them, so
// that the first use of each does not cost as much as what is done with it. Throws std::bad_alloc.
inline constexpr std::size_t kLargeBuffer = 2U << 20;
void* allocate_large(std::size_t bytes);
void free_large(void* memory) noexcept;

// Memory to be filled by whoever asked for it: growing does not write zeros first.
template <class T>
struct Uninitialized : std::allocator<T> {
  T* allocate(std::size_t count) {
    if (count < kLargeBuffer / sizeof(T)) return std::allocator<T>::allocate(count);
    if (count > PTRDIFF_MAX / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(allocate_large(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) {
    if (count < kLargeBuffer / sizeof(T)) return std::allocator<T>::deallocate(memory, count);
    free_large(memory);
  }
  template <class U>
  struct rebind {  // NOLINT(readability-identifier-naming): the standard's name for it
    using other = Uninitialized<U>;
  };
  template <class U>
  void construct(U* p) noexcept(std::is_nothrow_default_constructible_v<U>) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
  }
};
using Buffer = std::vector<std::byte, Uninitialized<std::byte>>;

inline ByteView as_bytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteView bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

static_assert(std::endian::native == std::endian::little,
              "the on-disk encoding is mapped and used in place: little-endian hosts only");

// Unaligned little-endian access; the caller has checked the bounds.
template <class T>
T load(const void* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

// LEB128, at most 10 bytes.
void put_varint(Bytes& out, std::uint64_t value);
// Reads one varint at the front of `in` and removes it. False where `in` ends too early or the
// value does not fit 64 bits.
bool get_varint(ByteView& in, std::uint64_t& value) noexcept;

inline std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

// A range to read, and where to.
struct ReadRange {
  std::uint64_t offset = 0;
  MutableBytes out;
};

// A byte string of known size, read by position. Safe for several threads at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `out` from `offset`. Throws kTruncated where the bytes end before, kIo where reading
  // fails.
  virtual void read(std::uint64_t offset, MutableBytes out) const = 0;
  // Fills ranges of one block of a container, then calls `done` once: with null, or with what
  // read() would have thrown. A source that is far away returns at once and calls `done` from a
  // thread of its own, which must not be held up; any other reads now and calls it before
  // returning. The memory of the ranges must last until then; `ranges` itself need not.
  virtual void start_read(std::span<const ReadRange> ranges,
                          std::function<void(std::exception_ptr)> done) const;
  // The bytes in place, valid as long as the source; empty where this source has no mapping (then
  // `read`). The range lies within size(). The pages are not touched.
  virtual ByteView view(std::uint64_t offset, std::uint64_t bytes) const {
    (void)offset;
    (void)bytes;
    return {};
  }
};

// A range of a source's bytes, in place where the source has a mapping, else read. Keeps the source
// by reference only.
class SourceBytes {
 public:
  SourceBytes() = default;
  // Throws as ByteSource::read().
  SourceBytes(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes)
      : view_(source.view(offset, bytes)) {
    if (view_.size() == bytes) return;
    copy_.resize(bytes);
    source.read(offset, copy_);
    view_ = copy_;
  }
  SourceBytes(SourceBytes&&) noexcept = default;  // a moved vector keeps its bytes in place
  SourceBytes& operator=(SourceBytes&&) noexcept = default;
  SourceBytes(const SourceBytes&) = delete;
  SourceBytes& operator=(const SourceBytes&) = delete;
  ~SourceBytes() = default;

  ByteView operator*() const noexcept { return view_; }

 private:
  Buffer copy_;
  ByteView view_;
};

// Where a container's bytes go, in order. Used by one thread. Throws kIo.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // The header comes in one call.
  virtual void append(ByteView bytes) = 0;
  // A block, whose CRC32C is known.
  virtual void append_block(ByteView bytes, std::uint32_t /*crc32c*/) { append(bytes); }
  // What comes from here on, until restart(), is padding, footer and tail.
  virtual void begin_footer() {}
  // Forgets everything appended so far. Throws kIo, kUnsupported.
  virtual void restart() = 0;
};

// A source over bytes that the caller keeps alive.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(ByteView bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, MutableBytes out) const override;
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override {
    return bytes_.subspan(offset, bytes);
  }

 private:
  ByteView bytes_;
};

// A sink that keeps everything.
class MemorySink final : public ByteSink {
 public:
  void append(ByteView bytes) override { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void restart() override { bytes_.clear(); }
  const Bytes& bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace sml
