// Memory for reads, used again and again: what comes fresh from the system costs as much time as
// what is done with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "smlformat/bytes.h"

namespace sml {

// Address space of a fixed size, of which the lowest bytes that are free are taken first, so that
// it touches little more than is in use at a time. In large pages where the system has them. Safe
// for threads.
class ReadMemory {
  class Region;

 public:
  // A piece of it; given back at the end, also when the ReadMemory has ended before.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept;
    Piece& operator=(Piece&& other) noexcept;
    ~Piece();

    // Mean nothing at first.
    MutableBytes bytes() const noexcept { return bytes_; }
    // What it takes.
    std::size_t capacity() const noexcept;

   private:
    friend class ReadMemory;
    Piece(std::shared_ptr<Region> region, MutableBytes bytes)
        : region_(std::move(region)), bytes_(bytes) {}

    std::shared_ptr<Region> region_;  // null: from the heap
    MutableBytes bytes_;
  };

  explicit ReadMemory(std::uint64_t bytes);

  // From the heap where it is small, or where no gap is large enough. Throws std::bad_alloc.
  Piece take(std::size_t bytes);

 private:
  static constexpr std::size_t kSmallBytes = 64U << 10;  // the heap is good at these
  static constexpr std::size_t kPage = 4096;

  class Region {
   public:
    explicit Region(std::uint64_t bytes);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    std::byte* take(std::size_t bytes);  // null: no gap is large enough
    void give_back(const std::byte* begin, std::size_t bytes);

   private:
    std::byte* memory_ = nullptr;
    std::uint64_t bytes_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::uint64_t> free_;  // offset and size; none touches another
  };

  std::shared_ptr<Region> region_;
};

}  // namespace sml
