// Memory for arrays that grow with the number of records: anonymous up to a budget, then unlinked
// temporary files, so that private memory stays bounded whatever the input.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <string>
#include <unordered_set>

namespace sml {

// Allocations of at least 1 MiB beyond `anonymous_bytes` in total are shared mappings of unlinked
// files in `directory`; all others come from the default resource. Safe for threads. Throws Error
// kIo where the temporary file cannot be made or grown.
class SpillMemory final : public std::pmr::memory_resource {
 public:
  // directory: empty for $TMPDIR, else /var/tmp, else /tmp (the first that works).
  explicit SpillMemory(std::uint64_t anonymous_bytes = 128U << 20, std::string directory = {});

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::uint64_t budget_;
  std::string directory_;
  std::atomic<std::uint64_t> anonymous_{0};
  std::mutex mutex_;
  std::unordered_set<void*> mapped_files_;  // the allocations that are not anonymous
};

// An unlinked temporary file to write once and read by position (spilled archive members). Reading
// is safe for threads.
class SpillFile {
 public:
  explicit SpillFile(const std::string& directory = {});
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  std::uint64_t size() const noexcept { return size_; }
  int descriptor() const noexcept { return fd_; }    // for reading by position
  void append(const void* data, std::size_t bytes);  // throws kIo
  void append_zeros(std::uint64_t bytes);            // as a hole; throws kIo
  void truncate(std::uint64_t bytes);                // to at most size(); throws kIo
  void read(std::uint64_t offset, void* out, std::size_t bytes) const;  // throws kIo

 private:
  static constexpr std::uint64_t kMaxSpillBytes = std::uint64_t{1} << 62;

  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::string directory_;
};

}  // namespace sml
