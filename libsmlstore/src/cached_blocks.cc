#include "cached_blocks.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "cache_state.h"

namespace sml {

BlockClaim& BlockClaim::operator=(BlockClaim&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(lock_, other.lock_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void BlockClaim::give_back_room() noexcept {
  if (cache_) cache_->state().give_back_room(bytes_);
  bytes_ = 0;
}

BlockClaim::~BlockClaim() {
  if (cache_) cache_->state().end_fetch(lock_, bytes_);
}

CachedBlocks::CachedBlocks(std::shared_ptr<BlockCache> cache, const Hash128& id,
                           std::uint64_t blocks)
    : cache_(std::move(cache)), id_(id), hex_(id.hex()), mapped_(blocks), recent_(blocks) {
  cache_->state().begin_use(id_);
}

CachedBlocks::~CachedBlocks() {
  cache_->state().mappings().remove_of(this);
  cache_->state().end_use(id_);
}

std::shared_ptr<const MappingPin> CachedBlocks::pin() const {
  cache_->state().follow_generation();
  return cache_->state().mappings().pin();
}

const std::byte* CachedBlocks::map(std::uint64_t block, std::uint64_t bytes) noexcept {
  const FileDescriptor fd = cache_->state().open_block(hex_, block);
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) != bytes)
    return nullptr;
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  return cache_->state().mappings().add(this, {&mapped_[block], &recent_[block]},
                                        static_cast<const std::byte*>(at), bytes);
}

std::string CachedBlocks::path(std::uint64_t block) const {
  return cache_->directory() + "/blocks/" + hex_ + "/" + cached_block_name(block);
}

bool CachedBlocks::has(std::uint64_t block) const noexcept {
  return mapped_[block].load(std::memory_order_relaxed) != nullptr ||
         cache_->state().has_block(hex_, block);
}

CachedBlocks::Claim CachedBlocks::claim(std::uint64_t block, std::uint64_t bytes, BlockClaim& out) {
  CacheState& state = cache_->state();
  if (!state.has_room(bytes)) return Claim::kNoRoom;
  const std::uint64_t lock = CacheState::fetch_lock(id_, block);
  if (!state.try_fetch(lock, bytes)) return Claim::kBusy;
  out = BlockClaim(cache_, lock, bytes);
  if (!has(block)) return Claim::kMine;
  out = BlockClaim();
  return Claim::kThere;
}

CachedBlocks::Kept CachedBlocks::keep(BlockClaim& claim, std::uint64_t block, ByteView bytes,
                                      std::uint32_t expected_crc32c) {
  if (crc32c(bytes) != expected_crc32c) return Kept::kDamaged;
  claim.give_back_room();
  return cache_->state().keep_block(hex_, block, bytes) ? Kept::kKept : Kept::kNoRoom;
}

bool CachedBlocks::drop(std::uint64_t block, const std::byte* damaged) {
  if (mapped_[block].load(std::memory_order_acquire) != damaged) return false;
  const bool dropped = cache_->state().drop_block(hex_, block);
  // What it was mapped from has no name any more, whoever unlinked it.
  cache_->state().mappings().remove({&mapped_[block], &recent_[block]}, damaged);
  return dropped;
}

bool CachedBlocks::drop_misfit(std::uint64_t block, std::uint64_t bytes) {
  const FileDescriptor fd = cache_->state().open_block(hex_, block);
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 ||
      (S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) == bytes))
    return false;
  return cache_->state().drop_block(hex_, block);
}

}  // namespace sml
