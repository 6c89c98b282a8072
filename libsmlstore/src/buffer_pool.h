// Memory for reads, used again: what comes fresh from the system costs a page fault for every 4
// KiB, as much time as copying the bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "smlformat/bytes.h"

namespace sml {

// Safe for threads.
class BufferPool {
 public:
  // most_idle_bytes: what is kept for later, at most.
  explicit BufferPool(std::uint64_t most_idle_bytes) : most_idle_bytes_(most_idle_bytes) {}

  // A buffer of this size; its capacity may be an eighth larger. Its bytes mean nothing.
  Buffer take(std::size_t bytes) {
    Buffer buffer;
    {
      const std::lock_guard lock(mutex_);
      const auto fits = [bytes](const Buffer& idle) {
        return idle.capacity() >= bytes && idle.capacity() - bytes <= bytes / 8;
      };
      const auto found = std::find_if(idle_.rbegin(), idle_.rend(), fits);
      if (found != idle_.rend()) {
        buffer = std::move(*found);
        idle_.erase(std::next(found).base());
        idle_bytes_ -= buffer.capacity();
      }
    }
    buffer.resize(bytes);
    return buffer;
  }

  // Keeps it in place of those that have been idle for longest.
  void give_back(Buffer buffer) {
    // The allocator is good at small ones.
    if (buffer.capacity() < kSmallBytes || buffer.capacity() > most_idle_bytes_) return;
    std::vector<Buffer> freed;
    const std::lock_guard lock(mutex_);
    idle_bytes_ += buffer.capacity();
    idle_.push_back(std::move(buffer));
    while (idle_bytes_ > most_idle_bytes_) {
      idle_bytes_ -= idle_.front().capacity();
      freed.push_back(std::move(idle_.front()));
      idle_.erase(idle_.begin());
    }
  }

  std::uint64_t idle_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return idle_bytes_;
  }

 private:
  static constexpr std::size_t kSmallBytes = 64U << 10;

  const std::uint64_t most_idle_bytes_;
  mutable std::mutex mutex_;
  std::vector<Buffer> idle_;  // the oldest first
  std::uint64_t idle_bytes_ = 0;
};

}  // namespace sml
