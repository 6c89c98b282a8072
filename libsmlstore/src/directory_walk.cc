#include "directory_walk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "record_table.h"
#include "smlformat/key.h"

namespace sml {
namespace {

constexpr std::size_t kBufferBytes = 64U << 10;
// A tree may be deeper than a process may have files open. Reopening is by name from the root,
// hence the generous number.
constexpr std::size_t kMaxOpenLevels = 64;
// Files are looked at this many at once, by several threads where there are that many.
constexpr std::size_t kLookAhead = 512;
constexpr std::size_t kMinPerThread = 24;
constexpr unsigned kMaxThreads = 4;  // more would wait for each other in the kernel

int open_directory(int parent, const char* name, bool follow) noexcept {
  int fd;
  do {
    fd = ::openat(parent, name,
                  O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

DirectoryWalk::DirectoryWalk(const SourceOptions& options, FileFunction on_file)
    : options_(options),
      on_file_(std::move(on_file)),
      buffer_(kBufferBytes),
      threads_(
          std::clamp(options.threads == 0 ? std::thread::hardware_concurrency() : options.threads,
                     1U, kMaxThreads)) {}

std::string DirectoryWalk::shown(std::string_view name) const {
  std::string path = root_;
  if (!path.ends_with('/')) {
    path += '/';
  }
  path += path_;
  path += name;
  return path;
}

void DirectoryWalk::report(std::string_view name, const Error& problem) {
  report_problem(options_, problem.within(shown_path(shown(name))));
}

void DirectoryWalk::report_errno(std::string_view name, std::string_view action, int error) {
  report_problem(options_, system_error(shown(name), action, error));
}

void DirectoryWalk::walk(const std::string& root) {
  root_ = root;
  path_.clear();
  depth_ = 0;
  oldest_open_ = 1;
  FileDescriptor fd(open_path(root, O_RDONLY | O_DIRECTORY | O_NONBLOCK));
  if (!fd) {
    report_problem(options_, system_error(root, "cannot open directory", errno));
    return;
  }
  push(std::move(fd), {}, false);
  while (depth_ > 0) {
    Level& level = top();
    if (level.next == level.found.size()) {
      pop();
    } else {
      visit(level.found[level.next++]);
    }
  }
}

void DirectoryWalk::push(FileDescriptor fd, std::string_view name, bool through_link) {
  check_stop(options_);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    report_errno(name, "cannot open directory", errno);
    return;
  }
  if (through_link) {
    // Only a link can lead back to a directory that the walk is in.
    for (std::size_t i = 0; i < depth_; ++i) {
      if (levels_[i].device == status.st_dev && levels_[i].inode == status.st_ino) {
        report(name, Error(ErrorCode::kInvalidArgument, "symbolic link loop"));
        return;
      }
    }
  }
  if (depth_ == levels_.size()) {
    levels_.emplace_back(options_.memory);
  }
  ++depth_;
  Level& level = top();
  level.fd = std::move(fd);
  level.device = status.st_dev;
  level.inode = status.st_ino;
  level.through_link = through_link;
  level.next = 0;
  level.ahead_first = 0;
  level.ahead.clear();
  level.found.clear();
  level.names.clear();
  if (depth_ > 1) {
    path_ += name;
    path_ += '/';
  }
  level.path_bytes = path_.size();
  // The parent is open; of what was open below it nothing is left.
  oldest_open_ = std::max<std::size_t>(1, std::min(oldest_open_, depth_ - 1));
  while (depth_ > oldest_open_ + kMaxOpenLevels) {
    levels_[oldest_open_++].fd.reset();
  }
  list_directory();
}

void DirectoryWalk::pop() {
  top().fd.reset();
  --depth_;
  path_.resize(depth_ > 0 ? top().path_bytes : 0);
}

// Opens the directory of a level again where it was closed. False where it is no longer there.
bool DirectoryWalk::open_level(std::size_t level) {
  std::size_t open = level;
  while (!levels_[open].fd) {
    --open;  // the root's is never closed
  }
  for (; open < level; ++open) {
    Level& child = levels_[open + 1];
    const std::size_t begin = levels_[open].path_bytes;
    const std::string name = path_.substr(begin, child.path_bytes - 1 - begin);
    FileDescriptor fd(open_directory(levels_[open].fd.get(), name.c_str(), child.through_link));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_dev != child.device ||
        status.st_ino != child.inode) {
      return false;
    }
    child.fd = std::move(fd);
    if (open > 0 && level - open > kMaxOpenLevels / 2) {
      levels_[open].fd.reset();
    }
  }
  oldest_open_ = 1;
  while (oldest_open_ < level && !levels_[oldest_open_].fd) {
    ++oldest_open_;
  }
  return true;
}

void DirectoryWalk::list_directory() {
  Level& level = top();
  while (true) {
    const ssize_t got = ::getdents64(level.fd.get(), buffer_.data(), buffer_.size());
    if (got < 0) {
      report_errno({}, "cannot read directory", errno);
      break;
    }
    if (got == 0) {
      break;
    }
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      const char* record = buffer_.data() + at;
      at += load<decltype(dirent64::d_reclen)>(record + offsetof(dirent64, d_reclen));
      const auto type = load<unsigned char>(record + offsetof(dirent64, d_type));
      const std::string_view name = record + offsetof(dirent64, d_name);
      if (name == "." || name == "..") {
        continue;
      }
      const Kind kind = kind_of(level, type, name.data());
      if (kind == Kind::kLink && options_.symlinks == Symlinks::kSkip) {
        continue;
      }
      const bool directory = kind == Kind::kDirectory || kind == Kind::kLinkedDirectory;
      Found found;
      found.name = level.names.size();
      found.name_bytes = static_cast<std::uint16_t>(name.size());
      found.stem_bytes =
          static_cast<std::uint16_t>(directory ? name.size() : key_stem(name).size());
      found.kind = kind;
      level.names.insert(level.names.end(), name.begin(), name.end());
      level.names.push_back('\0');
      level.found.push_back(found);
    }
    check_stop(options_);
  }
  sort(level);
}

DirectoryWalk::Kind DirectoryWalk::kind_of(const Level& level, unsigned char type,
                                           const char* name) const {
  struct stat status {};
  if (type == DT_UNKNOWN) {
    if (::fstatat(level.fd.get(), name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return Kind::kFile;  // visit_file() finds the same error and reports it
    }
    type = static_cast<unsigned char>(IFTODT(status.st_mode));
  }
  switch (type) {
    case DT_REG:
      return Kind::kFile;
    case DT_DIR:
      return Kind::kDirectory;
    case DT_LNK: {
      const bool to_directory = options_.symlinks == Symlinks::kFollow &&
                                ::fstatat(level.fd.get(), name, &status, 0) == 0 &&
                                S_ISDIR(status.st_mode);
      return to_directory ? Kind::kLinkedDirectory : Kind::kLink;
    }
    default:
      return Kind::kOther;
  }
}

// Name order of the keys below: files by stem, then by name; a directory's keys all begin with its
// name and a slash, so it counts as a file with that stem. Exactly the order of all keys of the
// tree, since no name holds a slash.
void DirectoryWalk::sort(Level& level) const {
  const char* names = level.names.data();
  const auto text_bytes = [](const Found& f) -> std::size_t {
    const bool directory = f.kind == Kind::kDirectory || f.kind == Kind::kLinkedDirectory;
    return std::size_t{f.stem_bytes} + (directory ? 1 : 0);
  };
  // The sort text's byte at `i`: that of the stem, or the slash behind a directory's name.
  const auto text_byte = [names](const Found& f, std::size_t i) {
    return i < f.stem_bytes ? static_cast<unsigned char>(names[f.name + i])
                            : static_cast<unsigned char>('/');
  };
  if (level.found.size() < 2) {
    return;
  }
  std::size_t shared = text_bytes(level.found.front());
  for (const Found& f : level.found) {
    const Found& first = level.found.front();
    std::size_t same = 0;
    const std::size_t limit = std::min(shared, text_bytes(f));
    while (same < limit && text_byte(f, same) == text_byte(first, same)) {
      ++same;
    }
    shared = same;
  }
  for (Found& f : level.found) {
    std::uint64_t order = 0;
    for (std::size_t i = 0; i < sizeof order; ++i) {
      const std::size_t at = shared + i;
      order = order << 8U | (at < text_bytes(f) ? text_byte(f, at) : 0U);
    }
    f.order = order;
  }
  std::sort(level.found.begin(), level.found.end(), [&](const Found& a, const Found& b) {
    if (a.order != b.order) {
      return a.order < b.order;
    }
    const std::size_t a_bytes = text_bytes(a);
    const std::size_t b_bytes = text_bytes(b);
    for (std::size_t i = shared; i < std::min(a_bytes, b_bytes); ++i) {
      if (text_byte(a, i) != text_byte(b, i)) {
        return text_byte(a, i) < text_byte(b, i);
      }
    }
    if (a_bytes != b_bytes) {
      return a_bytes < b_bytes;
    }
    return std::string_view(names + a.name, a.name_bytes) <
           std::string_view(names + b.name, b.name_bytes);
  });
}

void DirectoryWalk::visit(const Found& found) {
  // Copied: visiting a directory may move the levels.
  std::array<char, NAME_MAX + 1> name;
  const Found what = found;
  std::memcpy(name.data(), top().names.data() + what.name, std::size_t{what.name_bytes} + 1);
  if (!top().fd && !open_level(depth_ - 1)) {
    report({}, Error(ErrorCode::kIo, "the directory was moved or removed while it was read"));
    top().next = top().found.size();
    return;
  }
  if (what.kind == Kind::kDirectory || what.kind == Kind::kLinkedDirectory) {
    visit_directory(what, name.data());
  } else {
    Level& level = top();
    const std::size_t at = level.next - 1;
    if (at < level.ahead_first || at - level.ahead_first >= level.ahead.size()) look_ahead(level);
    visit_file(what, name.data(), level.ahead[at - level.ahead_first]);
  }
}

DirectoryWalk::Ahead DirectoryWalk::look_at(const Level& level, const Found& found) const {
  Ahead ahead;
  struct stat status {};
  const int flags = found.kind == Kind::kLink ? 0 : AT_SYMLINK_NOFOLLOW;
  if (::fstatat(level.fd.get(), level.names.data() + found.name, &status, flags) != 0) {
    ahead.error = errno;
    return ahead;
  }
  ahead.mode = status.st_mode;
  ahead.identity = {status.st_dev, status.st_ino};
  ahead.bytes = static_cast<std::uint64_t>(status.st_size);
  return ahead;
}

// Looks at the file that was just reached and at those behind it.
void DirectoryWalk::look_ahead(Level& level) {
  level.ahead_first = level.next - 1;
  const std::size_t count = std::min(kLookAhead, level.found.size() - level.ahead_first);
  level.ahead.resize(count);
  const auto look = [this, &level](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const Found& found = level.found[level.ahead_first + i];
      if (found.kind == Kind::kDirectory || found.kind == Kind::kLinkedDirectory) continue;
      level.ahead[i] = look_at(level, found);
    }
  };
  const std::size_t parts = std::clamp<std::size_t>(count / kMinPerThread, 1, threads_);
  if (parts == 1) return look(0, count);
  if (!workers_) workers_.emplace(threads_);
  OrderedTasks<bool> others(*workers_);
  for (std::size_t part = 1; part < parts; ++part) {
    others.submit([look, first = count * part / parts, last = count * (part + 1) / parts] {
      look(first, last);
      return true;
    });
  }
  look(0, count / parts);
  while (!others.empty()) others.take();
}

void DirectoryWalk::visit_directory(const Found& found, const char* name) {
  const bool linked = found.kind == Kind::kLinkedDirectory;
  FileDescriptor fd(open_directory(top().fd.get(), name, linked));
  if (!fd) {
    report_errno(name, "cannot open directory", errno);
    return;
  }
  push(std::move(fd), {name, found.name_bytes}, linked);
}

void DirectoryWalk::visit_file(const Found& found, const char* name, const Ahead& file) {
  if (found.kind == Kind::kLink && options_.symlinks == Symlinks::kError) {
    report(name, Error(ErrorCode::kInvalidArgument, "is a symbolic link"));
    return;
  }
  if (file.error != 0) {
    const bool followed = found.kind == Kind::kLink;
    if (followed && file.error == ELOOP) {
      report(name, Error(ErrorCode::kInvalidArgument, "symbolic link loop"));
    } else if (followed && file.error == ENOENT) {
      report(name, Error(ErrorCode::kNotFound, "dangling symbolic link"));
    } else {
      report_errno(name, "cannot stat", file.error);
    }
    return;
  }
  if (!S_ISREG(file.mode)) {
    report(name, Error(ErrorCode::kInvalidArgument, special_file(file.mode)));
    return;
  }
  const auto& leave_out = options_.leave_out;
  if (std::find(leave_out.begin(), leave_out.end(), file.identity) != leave_out.end()) return;
  on_file_(path_, {name, found.name_bytes}, file.bytes);
}

}  // namespace sml
