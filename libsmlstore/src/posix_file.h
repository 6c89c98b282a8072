// What the sources, sinks and spill files need of POSIX: descriptors that close themselves, reads
// and writes that are whole, paths longer than PATH_MAX, and errors that name the path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <sys/stat.h>

#include "smlformat/bytes.h"
#include "smlformat/error.h"

namespace sml {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

// A path as messages show it: control bytes (a newline would make two lines of one) as \n, \xNN.
std::string shown_path(std::string_view path);

// "PATH: ACTION: <strerror>"; kNotFound where the path does not exist, else kIo.
Error system_error(std::string_view path, std::string_view action, int error);

// Calls that a signal interrupted are repeated everywhere here.

// open(2) with O_CLOEXEC, of paths of any length. -1 and errno on failure.
int open_path(std::string_view path, int flags, unsigned mode = 0) noexcept;
// Likewise fstatat(2).
int stat_path(std::string_view path, struct stat& status, bool follow) noexcept;

// Whether an open file still has this name.
bool is_file_at(int fd, std::string_view path) noexcept;

// Fills `out` from `offset`; fewer bytes only at the end of the file. Throws the system's error,
// naming `path`.
std::size_t read_at(int fd, std::uint64_t offset, MutableBytes out, std::string_view path);
void write_at(int fd, std::uint64_t offset, ByteView bytes, std::string_view path);

// Reads out.size() bytes from `offset` of the regular file at `path`, which was `file_bytes` long
// (kIo, "changed while it was read", where it ends within the range, or goes on behind a range that
// reaches file_bytes). Never waits for a FIFO or a device.
void read_regular_file(std::string_view path, std::uint64_t file_bytes, std::uint64_t offset,
                       MutableBytes out, bool follow);

// Why something that is neither a file nor a directory cannot be a record: "is a FIFO", "is a
// device", ...
const char* special_file(mode_t mode) noexcept;

// Opens a regular file for reading, never waiting for a FIFO or a device; `bytes`, where given,
// becomes its size. Throws the system's error, or kInvalidArgument where it is something else; both
// name the path.
FileDescriptor open_regular_file(const std::string& path, std::uint64_t* bytes = nullptr);

// From the system's source of randomness: no other process draws the same. Throws kIo.
std::uint64_t random_number();

// The error of a file whose length is not what it was when it was listed.
Error changed_error(std::string_view path, std::uint64_t listed_bytes);

}  // namespace sml
