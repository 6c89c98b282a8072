#include "posix_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

namespace sml {
namespace {

int open_at(int directory, const char* path, int flags, unsigned mode) noexcept {
  int fd;
  do {
    fd = ::openat(directory, path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// The last part of a path, short enough for the kernel, and the directory that it is relative to
// (AT_FDCWD for a short path).
struct ShortPath {
  FileDescriptor holder;
  int directory = AT_FDCWD;
  std::array<char, PATH_MAX> text;

  // False, with errno set, where a directory on the way cannot be opened.
  bool resolve(std::string_view path) noexcept {
    if (path.find('\0') != std::string_view::npos) {
      errno = EINVAL;
      return false;
    }
    while (path.size() >= text.size()) {
      const auto cut = path.rfind('/', text.size() - 2);
      if (cut == std::string_view::npos || cut == 0) {
        errno = ENAMETOOLONG;
        return false;
      }
      put(path.substr(0, cut + 1));
      FileDescriptor next(open_at(directory, text.data(), O_PATH | O_DIRECTORY, 0));
      if (!next) {
        return false;
      }
      holder = std::move(next);
      directory = holder.get();
      path.remove_prefix(std::min(path.find_first_not_of('/', cut), path.size()));
    }
    put(path);
    return true;
  }

 private:
  void put(std::string_view part) noexcept {
    std::copy(part.begin(), part.end(), text.begin());
    text[part.size()] = '\0';
  }
};

}  // namespace

void FileDescriptor::reset(int fd) noexcept {
  if (fd_ >= 0) {
    ::close(fd_);
  }
  fd_ = fd;
}

std::string shown_path(std::string_view path) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(path.size());
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      out += c;
    }
  }
  return out;
}

Error system_error(std::string_view path, std::string_view action, int error) {
  std::string message = shown_path(path);
  message += ": ";
  message += action;
  message += ": ";
  message += std::generic_category().message(error);
  const bool absent = error == ENOENT || error == ENOTDIR;
  return Error(absent ? ErrorCode::kNotFound : ErrorCode::kIo, message);
}

int open_path(std::string_view path, int flags, unsigned mode) noexcept {
  ShortPath target;
  return target.resolve(path) ? open_at(target.directory, target.text.data(), flags, mode) : -1;
}

int stat_path(std::string_view path, struct stat& status, bool follow) noexcept {
  ShortPath target;
  if (!target.resolve(path)) {
    return -1;
  }
  return ::fstatat(target.directory, target.text.data(), &status, follow ? 0 : AT_SYMLINK_NOFOLLOW);
}

bool is_file_at(int fd, std::string_view path) noexcept {
  struct stat here {};
  struct stat there {};
  return ::fstat(fd, &here) == 0 && stat_path(path, there, false) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

std::size_t read_at(int fd, std::uint64_t offset, MutableBytes out, std::string_view path) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw system_error(path, "cannot read", errno);
    }
    if (got == 0) {
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void write_at(int fd, std::uint64_t offset, ByteView bytes, std::string_view path) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      throw system_error(path, "cannot write", put < 0 ? errno : ENOSPC);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

const char* special_file(mode_t mode) noexcept {
  if (S_ISFIFO(mode)) return "is a FIFO";
  if (S_ISSOCK(mode)) return "is a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "is a device";
  return "is no regular file";
}

Error changed_error(std::string_view path, std::uint64_t listed_bytes) {
  return Error(ErrorCode::kIo, shown_path(path) + ": changed while it was read (it had " +
                                   std::to_string(listed_bytes) + " bytes when it was listed)");
}

void read_regular_file(std::string_view path, std::uint64_t file_bytes, std::uint64_t offset,
                       MutableBytes out, bool follow) {
  // O_NONBLOCK: what was a regular file when it was listed may be a FIFO by now.
  const FileDescriptor fd(
      open_path(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW)));
  if (!fd) {
    throw system_error(path, "cannot open", errno);
  }
  // No fstat(): one byte more than the file should have tells that it has not grown, and a FIFO or
  // a directory cannot be read by position.
  std::byte beyond{};
  std::size_t done = 0;
  do {
    const std::array<iovec, 2> parts{{{out.data() + done, out.size() - done}, {&beyond, 1}}};
    const ssize_t got = ::preadv(fd.get(), parts.data(), static_cast<int>(parts.size()),
                                 static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw system_error(path, "cannot read", errno);
    }
    if (got == 0) {
      break;
    }
    done += static_cast<std::size_t>(got);
  } while (done < out.size());
  if (done < out.size()) {
    throw changed_error(path, file_bytes);
  }
  if (done > out.size() && offset + out.size() == file_bytes) {
    throw changed_error(path, file_bytes);
  }
}

std::uint64_t random_number() {
  std::array<std::byte, sizeof(std::uint64_t)> bytes{};
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (got < 0 && errno != EINTR) {
      throw system_error("getrandom", "cannot read", errno);
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return load<std::uint64_t>(bytes.data());
}

FileDescriptor open_regular_file(const std::string& path, std::uint64_t* bytes) {
  FileDescriptor fd(open_path(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    throw system_error(path, "cannot open", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                shown_path(path) + ": " +
                    (S_ISDIR(status.st_mode) ? "is a directory" : special_file(status.st_mode)));
  }
  if (bytes != nullptr) *bytes = static_cast<std::uint64_t>(status.st_size);
  return fd;
}

}  // namespace sml
