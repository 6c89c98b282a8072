// FileSource: a regular file as a byte source, mapped where that is safe.
#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "far_file.h"
#include "posix_file.h"
#include "smlstore/directory_store.h"

namespace sml {
namespace {

// File systems whose pages cannot vanish because another machine changed the file. linux/magic.h
// lacks the last three.
constexpr std::array kLocalFileSystems = {
    std::int64_t{EXT4_SUPER_MAGIC},  // ext2 and ext3 as well
    std::int64_t{XFS_SUPER_MAGIC},
    std::int64_t{BTRFS_SUPER_MAGIC},
    std::int64_t{F2FS_SUPER_MAGIC},
    std::int64_t{TMPFS_MAGIC},
    std::int64_t{RAMFS_MAGIC},
    std::int64_t{HUGETLBFS_MAGIC},
    std::int64_t{OVERLAYFS_SUPER_MAGIC},
    std::int64_t{SQUASHFS_MAGIC},
    std::int64_t{EROFS_SUPER_MAGIC_V1},
    std::int64_t{ISOFS_SUPER_MAGIC},
    std::int64_t{MSDOS_SUPER_MAGIC},
    std::int64_t{EXFAT_SUPER_MAGIC},
    std::int64_t{REISERFS_SUPER_MAGIC},
    std::int64_t{NILFS_SUPER_MAGIC},
    std::int64_t{0x2fc12fc1},  // zfs
    std::int64_t{0x3153464a},  // jfs
    std::int64_t{0xca451a4e},  // bcachefs
};

bool safe_to_map(int fd) noexcept {
  struct statfs status {};
  if (::fstatfs(fd, &status) != 0) {
    return false;
  }
  const auto type = static_cast<std::int64_t>(status.f_type) & 0xffffffff;
  return std::find(kLocalFileSystems.begin(), kLocalFileSystems.end(), type) !=
         kLocalFileSystems.end();
}

}  // namespace

FileSource::FileSource(const std::string& path, Mapping mapping) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  FileDescriptor fd(open_path(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    throw system_error(path, "cannot open", errno);
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    throw system_error(path, "cannot open", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        shown_path(path) + (S_ISDIR(status.st_mode) ? ": is a directory" : ": is no regular file"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (mapping == Mapping::kWhereSafe && size_ > 0 && safe_to_map(fd.get())) {
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (map != MAP_FAILED) {
      map_ = static_cast<const std::byte*>(map);
    }
  }
  fd_ = fd.release();
}

FileSource::~FileSource() {
  if (map_ != nullptr) {
    ::munmap(const_cast<std::byte*>(map_), size_);
  }
  ::close(fd_);
}

void FileSource::read(std::uint64_t offset, MutableBytes out) const {
  // Not from the mapping: a failing disk is an error here and a SIGBUS there.
  if (offset > size_ || out.size() > size_ - offset ||
      read_at(fd_, offset, out, path_) != out.size()) {
    throw Error(ErrorCode::kTruncated, shown_path(path_) + ": ends before byte " +
                                           std::to_string(offset) + " + " +
                                           std::to_string(out.size()));
  }
}

ByteView FileSource::view(std::uint64_t offset, std::uint64_t bytes) const {
  if (map_ == nullptr || offset > size_ || bytes > size_ - offset) {
    return {};
  }
  return {map_ + offset, bytes};
}

std::shared_ptr<const ContainerReader> open_container_file(const std::string& path, bool mapped,
                                                           const std::string& index_directory) {
  const auto mapping = mapped ? FileSource::Mapping::kWhereSafe : FileSource::Mapping::kNever;
  try {
    const auto file = std::make_shared<const FileSource>(path, mapping);
    if (file->is_mapped()) return std::make_shared<const ContainerReader>(file);
    return open_far_file(file, index_directory);
  } catch (const Error& error) {
    throw error.within_once(shown_path(path));
  }
}

}  // namespace sml
