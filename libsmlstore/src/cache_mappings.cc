#include "cache_mappings.h"

#include <utility>

#include <sys/mman.h>

namespace sml {

MappingPin::~MappingPin() {
  for (const Unmapped& one : unmapped_) ::munmap(const_cast<std::byte*>(one.at), one.bytes);
  // A long chain must not end in as many nested calls.
  std::shared_ptr<MappingPin> next = std::move(next_);
  while (next && next.use_count() == 1) {
    // With what others wrote before they let it go.
    std::atomic_thread_fence(std::memory_order_acquire);
    std::shared_ptr<MappingPin> after = std::move(next->next_);
    next = std::move(after);
  }
}

CacheMappings::~CacheMappings() {
  for (std::size_t i = entries_.size(); i-- > 0;) unmap(i);
}

std::shared_ptr<const MappingPin> CacheMappings::pin() const {
  const std::lock_guard lock(mutex_);
  return pin_;
}

// To be called with the lock held, as advance() after one or more.
void CacheMappings::unmap(std::size_t entry) {
  const Entry& one = entries_[entry];
  one.place.at->store(nullptr, std::memory_order_release);
  pin_->unmapped_.push_back({one.at, one.bytes});
  entries_[entry] = entries_.back();
  entries_.pop_back();
}

void CacheMappings::advance() {
  auto next = std::make_shared<MappingPin>();
  pin_->next_ = next;
  pin_ = std::move(next);
}

const std::byte* CacheMappings::add(const void* owner, Place place, const std::byte* at,
                                    std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const std::byte* const there = place.at->load(std::memory_order_acquire)) {
    ::munmap(const_cast<std::byte*>(at), bytes);
    return there;
  }
  if (entries_.size() >= kMost) {
    // A clock: the first one that nobody has used since the hand came by last.
    for (;; ++hand_) {
      if (hand_ >= entries_.size()) hand_ = 0;
      if (entries_[hand_].place.recent->exchange(0, std::memory_order_relaxed) == 0) break;
    }
    unmap(hand_);
    advance();
  }
  entries_.push_back({owner, place, at, bytes});
  place.recent->store(1, std::memory_order_relaxed);
  place.at->store(at, std::memory_order_release);
  return at;
}

void CacheMappings::remove(Place place, const std::byte* at) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].place.at != place.at || entries_[i].at != at) continue;
    unmap(i);
    return advance();
  }
}

void CacheMappings::remove_all() {
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) return;
  for (std::size_t i = entries_.size(); i-- > 0;) unmap(i);
  advance();
}

void CacheMappings::remove_of(const void* owner) {
  const std::lock_guard lock(mutex_);
  const std::size_t before = entries_.size();
  for (std::size_t i = before; i-- > 0;) {
    if (entries_[i].owner == owner) unmap(i);
  }
  if (entries_.size() != before) advance();
}

}  // namespace sml
