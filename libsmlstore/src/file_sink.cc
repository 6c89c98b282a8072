// FileSink: a file that appears whole or not at all, and is perhaps continued by a later run.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstring>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
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

// ".NAME.sml.<recipe><random>.tmp" beside NAME.sml, both numbers as 8 hexadecimal digits; a long
// NAME is cut, so that the file system takes it.
class TemporaryName {
 public:
  explicit TemporaryName(const std::string& path) : directory_(directory_of(path)) {
    const auto slash = path.rfind('/');
    const auto base = slash == std::string::npos ? 0 : slash + 1;
    prefix_ = "." + path.substr(base, NAME_MAX - 2 - kDigits - kSuffix.size()) + ".";
    in_directory_ = path.substr(0, base);
  }

  const std::string& directory() const noexcept { return directory_; }

  std::string path(std::uint32_t recipe, std::uint32_t random) const {
    std::array<char, kDigits + 1> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x%08x", recipe, random);
    return in_directory_ + prefix_ + digits.data() + std::string(kSuffix);
  }

  // The recipe of a name that path() gave; nothing for others.
  std::optional<std::uint32_t> recipe_of(std::string_view name) const {
    if (name.size() != prefix_.size() + kDigits + kSuffix.size() || !name.starts_with(prefix_) ||
        !name.ends_with(kSuffix)) {
      return std::nullopt;
    }
    std::uint32_t recipe = 0;
    const char* const digits = name.data() + prefix_.size();
    const auto [end, error] = std::from_chars(digits, digits + kDigits / 2, recipe, 16);
    if (error != std::errc() || end != digits + kDigits / 2) return std::nullopt;
    return recipe;
  }

  // "NAME.sml" of a name that path() gave, where it was not cut; nothing for others.
  static std::optional<std::string> destination_of(std::string_view name) {
    if (name.size() < 3 + kDigits + kSuffix.size() || !name.starts_with('.') ||
        !name.ends_with(kSuffix)) {
      return std::nullopt;
    }
    name = name.substr(1, name.size() - 1 - kSuffix.size());
    const std::string_view digits = name.substr(name.size() - kDigits);
    name.remove_suffix(kDigits);
    if (!name.ends_with('.') || digits.find_first_not_of("0123456789abcdef") != digits.npos)
      return std::nullopt;
    name.remove_suffix(1);
    if (!name.ends_with(kContainerSuffix)) return std::nullopt;
    return std::string(name);
  }

  std::string path_of(std::string_view name) const { return in_directory_ + std::string(name); }

 private:
  static constexpr std::size_t kDigits = 16;
  static constexpr std::string_view kSuffix = ".tmp";

  std::string directory_;
  std::string in_directory_;  // what comes before the name in a path
  std::string prefix_;
};

