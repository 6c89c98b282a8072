// The blocks of one container in the block cache: found in place, claimed, kept.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlstore/block_cache.h"

namespace sml {

// Of a block that another process fetches: how often to look, and how long before it is fetched
// here as well.
inline constexpr std::chrono::milliseconds kLookAtBusy{2};
inline constexpr std::chrono::seconds kLongestBusy{5};

// Keeps what is mapped in place while it lives: whatever find() gave since it was taken.
class MappingPin;

// The right to fetch a block, which nobody else on this machine does meanwhile, and room for it.
// Not to be taken across a fork.
class BlockClaim {
 public:
  BlockClaim() = default;
  BlockClaim(std::shared_ptr<BlockCache> cache, std::uint64_t lock, std::uint64_t bytes)
      : cache_(std::move(cache)), lock_(lock), bytes_(bytes) {}
  BlockClaim(BlockClaim&&) noexcept = default;
  BlockClaim& operator=(BlockClaim&& other) noexcept;
  ~BlockClaim();

  // Gives back the room: what is fetched is about to take it.
  void give_back_room() noexcept;

 private:
  std::shared_ptr<BlockCache> cache_;
  std::uint64_t lock_ = 0;
  std::uint64_t bytes_ = 0;
};

// Safe for threads.
class CachedBlocks {
 public:
  CachedBlocks(std::shared_ptr<BlockCache> cache, const Hash128& id, std::uint64_t blocks);
  ~CachedBlocks();
  CachedBlocks(const CachedBlocks&) = delete;
  CachedBlocks& operator=(const CachedBlocks&) = delete;

  // To be taken before find(), for as long as its results are used; one for many calls.
  std::shared_ptr<const MappingPin> pin() const;

  // The block in place; null where it is not in the cache, or has not `bytes` bytes. Pages are not
  // touched. Once mapped, this is a load.
  const std::byte* find(std::uint64_t block, std::uint64_t bytes) noexcept {
    const std::byte* const at = mapped_[block].load(std::memory_order_acquire);
    if (at == nullptr) return map(block, bytes);
    if (recent_[block].load(std::memory_order_relaxed) == 0)
      recent_[block].store(1, std::memory_order_relaxed);
    return at;
  }
  // Of the file that a block has, or would have.
  std::string path(std::uint64_t block) const;
  // Whether it is there; less work than find() where it is not mapped yet.
  bool has(std::uint64_t block) const noexcept;

  enum class Claim : std::uint8_t {
    kThere,   // somebody was faster
    kMine,    // to be fetched, then kept
    kBusy,    // somebody fetches it
    kNoRoom,  // it cannot be kept
  };
  Claim claim(std::uint64_t block, std::uint64_t bytes, BlockClaim& out);
  enum class Kept : std::uint8_t { kKept, kDamaged, kNoRoom };
  // Keeps a claimed block, if its checksum is the one that the index has.
  Kept keep(BlockClaim& claim, std::uint64_t block, ByteView bytes, std::uint32_t expected_crc32c);
  // Unlinks one that is damaged, as find() gave it; false where it is another one by now.
  bool drop(std::uint64_t block, const std::byte* damaged);
  // Unlinks one that has not `bytes` bytes; false where none is there that has not.
  bool drop_misfit(std::uint64_t block, std::uint64_t bytes);

 private:
  const std::byte* map(std::uint64_t block, std::uint64_t bytes) noexcept;

  std::shared_ptr<BlockCache> cache_;
  Hash128 id_;
  std::string hex_;  // of the id
  std::vector<std::atomic<const std::byte*>> mapped_;
  std::vector<std::atomic<std::uint8_t>> recent_;  // used since the last look, to find the others
};

}  // namespace sml
