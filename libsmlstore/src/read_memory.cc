#include "read_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <sys/mman.h>

namespace sml {

ReadMemory::Region::Region(std::uint64_t bytes) : bytes_(bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  ::madvise(at, bytes, MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(at);
  free_.emplace(0, bytes);
}

ReadMemory::Region::~Region() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

std::byte* ReadMemory::Region::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto gap = std::find_if(free_.begin(), free_.end(),
                                [bytes](const auto& one) { return one.second >= bytes; });
  if (gap == free_.end()) return nullptr;
  const std::uint64_t offset = gap->first;
  const std::uint64_t left = gap->second - bytes;
  free_.erase(gap);
  if (left > 0) free_.emplace(offset + bytes, left);
  return memory_ + offset;
}

void ReadMemory::Region::give_back(const std::byte* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto offset = static_cast<std::uint64_t>(begin - memory_);
  std::uint64_t size = bytes;
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, size);
}

ReadMemory::ReadMemory(std::uint64_t bytes)
    : region_(std::make_shared<Region>(round_up(std::max<std::uint64_t>(bytes, 1), kPage))) {}

ReadMemory::Piece ReadMemory::take(std::size_t bytes) {
  if (bytes == 0) return {};
  if (bytes >= kSmallBytes) {
    if (std::byte* const memory = region_->take(round_up(bytes, kPage)))
      return Piece(region_, {memory, bytes});
  }
  return Piece(nullptr, {static_cast<std::byte*>(::operator new(bytes)), bytes});
}

ReadMemory::Piece::Piece(Piece&& other) noexcept
    : region_(std::move(other.region_)), bytes_(std::exchange(other.bytes_, {})) {}

ReadMemory::Piece& ReadMemory::Piece::operator=(Piece&& other) noexcept {
  std::swap(region_, other.region_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ReadMemory::Piece::~Piece() {
  if (region_) {
    region_->give_back(bytes_.data(), capacity());
  } else {
    ::operator delete(bytes_.data());
  }
}

std::size_t ReadMemory::Piece::capacity() const noexcept {
  return region_ ? round_up(bytes_.size(), kPage) : bytes_.size();
}

}  // namespace sml