// Held as long as the file is open; freed by the kernel when the process dies. 0, or the error.
int lock_file(int fd) noexcept {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// A file that an earlier run left, locked.
struct LeftFile {
  std::string path;
  FileDescriptor fd;
  std::uint64_t bytes = 0;
  timespec written{};
};

bool later(const timespec& a, const timespec& b) noexcept {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

std::vector<std::string> names_in(const std::string& directory) {
  struct Close {
    void operator()(DIR* stream) const noexcept { ::closedir(stream); }
  };
  FileDescriptor fd(open_path(directory, O_RDONLY | O_DIRECTORY));
  const std::unique_ptr<DIR, Close> stream(fd ? ::fdopendir(fd.get()) : nullptr);
  if (stream == nullptr) {
    throw Error(ErrorCode::kIo, system_error(directory, "cannot open directory", errno).what());
  }
  fd.release();
  std::vector<std::string> names;
  while (const dirent* found = ::readdir(stream.get())) names.emplace_back(found->d_name);
  return names;
}

// The last written file that was left beside `path` and has this recipe. Throws kUnavailable where
// one is still being written, kInvalidArgument where there are only others.
std::optional<LeftFile> find_left(const std::string& path, std::uint32_t recipe) {
  const TemporaryName temporary(path);
  std::optional<LeftFile> best;
  std::string other;
  for (const std::string& name : names_in(temporary.directory())) {
    const std::optional<std::uint32_t> its_recipe = temporary.recipe_of(name);
    if (!its_recipe || *its_recipe == 0) continue;
    LeftFile left{temporary.path_of(name), {}, 0, {}};
    left.fd.reset(open_path(left.path, O_RDWR | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    // What others left is not trusted.
    if (!left.fd || ::fstat(left.fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != ::geteuid()) {
      continue;
    }
    const int error = lock_file(left.fd.get());
    if (error == EWOULDBLOCK) {
      throw Error(ErrorCode::kUnavailable,
                  shown_path(path) + ": is being packed by another process");
    }
    if (error != 0) {
      throw system_error(left.path, "cannot lock", error);
    }
    // Between opening and locking it may have been published, removed or written.
    if (!is_file_at(left.fd.get(), left.path) || ::fstat(left.fd.get(), &status) != 0) continue;
    if (*its_recipe != recipe) {
      other = left.path;
      continue;
    }
    left.bytes = static_cast<std::uint64_t>(status.st_size);
    left.written = status.st_mtim;
    if (!best || later(left.written, best->written)) best = std::move(left);
  }
  if (!best && !other.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                shown_path(path) + ": the options are not those of the interrupted pack",
                "pack without --resume, or remove " + shown_path(other) + ", to start anew");
  }
  return best;
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

FileSink::FileSink(std::string path, bool overwrite, std::uint32_t recipe, bool resume)
    : path_(std::move(path)), overwrite_(overwrite), keep_(resume) {
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
  if (!resume || !take_over(recipe)) create(recipe);
}

bool FileSink::take_over(std::uint32_t recipe) {
  std::optional<LeftFile> left = find_left(path_, recipe);
  if (!left) return false;
  temporary_ = std::move(left->path);
  fd_ = left->fd.release();
  there_ = left->bytes;
  return true;
}

void FileSink::create(std::uint32_t recipe) {
  for (;;) {
    temporary_ = TemporaryName(path_).path(recipe, static_cast<std::uint32_t>(random_number()));
    // Before the file exists, so that no signal can come between.
    if (!keep_) registered_ = register_unpublished(temporary_);
    fd_ = open_path(temporary_, O_RDWR | O_CREAT | O_EXCL, 0666);
    const int error = fd_ < 0 ? errno : 0;
    // Another process may have found the file before it was locked, and goes on with it. Where
    // files cannot be locked, they cannot be continued either.
    if (fd_ >= 0 && lock_file(fd_) != EWOULDBLOCK) return;
    unregister_unpublished(std::exchange(registered_, -1));
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    if (error == 0 || error == EEXIST) continue;
    // Also where the directory does not exist: what was asked for is a new file, so this is no
    // kNotFound.
    throw Error(ErrorCode::kIo, system_error(path_, "cannot create", error).what());
  }
}

FileSink::~FileSink() {
  // Removed while it is locked: nobody continues it.
  if (!temporary_.empty() && !keeps()) {
    ::unlink(temporary_.c_str());
    unregister_unpublished(registered_);
  }
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

std::shared_ptr<const ByteSource> FileSink::interrupted() const {
  if (there_ == 0) return nullptr;
  return std::make_shared<const FileSource>(temporary_, FileSource::Mapping::kNever);
}

bool FileSink::keeps() const noexcept { return keep_ && !temporary_.empty() && there_ > 0; }

// Whether the bytes that come next lie in the file already.
bool FileSink::lies_there(ByteView bytes) const {
  if (there_ < at_ || bytes.size() > there_ - at_) return false;
  Buffer found(kWriteBytes);
  for (std::size_t done = 0; done < bytes.size();) {
    const ByteView next = bytes.subspan(done, std::min(found.size(), bytes.size() - done));
    const MutableBytes part = MutableBytes(found).first(next.size());
    if (read_at(fd_, at_ + done, part, path_) != next.size() ||
        !std::equal(next.begin(), next.end(), part.begin())) {
      return false;
    }
    done += next.size();
  }
  return true;
}

void FileSink::append(ByteView bytes) {
  if (lies_there(bytes)) {
    at_ += bytes.size();
    return;
  }
  while (!bytes.empty()) {
    const ByteView next = bytes.first(std::min(bytes.size(), kWriteBytes));
    write_at(fd_, at_, next, path_);
    bytes = bytes.subspan(next.size());
    at_ += next.size();
    there_ = std::max(there_, at_);
    if (at_ - flushed_ >= kWriteBackBytes) {
      // Failure is found by fdatasync; some file systems do not know the call.
      ::sync_file_range(fd_, static_cast<off_t>(flushed_), static_cast<off_t>(at_ - flushed_),
                        SYNC_FILE_RANGE_WRITE);
      flushed_ = at_;
    }
  }
}

// What an interrupted run wrote behind this place is of no use any more.
void FileSink::cut() {
  if (there_ > at_ && ::ftruncate(fd_, static_cast<off_t>(at_)) != 0) {
    throw system_error(path_, "cannot write", errno);
  }
  there_ = at_;
}

void FileSink::restart() {
  at_ = 0;
  flushed_ = 0;
  cut();
}

void FileSink::publish() {
  if (temporary_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, shown_path(path_) + ": was published before");
  }
  cut();
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

std::vector<UnpublishedFile> list_unpublished(const std::string& directory) {
  std::vector<UnpublishedFile> found;
  const std::string prefix = directory.ends_with('/') ? directory : directory + "/";
  for (const std::string& name : names_in(directory)) {
    const std::optional<std::string> base = TemporaryName::destination_of(name);
    if (!base) continue;
    UnpublishedFile file{prefix + name, prefix + *base, false};
    const FileDescriptor fd(open_path(file.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    file.alive = lock_file(fd.get()) == EWOULDBLOCK;
    found.push_back(std::move(file));
  }
  std::sort(found.begin(), found.end(),
            [](const UnpublishedFile& a, const UnpublishedFile& b) { return a.path < b.path; });
  return found;
}

bool remove_unpublished(const std::string& path) {
  const FileDescriptor fd(open_path(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    if (errno == ENOENT) return true;
    throw system_error(path, "cannot open", errno);
  }
  // Removed while it is locked: nobody continues it.
  const int error = lock_file(fd.get());
  if (error == EWOULDBLOCK) return false;
  if (error != 0) throw system_error(path, "cannot lock", error);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw system_error(path, "cannot remove", errno);
  return true;
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
