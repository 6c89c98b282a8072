#include "smlstore/spill.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix_file.h"

namespace sml {
namespace {

constexpr std::size_t kSpillBytes = 1U << 20;
constexpr std::size_t kPageBytes = 4096;

FileDescriptor open_unlinked_in(const std::string& directory) noexcept {
  FileDescriptor fd(open_path(directory, O_TMPFILE | O_RDWR, 0600));
  if (!fd && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
    std::string name = directory + "/.sml-spill-XXXXXX";
    fd.reset(::mkostemp(name.data(), O_CLOEXEC));
    if (fd) {
      ::unlink(name.c_str());
    }
  }
  return fd;
}

// An unlinked file, and the directory that it is in (for messages).
std::pair<FileDescriptor, std::string> open_unlinked(const std::string& directory) {
  std::vector<std::string> candidates;
  if (!directory.empty()) {
    candidates.push_back(directory);
  } else {
    const char* chosen = std::getenv("TMPDIR");
    if (chosen != nullptr && *chosen != '\0') {
      candidates.emplace_back(chosen);
    }
    candidates.insert(candidates.end(), {"/var/tmp", "/tmp"});
  }
  int first_error = 0;
  for (const std::string& candidate : candidates) {
    FileDescriptor fd = open_unlinked_in(candidate);
    if (fd) {
      return {std::move(fd), candidate};
    }
    first_error = first_error == 0 ? errno : first_error;
  }
  throw Error(
      ErrorCode::kIo,
      system_error(candidates.front(), "cannot create a temporary file", first_error).what(),
      "TMPDIR names another directory");
}

Error space_error(const std::string& directory, int error) {
  return Error(ErrorCode::kIo,
               system_error(directory, "cannot grow a temporary file", error).what(),
               "TMPDIR names another directory");
}

}  // namespace

SpillMemory::SpillMemory(std::uint64_t anonymous_bytes, std::string directory)
    : budget_(anonymous_bytes), directory_(std::move(directory)) {}

void* SpillMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes < kSpillBytes || alignment > kPageBytes) {
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  const bool within_budget = anonymous_.fetch_add(bytes) + bytes <= budget_;
  if (within_budget) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      anonymous_.fetch_sub(bytes);
      throw std::bad_alloc();
    }
    return p;
  }
  anonymous_.fetch_sub(bytes);
  const auto [fd, directory] = open_unlinked(directory_);
  // Reserved, not only sized: a full disk is an error here, and a SIGBUS at the first touch of a
  // hole.
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      throw space_error(directory, errno);
    }
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      throw space_error(directory, errno);
    }
  }
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) {
    throw std::bad_alloc();
  }
  const std::lock_guard lock(mutex_);
  try {
    mapped_files_.insert(p);
  } catch (...) {
    ::munmap(p, bytes);
    throw;
  }
  return p;
}

void SpillMemory::do_deallocate(void* p, std::size_t bytes, std::size_t alignment) {
  if (bytes < kSpillBytes || alignment > kPageBytes) {
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    return;
  }
  bool anonymous = false;
  {
    const std::lock_guard lock(mutex_);
    anonymous = mapped_files_.erase(p) == 0;
  }
  ::munmap(p, bytes);
  if (anonymous) {
    anonymous_.fetch_sub(bytes);
  }
}

SpillFile::SpillFile(const std::string& directory) {
  auto [fd, found] = open_unlinked(directory);
  directory_ = std::move(found);
  fd_ = fd.release();
}

SpillFile::~SpillFile() { ::close(fd_); }

void SpillFile::append(const void* data, std::size_t bytes) {
  ByteView rest{static_cast<const std::byte*>(data), bytes};
  while (!rest.empty()) {
    const ssize_t put = ::pwrite(fd_, rest.data(), rest.size(), static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      throw space_error(directory_, put < 0 ? errno : ENOSPC);
    }
    rest = rest.subspan(static_cast<std::size_t>(put));
    size_ += static_cast<std::uint64_t>(put);
  }
}

void SpillFile::append_zeros(std::uint64_t bytes) {
  if (bytes > kMaxSpillBytes - std::min(size_, kMaxSpillBytes)) {
    throw space_error(directory_, EFBIG);
  }
  if (::ftruncate(fd_, static_cast<off_t>(size_ + bytes)) != 0) {
    throw space_error(directory_, errno);
  }
  size_ += bytes;
}

void SpillFile::truncate(std::uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
    throw space_error(directory_, errno);
  }
  size_ = bytes;
}

void SpillFile::read(std::uint64_t offset, void* out, std::size_t bytes) const {
  const MutableBytes target{static_cast<std::byte*>(out), bytes};
  if (read_at(fd_, offset, target, directory_) != bytes) {
    throw Error(ErrorCode::kIo, shown_path(directory_) + ": a temporary file ends too early");
  }
}

}  // namespace sml
