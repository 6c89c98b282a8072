#include "index_cache.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix_file.h"

namespace sml {
namespace {

// As the Cache Directory Tagging Specification wants it: backups pass such directories over.
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This directory is a cache of sml; it may be removed at any time.\n";

// Null where it cannot be mapped. fd -1: memory.
void* map(int fd, std::uint64_t bytes, int protection) noexcept {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

std::string index_directory(const std::string& directory) { return directory + "/index"; }

std::string footer_path(const std::string& directory, const Hash128& id) {
  return index_directory(directory) + "/" + id.hex() + ".footer";
}

std::shared_ptr<const KeptFooter> open_kept(const std::string& path, std::uint64_t bytes) {
  const FileDescriptor fd(open_path(path, O_RDONLY | O_NOFOLLOW));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) != bytes) {
    return nullptr;
  }
  void* const at = map(fd.get(), bytes, PROT_READ);
  return at == nullptr ? nullptr : std::make_shared<const KeptFooter>(at, bytes);
}

// Private to the user: whoever may read it may read names of records.
void make_private_directories(const std::string& directory) {
  for (std::size_t slash = directory.find('/', 1);; slash = directory.find('/', slash + 1)) {
    ::mkdir(directory.substr(0, slash).c_str(), 0700);
    if (slash == std::string::npos) break;
  }
  const FileDescriptor tag(
      open_path(directory + "/CACHEDIR.TAG", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  if (tag && ::write(tag.get(), kCacheTag.data(), kCacheTag.size()) < 0) return;
  ::mkdir(index_directory(directory).c_str(), 0700);
}

// A file without a name, with space for all of its bytes, so that a mapping can be written.
FileDescriptor unnamed_file(const std::string& directory, std::uint64_t bytes) {
  FileDescriptor fd(open_path(directory, O_RDWR | O_TMPFILE, 0600));
  if (fd && ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) != 0) fd.reset();
  return fd;
}

}  // namespace

std::shared_ptr<const KeptFooter> cached_footer(const std::string& directory, const Hash128& id,
                                                std::uint64_t bytes,
                                                const std::function<void()>& check,
                                                const std::function<void(MutableBytes)>& fetch) {
  FileDescriptor fd;
  const std::string path = directory.empty() ? std::string() : footer_path(directory, id);
  if (!directory.empty()) {
    if (auto kept = open_kept(path, bytes)) return kept;
  }
  check();
  if (!directory.empty()) {
    make_private_directories(directory);
    fd = unnamed_file(index_directory(directory), bytes);
  }
  void* at = fd ? map(fd.get(), bytes, PROT_READ | PROT_WRITE) : nullptr;
  const bool keep = at != nullptr;
  if (!keep) at = map(-1, bytes, PROT_READ | PROT_WRITE);
  if (at == nullptr) throw std::bad_alloc();
  auto footer = std::make_shared<const KeptFooter>(at, bytes);
  fetch({static_cast<std::byte*>(at), bytes});
  ::mprotect(at, bytes, PROT_READ);
  if (keep) {
    // Whole when it gets its name. Another process may have been faster, with the same bytes.
    const std::string unnamed = "/proc/self/fd/" + std::to_string(fd.get());
    ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
  }
  return footer;
}

KeptFooter::~KeptFooter() { ::munmap(at_, bytes_); }

void discard_footer(const std::string& directory, const Hash128& id) noexcept {
  if (!directory.empty()) ::unlink(footer_path(directory, id).c_str());
}

}  // namespace sml
