#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interrupt.h"
#include "record_writer.h"
#include "smlstore/directory_store.h"

namespace sml {
namespace {

// Directories kept open, so that keys in random order do not walk from the top each time.
constexpr std::size_t kMaxOpenDirectories = 256;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string random_name() {
  std::random_device device;
  char name[32];
  std::snprintf(name, sizeof name, ".sml-%08x%08x.tmp", device(), device());
  return name;
}

// Errors of the file system as a whole: going on would fail for every record.
bool is_fatal(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO || error == EROFS;
}

class DirectoryWriter final : public RecordWriter {
 public:
  DirectoryWriter(const std::string& directory, bool overwrite)
      : directory_(directory), overwrite_(overwrite), temporary_(random_name()) {
    make_directories(directory);
    // The directory itself may be reached through links: the user named it.
    top_ = Descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (top_.get() < 0) throw Error(ErrorCode::kIo, directory + ": " + std::strerror(errno));
  }
  ~DirectoryWriter() override { discard(); }

  std::optional<Error> write(const RecordPiece& piece) override {
    try {
      if (piece.offset == 0) begin(piece.key);
      put(piece.bytes);
      if (piece.last) publish();
    } catch (const Error& error) {
      discard();
      if (fatal_) throw error.within("record '" + std::string(piece.key) + "'");
      return error;
    }
    return std::nullopt;
  }
  void fail(const RecordPiece& /*piece*/, const Error& /*error*/) override { discard(); }
  void release() override {}
  void flush() override {}
  void finish() override {}

 private:
  void begin(std::string_view key) {
    path_ = key;
    const std::size_t slash = key.rfind('/');
    name_ = key.substr(slash == std::string_view::npos ? 0 : slash + 1);
    check_component(name_);
    parent_ = slash == std::string_view::npos ? top_.get() : open_directory(key.substr(0, slash));
    file_ = Descriptor(::openat(parent_, temporary_.c_str(),
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file_.get() < 0) refuse(errno);
    set_unfinished_file(parent_, temporary_);
  }

  void put(ByteView bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) refuse(errno);
      if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void publish() {
    if (::close(file_.release()) != 0) {
      const int error = errno;
      ::unlinkat(parent_, temporary_.c_str(), 0);
      clear_unfinished_file();
      refuse(error);
    }
    const char* const from = temporary_.c_str();
    int status =
        ::renameat2(parent_, from, parent_, name_.c_str(), overwrite_ ? 0 : RENAME_NOREPLACE);
    if (status != 0 && errno == EINVAL) {  // a file system without RENAME_NOREPLACE
      status = ::linkat(parent_, from, parent_, name_.c_str(), 0);
      if (status == 0) ::unlinkat(parent_, from, 0);
    }
    const int error = errno;
    if (status != 0) ::unlinkat(parent_, from, 0);
    clear_unfinished_file();
    if (status != 0) refuse(error);
  }

  void discard() {
    if (file_.get() < 0) return;
    file_ = Descriptor();
    ::unlinkat(parent_, temporary_.c_str(), 0);
    clear_unfinished_file();
  }

  // The directory for a key's path, made where missing. Every step starts from an open directory
  // and follows no link, so that no name, and nobody who changes the tree meanwhile, leads outside.
  int open_directory(std::string_view path) {
    const auto known = open_.find(std::string(path));
    if (known != open_.end()) return known->second.get();
    if (open_.size() >= kMaxOpenDirectories) open_.clear();
    Descriptor at;
    int from = top_.get();
    std::string_view rest = path;
    for (;;) {
      const std::size_t slash = rest.find('/');
      const std::string component(rest.substr(0, slash));
      check_component(component);
      if (::mkdirat(from, component.c_str(), 0777) != 0 && errno != EEXIST) refuse(errno);
      Descriptor next(
          ::openat(from, component.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (next.get() < 0) refuse(errno);
      at = std::move(next);
      from = at.get();
      if (slash == std::string_view::npos) break;
      rest.remove_prefix(slash + 1);
    }
    return open_.emplace(path, std::move(at)).first->second.get();
  }

  void check_component(std::string_view component) const {
    if (component == "..")
      throw Error(ErrorCode::kInvalidArgument, "a key with '..' is not written as a file");
    if (component.empty() || component == ".") {
      throw Error(ErrorCode::kInvalidArgument,
                  "a key with an empty or '.' component is not written as a file");
    }
  }

  [[noreturn]] void refuse(int error) {
    fatal_ = is_fatal(error);
    throw Error(error == EEXIST ? ErrorCode::kAlreadyExists : ErrorCode::kIo,
                directory_ + "/" + path_ + ": " + std::strerror(error),
                error == EEXIST && !overwrite_ ? "--overwrite replaces existing files" : "");
  }

  std::string directory_;
  bool overwrite_;
  std::string temporary_;  // one name serves: one file is written at a time
  Descriptor top_;
  std::unordered_map<std::string, Descriptor> open_;
  // of the record being written
  std::string path_;
  std::string name_;
  int parent_ = -1;
  Descriptor file_;
  bool fatal_ = false;
};

}  // namespace

std::unique_ptr<RecordWriter> make_directory_writer(const std::string& directory, bool overwrite) {
  return std::make_unique<DirectoryWriter>(directory, overwrite);
}

}  // namespace sml
