#include "cache_directory.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace sml {
namespace {

// As the Cache Directory Tagging Specification wants it: backups pass such directories over.
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This directory is a cache of sml; it may be removed at any time.\n";

mode_t directory_mode(CacheSharing sharing) noexcept {
  return sharing == CacheSharing::kGroup ? 02770 : 0700;
}
mode_t file_mode(CacheSharing sharing) noexcept {
  return sharing == CacheSharing::kGroup ? 0660 : 0600;
}

}  // namespace

CacheSharing sharing_of(const std::string& directory) noexcept {
  struct stat status {};
  const bool group = stat_path(directory, status, true) == 0 && (status.st_mode & S_ISGID) != 0 &&
                     (status.st_mode & S_IWGRP) != 0;
  return group ? CacheSharing::kGroup : CacheSharing::kUser;
}

void make_directory_at(int parent, const std::string& name, CacheSharing sharing) noexcept {
  const mode_t mode = directory_mode(sharing);
  if (sharing == CacheSharing::kUser) {
    ::mkdirat(parent, name.c_str(), mode);
    return;
  }
  // With its name it has its rights: others would be refused.
  const std::string made = name + fmt::format(".{:016x}.tmp", random_number());
  if (::mkdirat(parent, made.c_str(), mode) != 0) return;
  if (::fchmodat(parent, made.c_str(), mode, 0) != 0 ||
      ::renameat2(parent, made.c_str(), parent, name.c_str(), RENAME_NOREPLACE) != 0)
    ::unlinkat(parent, made.c_str(), AT_REMOVEDIR);
}

void make_cache_directory(const std::string& directory, CacheSharing sharing) {
  for (std::size_t slash = directory.find('/', 1); slash != std::string::npos;
       slash = directory.find('/', slash + 1)) {
    ::mkdir(directory.substr(0, slash).c_str(), 0700);
  }
  make_directory_at(AT_FDCWD, directory, sharing);
  // Not beside other people's files: backups would pass those over.
  const FileDescriptor there(open_path(directory, O_RDONLY | O_DIRECTORY));
  bool is_empty = static_cast<bool>(there);
  if (there) {
    each_name(there.get(), [&](const char* name) {
      if (std::string_view(name) != "." && std::string_view(name) != "..") is_empty = false;
    });
  }
  if (!is_empty) return;
  const FileDescriptor tag(open_path(directory + "/CACHEDIR.TAG",
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, file_mode(sharing)));
  if (!tag) return;
  if (sharing == CacheSharing::kGroup) ::fchmod(tag.get(), file_mode(sharing));
  if (::write(tag.get(), kCacheTag.data(), kCacheTag.size()) < 0) return;
}

void each_name(int directory, const std::function<void(const char* name)>& found) {
  struct Close {
    void operator()(DIR* stream) const noexcept { ::closedir(stream); }
  };
  FileDescriptor fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return;
  const std::unique_ptr<DIR, Close> stream(::fdopendir(fd.get()));
  if (!stream) return;
  fd.release();
  while (const dirent* entry = ::readdir(stream.get())) found(entry->d_name);
}

NewCacheFile::NewCacheFile(int directory, CacheSharing sharing) : directory_(directory) {
  const mode_t mode = file_mode(sharing);
  fd_.reset(::openat(directory, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, mode));
  // What file systems, and kernels, without such files say.
  if (!fd_ && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    temporary_ = fmt::format("{:016x}.tmp", random_number());
    fd_.reset(::openat(directory, temporary_.c_str(),
                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!fd_) temporary_.clear();
    if (fd_) ::flock(fd_.get(), LOCK_EX | LOCK_NB);
  }
  if (fd_ && sharing == CacheSharing::kGroup) ::fchmod(fd_.get(), mode);
}

NewCacheFile::~NewCacheFile() {
  if (!temporary_.empty()) ::unlinkat(directory_, temporary_.c_str(), 0);
}

bool NewCacheFile::give_name(const std::string& name) noexcept {
  if (!temporary_.empty())
    return ::linkat(directory_, temporary_.c_str(), directory_, name.c_str(), 0) == 0;
  const std::string unnamed = "/proc/self/fd/" + std::to_string(fd_.get());
  return ::linkat(AT_FDCWD, unnamed.c_str(), directory_, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace sml
