// Blocks that were fetched from far away, in a directory that all processes of this machine share.
// Byte by byte in format-spec/cache.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "smlformat/checksum.h"
#include "smlformat/error.h"

namespace sml {

class CachedBlocks;
class CacheState;

struct CacheContainer {
  Hash128 id;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  bool in_use = false;
  std::int64_t used_at = 0;  // seconds since 1970: when blocks came, or a data set was opened
};

struct CacheInfo {
  std::uint64_t limit_bytes = 0;
  std::uint64_t block_bytes = 0;  // that blocks take
  std::uint64_t blocks = 0;
  bool group = false;  // the directory belongs to a group
  std::vector<CacheContainer> containers;
  std::uint64_t indexes = 0;
  std::uint64_t index_bytes = 0;
};

// Safe for threads; what others do to the directory meanwhile never makes a record wrong.
class BlockCache : public std::enable_shared_from_this<BlockCache> {
 public:
  // Gives a directory, made where missing, room for so many bytes of blocks; one that has room for
  // blocks gets another size. `group`: the members of its group share it. Throws kIo.
  static void init(const std::string& directory, std::uint64_t bytes, bool group);
  // Null where the directory has no room for blocks. `on_warning` is called once, when blocks can
  // no longer be kept (the disk is full, the directory is gone): reading goes on without. Throws
  // kIo where the directory cannot be used, kCorrupt, kUnsupported.
  static std::shared_ptr<BlockCache> open(
      const std::string& directory, std::function<void(const std::string&)> on_warning = nullptr);
  // Indexes that are kept in a directory, whether or not it has room for blocks: counted, and
  // removed; the latter returns how many.
  static void count_indexes(const std::string& directory, CacheInfo& info);
  static std::uint64_t remove_indexes(const std::string& directory);
  ~BlockCache();

  const std::string& directory() const noexcept;
  std::uint64_t limit_bytes() const noexcept;
  CacheInfo info() const;

  struct Removed {
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
    std::uint64_t bytes_in_use = 0;  // that had to stay, of those that should have gone
  };
  // Removes blocks of containers that are not in use, those first that were not used for longest,
  // until blocks take at most `bytes`; and what was left over by processes that died. Throws
  // kUnavailable where another process does so for long.
  Removed trim(std::uint64_t bytes);

  // The blocks of a container, in use as long as that lives: they are not removed meanwhile.
  // `blocks`: how many it has. One for all who ask at a time.
  std::shared_ptr<CachedBlocks> use(const Hash128& id, std::uint64_t blocks);

  // For the library.
  CacheState& state() noexcept { return *state_; }

 private:
  explicit BlockCache(std::unique_ptr<CacheState> state);
  std::unique_ptr<CacheState> state_;
};

}  // namespace sml
