#include "smlstore/block_cache.h"

#include <utility>

#include "cache_state.h"
#include "cached_blocks.h"
#include "index_cache.h"

namespace sml {

BlockCache::BlockCache(std::unique_ptr<CacheState> state) : state_(std::move(state)) {}
BlockCache::~BlockCache() = default;

void BlockCache::init(const std::string& directory, std::uint64_t bytes, bool group) {
  CacheState::init(directory, bytes, group);
}

std::shared_ptr<BlockCache> BlockCache::open(const std::string& directory,
                                             std::function<void(const std::string&)> on_warning) {
  auto state = CacheState::open(directory);
  if (!state) return nullptr;
  state->on_warning = std::move(on_warning);
  return std::shared_ptr<BlockCache>(new BlockCache(std::move(state)));
}

void BlockCache::count_indexes(const std::string& directory, CacheInfo& info) {
  count_kept_footers(directory, info.indexes, info.index_bytes);
}

std::uint64_t BlockCache::remove_indexes(const std::string& directory) {
  return remove_kept_footers(directory);
}

const std::string& BlockCache::directory() const noexcept { return state_->directory(); }
std::uint64_t BlockCache::limit_bytes() const noexcept { return state_->limit_bytes(); }

CacheInfo BlockCache::info() const {
  CacheInfo info = state_->info();
  count_indexes(state_->directory(), info);
  return info;
}

BlockCache::Removed BlockCache::trim(std::uint64_t bytes) { return state_->trim(bytes); }

std::shared_ptr<CachedBlocks> BlockCache::use(const Hash128& id, std::uint64_t blocks) {
  const std::lock_guard lock(state_->in_use_mutex);
  std::weak_ptr<CachedBlocks>& known = state_->in_use[id];
  if (auto there = known.lock()) return there;
  auto made = std::make_shared<CachedBlocks>(shared_from_this(), id, blocks);
  known = made;
  return made;
}

}  // namespace sml
