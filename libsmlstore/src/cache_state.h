// A cache directory that has room for blocks: its state, its locks, what is counted and what is
// removed. Byte by byte in format-spec/cache.md.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "cache_directory.h"
#include "cache_mappings.h"
#include "posix_file.h"
#include "smlformat/checksum.h"
#include "smlstore/block_cache.h"

namespace sml {

// The name of a block's file.
std::string cached_block_name(std::uint64_t block);

class CacheState {
 public:
  // Null where the directory has no state. Throws as BlockCache::open().
  static std::unique_ptr<CacheState> open(const std::string& directory);
  // Makes one, or changes the size.
  static void init(const std::string& directory, std::uint64_t bytes, bool group);
  ~CacheState();
  CacheState(const CacheState&) = delete;
  CacheState& operator=(const CacheState&) = delete;

  const std::string& directory() const noexcept { return directory_; }
  std::uint64_t limit_bytes() const noexcept { return word(kLimit).load(); }
  CacheSharing sharing() const noexcept { return sharing_; }
  CacheMappings& mappings() noexcept { return mappings_; }
  CacheInfo info();
  BlockCache::Removed trim(std::uint64_t bytes);

  // Whether so many bytes more can be kept; removes what is in nobody's way for it.
  bool has_room(std::uint64_t bytes);
  // Gives up mappings of what was unlinked, if something was.
  void follow_generation();

  // Files of blocks; `id` in hex.
  FileDescriptor open_block(const std::string& id, std::uint64_t block) const noexcept;
  bool has_block(const std::string& id, std::uint64_t block) const noexcept;
  bool keep_block(const std::string& id, std::uint64_t block, ByteView bytes);
  bool drop_block(const std::string& id, std::uint64_t block);

  // Locks.
  void begin_use(const Hash128& id);
  void end_use(const Hash128& id);
  static std::uint64_t fetch_lock(const Hash128& id, std::uint64_t block);
  bool try_fetch(std::uint64_t lock, std::uint64_t bytes);
  void end_fetch(std::uint64_t lock, std::uint64_t bytes);
  void give_back_room(std::uint64_t bytes) noexcept;

  // Calls on_warning once.
  void warn(std::string_view why);

  std::function<void(const std::string&)> on_warning;
  std::map<Hash128, std::weak_ptr<CachedBlocks>> in_use;  // guarded by in_use_mutex
  std::mutex in_use_mutex;

 private:
  enum Word : std::size_t { kLimit = 2, kTaken = 3, kGeneration = 4 };
  struct Candidate;

  CacheState(std::string directory, FileDescriptor blocks, FileDescriptor locks, void* state);
  std::atomic_ref<std::uint64_t> word(Word which) const noexcept {
    return std::atomic_ref<std::uint64_t>(state_[which]);
  }
  bool lock(std::uint64_t byte, short type) const noexcept;
  // Held by who makes room, of all processes and threads.
  class RoomLock;
  bool begin_naming();
  void end_naming();
  void recount();
  std::vector<Candidate> candidates() const;
  std::uint64_t remove_blocks(const Candidate& candidate, std::uint64_t wanted,
                              BlockCache::Removed& removed);
  BlockCache::Removed remove_down_to(std::uint64_t bytes);

  std::string directory_;
  FileDescriptor blocks_;
  FileDescriptor locks_;
  std::uint64_t* state_;
  CacheSharing sharing_;
  CacheMappings mappings_;

  std::atomic<std::uint64_t> seen_generation_;
  std::atomic<bool> gone_{false};                // blocks cannot be kept any more
  std::atomic<std::uint64_t> fetched_bytes_{0};  // that will be taken by what is being fetched
  std::mutex mutex_;                             // guards what follows
  std::unordered_set<std::uint64_t> fetching_;
  std::map<std::uint64_t, unsigned> users_;  // of the bytes that are locked as in use
  unsigned naming_ = 0;
  bool making_room_ = false;
  std::optional<std::chrono::steady_clock::time_point> counted_at_;
  std::optional<std::chrono::steady_clock::time_point> no_room_at_;
};

}  // namespace sml
