// FileSink: a file that appears whole or not at all.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix_file.h"
#include "smlstore/directory_store.h"

namespace sml {
namespace {

// Write-back is started whenever so much has been written: publish() then has little left to sync.
constexpr std::uint64_t kWriteBackBytes = 8U << 20;

// With larger writes the kernel takes its largest units of page cache, which are seldom free and
// warm: on a virtual machine, where each has to be faulted in, writing then takes up to three times
// as long.
constexpr std::size_t kWriteBytes = 128U << 10;

// What a signal handler may read: fixed memory, handed over by an atomic state.
struct Unpublished {
  enum State : int { kFree, kFilling, kActive };
  std::atomic<int> state{kFree};
  std::array<char, PATH_MAX> path{};
};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::size_t kMaxUnpublished = 64;
std::array<Unpublished, kMaxUnpublished> unpublished;

// -1 where the table is full: then a signal leaves the file behind.
int register_unpublished(const std::string& path) noexcept {
  if (path.size() >= PATH_MAX) {
    return -1;
  }
  for (std::size_t i = 0; i < unpublished.size(); ++i) {
    int expected = Unpublished::kFree;
    if (unpublished[i].state.compare_exchange_strong(expected, Unpublished::kFilling)) {
      std::memcpy(unpublished[i].path.data(), path.c_str(), path.size() + 1);
      unpublished[i].state.store(Unpublished::kActive);
      return static_cast<int>(i);
    }
  }
  return -1;
}

void unregister_unpublished(int slot) noexcept {
  if (slot >= 0) {
    unpublished[static_cast<std::size_t>(slot)].state.store(Unpublished::kFree);
  }
}

std::string directory_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? "." : std::string(path.substr(0, slash + 1));
}

std::string random_hex() {
  std::array<unsigned char, 8> bytes{};
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (got < 0 && errno != EINTR) {
      throw system_error("getrandom", "cannot read", errno);
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    static constexpr char kHex[] = "0123456789abcdef";
    text += {kHex[byte >> 4U], kHex[byte & 15U]};
  }
  return text;
}

// ".NAME.sml.<random>.tmp" beside NAME.sml; a long NAME is cut, so that the file system takes it.
std::string temporary_path(const std::string& path) {
  const std::string suffix = "." + random_hex() + ".tmp";
  const auto slash = path.rfind('/');
  const auto base = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(0, base) + "." + path.substr(base, NAME_MAX - 1 - suffix.size()) + suffix;
}

Error exists_error(const std::string& path) {
  return Error(ErrorCode::kAlreadyExists, shown_path(path) + ": exists already",
               "--overwrite replaces it");
}

// 0, or the error. Without `overwrite` never replaces a file, on file systems that can promise it.
int rename_into_place(const char* from, const char* to, bool overwrite) noexcept {
  if (overwrite) {
    return ::rename(from, to) == 0 ? 0 : errno;
  }
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
    return 0;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    return errno;
  }
  if (::link(from, to) == 0) {
    ::unlink(from);
    return 0;
  }
  if (errno != EPERM && errno != ENOSYS && errno != ENOTSUP) {
    return errno;
  }
  struct stat status {};
  if (::lstat(to, &status) == 0) {
    return EEXIST;
  }
  return ::rename(from, to) == 0 ? 0 : errno;
}

// Makes the name durable. A directory that may be written but not read is synced with its whole
// file system.
int sync_directory(const std::string& directory, int file) noexcept {
  const FileDescriptor fd(open_path(directory, O_RDONLY | O_DIRECTORY));
  if (!fd) {
    return errno == EACCES && ::syncfs(file) == 0 ? 0 : errno;
  }
  // EINVAL: a file system that has nothing to sync for a directory.
  return ::fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

}  // namespace

FileSink::FileSink(std::string path, bool overwrite)
    : path_(std::move(path)), overwrite_(overwrite) {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    // A link is judged by what it points to, and replaced itself.
    if (S_ISLNK(status.st_mode) && ::stat(path_.c_str(), &status) != 0) {
      status.st_mode = S_IFREG;
    }
    if (S_ISDIR(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument, shown_path(path_) + ": is a directory");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument, shown_path(path_) + ": is no regular file");
    }
    if (!overwrite_) {
      throw exists_error(path_);
    }
  }
  if (path_.empty() || path_.ends_with('/')) {
    throw Error(ErrorCode::kInvalidArgument, "'" + shown_path(path_) + "': names no file");
  }
  temporary_ = temporary_path(path_);
  // Before the file exists, so that no signal can come between.
  registered_ = register_unpublished(temporary_);
  fd_ = open_path(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd_ < 0) {
    const int error = errno;
    unregister_unpublished(registered_);
    // Also where the directory does not exist: what was asked for is a new file, so this is no
    // kNotFound.
    throw Error(ErrorCode::kIo, system_error(path_, "cannot create", error).what());
  }
}

FileSink::~FileSink() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    unregister_unpublished(registered_);
  }
}

void FileSink::append(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      throw system_error(path_, "cannot write", put < 0 ? errno : ENOSPC);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    written_ += static_cast<std::uint64_t>(put);
    if (written_ - flushed_ >= kWriteBackBytes) {
      // Failure is found by fdatasync; some file systems do not know the call.
      ::sync_file_range(fd_, static_cast<off_t>(flushed_), static_cast<off_t>(written_ - flushed_),
                        SYNC_FILE_RANGE_WRITE);
      flushed_ = written_;
    }
  }
}

void FileSink::restart() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) {
    throw system_error(path_, "cannot write", errno);
  }
  written_ = 0;
  flushed_ = 0;
}

void FileSink::publish() {
  if (temporary_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, shown_path(path_) + ": was published before");
  }
  if (::fdatasync(fd_) != 0) {
    throw system_error(path_, "cannot sync", errno);
  }
  const int error = rename_into_place(temporary_.c_str(), path_.c_str(), overwrite_);
  if (error == EEXIST && !overwrite_) {
    throw exists_error(path_);
  }
  if (error != 0) {
    throw system_error(path_, "cannot rename into place", error);
  }
  temporary_.clear();
  unregister_unpublished(registered_);
  const std::string directory = directory_of(path_);
  const int sync_error = sync_directory(directory, fd_);
  if (sync_error != 0) {
    throw system_error(directory, "cannot sync directory", sync_error);
  }
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    throw system_error(path_, "cannot close", errno);
  }
}

void FileSink::remove_unpublished() noexcept {
  const int saved = errno;
  for (Unpublished& file : unpublished) {
    if (file.state.load() == Unpublished::kActive) {
      ::unlink(file.path.data());
    }
  }
  errno = saved;
}

}  // namespace sml
