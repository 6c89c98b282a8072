#include "smlstore/directory_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix_file.h"

namespace sml {
namespace {

constexpr auto kLockPoll = std::chrono::milliseconds(50);

std::string join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && !path.ends_with('/')) {
    path += '/';
  }
  return path += name;
}

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

bool is_directory(const std::string& path) noexcept {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Whether nothing but the lock is in a directory.
bool list_is_empty(const std::string& directory) noexcept {
  const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(directory.c_str()));
  if (stream == nullptr) return false;
  while (const dirent* found = ::readdir(stream.get())) {
    const std::string_view name = found->d_name;
    if (name != "." && name != ".." && name != kLockName) return false;
  }
  return true;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::stop_token& stop) {
  const std::string path = join(directory, kLockName);
  // The file may be removed between opening and locking (remove_unused_directory): a lock on what
  // has no name any more excludes nobody.
  do {
    lock(path, stop);
  } while (!is_file_at(fd_, path));
}

void DirectoryLock::lock(const std::string& path, const std::stop_token& stop) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  FileDescriptor fd(open_path(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!fd) {
    throw Error(ErrorCode::kIo, system_error(path, "cannot lock", errno).what());
  }
  const int operation = LOCK_EX | (stop.stop_possible() ? LOCK_NB : 0);
  while (::flock(fd.get(), operation) != 0) {
    if (errno != EINTR && errno != EWOULDBLOCK) {
      throw system_error(path, "cannot lock", errno);
    }
    if (stop.stop_requested()) {
      throw Error(ErrorCode::kCancelled, "cancelled while waiting for " + shown_path(path));
    }
    if (stop.stop_possible()) {
      std::this_thread::sleep_for(kLockPoll);
    }
  }
  fd_ = fd.release();
}

DirectoryLock::~DirectoryLock() { ::close(fd_); }

bool remove_unused_directory(const std::string& directory) noexcept {
  const std::string path = join(directory, kLockName);
  const FileDescriptor fd(open_path(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK));
  // Removed only by who holds it, so that nobody goes on waiting for a lock that protects nothing.
  if (fd) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
    if (list_is_empty(directory) && is_file_at(fd.get(), path)) ::unlink(path.c_str());
  }
  return ::rmdir(directory.c_str()) == 0;
}

std::vector<std::string> list_containers(const std::string& directory) {
  const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(directory.c_str()));
  if (stream == nullptr) {
    throw system_error(directory, "cannot open directory", errno);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(stream.get());
    if (found == nullptr) {
      if (errno != 0) {
        throw system_error(directory, "cannot read directory", errno);
      }
      break;
    }
    const std::string_view name = found->d_name;
    if (name.starts_with('.') || !name.ends_with(kContainerSuffix)) {
      continue;
    }
    // A link that leads nowhere stays in: opening it says so, where leaving it out would lose
    // records silently.
    const bool maybe_directory = found->d_type != DT_REG;
    if (maybe_directory && is_directory(join(directory, name))) {
      continue;
    }
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string container_name(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.size() > kContainerSuffix.size() && name.ends_with(kContainerSuffix)) {
    name.remove_suffix(kContainerSuffix.size());
  }
  return std::string(name);
}

std::vector<std::string> make_directories(const std::string& directory) {
  // From the longest prefix that exists downwards; each new name is synced, since what is published
  // below needs it.
  std::vector<std::string> missing;
  std::vector<std::string> created;
  std::string path = directory;
  while (!path.empty() && !is_directory(path)) {
    missing.push_back(path);
    while (path.ends_with('/')) {
      path.pop_back();
    }
    const auto slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash + 1);
  }
  for (; !missing.empty(); missing.pop_back()) {
    const std::string& made = missing.back();
    if (::mkdir(made.c_str(), 0777) == 0) {
      created.push_back(made);
    } else if (errno != EEXIST || !is_directory(made)) {
      throw Error(ErrorCode::kIo, system_error(made, "cannot create directory", errno).what());
    }
    const FileDescriptor parent(open_path(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY));
    if (parent && ::fsync(parent.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
      throw system_error(path, "cannot sync directory", errno);
    }
    path = made;
  }
  return created;
}

}  // namespace sml
