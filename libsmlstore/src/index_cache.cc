#include "index_cache.h"

#include <array>
#include <new>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_directory.h"
#include "posix_file.h"
#include "smlformat/layout.h"

namespace sml {
namespace {

// Null where it cannot be mapped. fd -1: memory.
void* map(int fd, std::uint64_t bytes, int protection) noexcept {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

std::string index_directory(const std::string& directory) { return directory + "/index"; }

std::string footer_name(const Hash128& id) { return id.hex() + ".footer"; }

std::string footer_path(const std::string& directory, const Hash128& id) {
  return index_directory(directory) + "/" + footer_name(id);
}

// Calls `f` with the name of each file that is a footer by its name and its end.
template <class F>
void each_footer(const std::string& directory, F f) {
  const FileDescriptor parent(open_path(index_directory(directory), O_RDONLY | O_DIRECTORY));
  if (!parent) return;
  each_name(parent.get(), [&](const char* name) {
    const std::string_view text(name);
    if (!text.ends_with(".footer")) return;
    const FileDescriptor fd(
        ::openat(parent.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size < off_t{Tail::kBytes})
      return;
    std::array<std::byte, kTailMagic.size()> magic{};
    const off_t at = status.st_size - off_t{kTailMagic.size()};
    if (::pread(fd.get(), magic.data(), magic.size(), at) != ssize_t{magic.size()} ||
        as_text(magic) != kTailMagic)
      return;
    f(parent.get(), name, static_cast<std::uint64_t>(status.st_size));
  });
}

std::shared_ptr<const KeptFooter> open_kept(const std::string& path, std::uint64_t bytes) {
  const FileDescriptor fd(open_path(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  if (static_cast<std::uint64_t>(status.st_size) != bytes) {
    ::unlink(path.c_str());  // damaged, and in the way of a sound one
    return nullptr;
  }
  void* const at = map(fd.get(), bytes, PROT_READ);
  return at == nullptr ? nullptr : std::make_shared<const KeptFooter>(at, bytes);
}

}  // namespace

std::shared_ptr<const KeptFooter> cached_footer(const std::string& directory, const Hash128& id,
                                                std::uint64_t bytes,
                                                const std::function<void()>& check,
                                                const std::function<void(MutableBytes)>& fetch) {
  const std::string path = directory.empty() ? std::string() : footer_path(directory, id);
  if (!directory.empty()) {
    if (auto kept = open_kept(path, bytes)) return kept;
  }
  check();
  FileDescriptor parent;
  std::optional<NewCacheFile> file;
  if (!directory.empty()) {
    make_cache_directory(directory, CacheSharing::kUser);
    const CacheSharing sharing = sharing_of(directory);
    make_directory_at(AT_FDCWD, index_directory(directory), sharing);
    parent.reset(open_path(index_directory(directory), O_RDONLY | O_DIRECTORY));
    if (parent) file.emplace(parent.get(), sharing);
  }
  // With space for all of its bytes, so that a mapping can be written.
  void* at = nullptr;
  if (file && *file && ::posix_fallocate(file->fd(), 0, static_cast<off_t>(bytes)) == 0)
    at = map(file->fd(), bytes, PROT_READ | PROT_WRITE);
  const bool keep = at != nullptr;
  if (!keep) at = map(-1, bytes, PROT_READ | PROT_WRITE);
  if (at == nullptr) throw std::bad_alloc();
  auto footer = std::make_shared<const KeptFooter>(at, bytes);
  fetch({static_cast<std::byte*>(at), bytes});
  ::mprotect(at, bytes, PROT_READ);
  // Another process may have been faster, with the same bytes.
  if (keep) file->give_name(footer_name(id));
  return footer;
}

KeptFooter::~KeptFooter() { ::munmap(at_, bytes_); }

void discard_footer(const std::string& directory, const Hash128& id) noexcept {
  if (!directory.empty()) ::unlink(footer_path(directory, id).c_str());
}

void count_kept_footers(const std::string& directory, std::uint64_t& files, std::uint64_t& bytes) {
  each_footer(directory, [&](int, const char*, std::uint64_t size) {
    ++files;
    bytes += size;
  });
}

std::uint64_t remove_kept_footers(const std::string& directory) {
  std::uint64_t removed = 0;
  each_footer(directory, [&](int parent, const char* name, std::uint64_t) {
    if (::unlinkat(parent, name, 0) == 0) ++removed;
  });
  return removed;
}

}  // namespace sml
