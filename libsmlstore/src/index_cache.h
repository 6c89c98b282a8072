// Footers of containers that are far away, kept as files and mapped by all processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"

namespace sml {

// Bytes that stay in place: mapped from a file of the cache, or in memory.
class KeptFooter {
 public:
  // What mmap() gave; unmapped at the end.
  KeptFooter(void* at, std::uint64_t bytes) noexcept : at_(at), bytes_(bytes) {}
  ~KeptFooter();
  KeptFooter(const KeptFooter&) = delete;
  KeptFooter& operator=(const KeptFooter&) = delete;

  ByteView bytes() const noexcept { return {static_cast<const std::byte*>(at_), bytes_}; }

 private:
  void* at_;
  std::uint64_t bytes_;
};

// The last `bytes` bytes of the container `id`, from its footer on, starting at a page boundary.
// Taken from DIRECTORY/index/ID.footer where that is there and has the right size, else fetched
// (once, into place) and kept there; `check` is called before room is taken for so many bytes. A
// directory that cannot be written, or is full, means memory. What a file holds is not checked
// here: discard_footer() drops one that turns out to be damaged. Throws what `check` and `fetch`
// throw.
std::shared_ptr<const KeptFooter> cached_footer(const std::string& directory, const Hash128& id,
                                                std::uint64_t bytes,
                                                const std::function<void()>& check,
                                                const std::function<void(MutableBytes)>& fetch);
void discard_footer(const std::string& directory, const Hash128& id) noexcept;

void count_kept_footers(const std::string& directory, std::uint64_t& files, std::uint64_t& bytes);
// Returns how many.
std::uint64_t remove_kept_footers(const std::string& directory);

}  // namespace sml
