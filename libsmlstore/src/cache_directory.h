// The directory that this machine's processes keep what they fetched in, and how files come into
// it: format-spec/cache.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "posix_file.h"

namespace sml {

// Who may use what is made in a cache directory.
enum class CacheSharing : std::uint8_t { kUser, kGroup };

// As the directory itself has it: kUser where it is not there.
CacheSharing sharing_of(const std::string& directory) noexcept;

// Makes the directory, and those above it, where missing, and tags it as a cache where
// nothing else is in it. What cannot be made is found missing.
void make_cache_directory(const std::string& directory, CacheSharing sharing);
// Makes a directory in one that is open, with the rights of the sharing whatever the umask; one
// that is there stays as it is.
void make_directory_at(int parent, const std::string& name, CacheSharing sharing) noexcept;

// Calls `found` with each name in a directory that is open.
void each_name(int directory, const std::function<void(const char* name)>& found);

// A file that gets its name when it is whole.
class NewCacheFile {
 public:
  // In the directory that is open as `directory`. Where that fails the file is not there and errno
  // says why. Without a name where the file system can; else with a name that ends in ".tmp" and
  // locked, so that others see that it is not left over.
  NewCacheFile(int directory, CacheSharing sharing);
  ~NewCacheFile();
  NewCacheFile(const NewCacheFile&) = delete;
  NewCacheFile& operator=(const NewCacheFile&) = delete;

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }
  // Fails, with EEXIST, where something has the name.
  bool give_name(const std::string& name) noexcept;

 private:
  int directory_;
  FileDescriptor fd_;
  std::string temporary_;  // its name until then, if it has one
};

}  // namespace sml
