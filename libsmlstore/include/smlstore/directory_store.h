// Containers as files: opening for reading, and writing so that a container appears whole or not at
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"

namespace sml {

inline constexpr std::string_view kContainerSuffix = ".sml";
// In the directory of a data set; see DirectoryLock.
inline constexpr std::string_view kLockName = ".sml-lock";
// In the directory of a data set that was packed into; changed under the lock, by renaming a new
// one.
inline constexpr std::string_view kCatalogName = ".sml-catalog";

// A regular file as a byte source. On local file systems it is mapped (read-only, shared), so that
// view() works; on NFS, CephFS, FUSE, 9p, SMB and the like it is read by pread. Throws kNotFound,
// kIo. Safe for threads.
class FileSource final : public ByteSource {
 public:
  enum class Mapping { kWhereSafe, kNever };
  explicit FileSource(const std::string& path, Mapping mapping = Mapping::kWhereSafe);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, MutableBytes out) const override;
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override;
  const std::string& path() const noexcept { return path_; }
  bool is_mapped() const noexcept { return map_ != nullptr; }

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  const std::byte* map_ = nullptr;
};

// A container file, opened; mapped where that is wanted and safe. Of one that is not mapped the
// footer is kept below `index_directory`, unless that is empty. Throws as FileSource and
// ContainerReader do, naming the file.
std::shared_ptr<const ContainerReader> open_container_file(const std::string& path, bool mapped,
                                                           const std::string& index_directory = {});

// A container file being written: a hidden temporary name (".NAME.sml.<digits>.tmp") beside the
// destination, locked (flock) as long as the sink lives. publish() syncs, renames and syncs the
// directory; only then is the file visible and safe. The destructor removes what was not published,
// unless it is to be resumed.
class FileSink final : public ByteSink {
 public:
  // Fails at once (kAlreadyExists) where `path` exists and `overwrite` is false; kIo where the
  // directory cannot be written; kInvalidArgument where path exists and is no regular file. A
  // symbolic link to a regular file counts as one, and is replaced itself.
  //
  // `recipe`: what the bytes depend on besides the input; part of the temporary name. 0: they are
  // not to be continued. With `resume` the file is kept when it is not published, and one that a
  // process that is gone left for this path with this recipe is continued, the newest of several:
  // what is appended is compared with what lies there, and written only where it differs. Throws
  // kUnavailable where another process is writing one, kInvalidArgument where there are only files
  // of other recipes.
  FileSink(std::string path, bool overwrite, std::uint32_t recipe = 0, bool resume = false);
  ~FileSink() override;
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  // Large writes; write-back is started as they come, so that publish() waits little. Throws kIo
  // (disk full: names the path).
  void append(ByteView bytes) override;
  void begin_footer() override { cut(); }
  void restart() override;  // truncates the temporary file
  // Throws kAlreadyExists where the path appeared meanwhile and overwrite is false (checked
  // atomically), kIo.
  void publish();
  // Where the bytes are until then: complete once a container is sealed, so that it can be opened
  // and checked.
  const std::string& unpublished_path() const noexcept { return temporary_; }
  // What lies there: at first what an interrupted run left.
  std::uint64_t unpublished_bytes() const noexcept { return there_; }
  // That as a source, not mapped: it may be written over. Null where nothing was left.
  std::shared_ptr<const ByteSource> interrupted() const;
  // Whether the destructor will leave something that can be resumed.
  bool keeps() const noexcept;

  // The temporary files of this process that are not yet published, and not to be resumed, are
  // unlinked by this function, which is async-signal-safe.
  static void remove_unpublished() noexcept;

 private:
  bool take_over(std::uint32_t recipe);
  void create(std::uint32_t recipe);
  bool lies_there(ByteView bytes) const;
  void cut();

  std::string path_;
  std::string temporary_;
  bool overwrite_;
  bool keep_;
  int fd_ = -1;
  int registered_ = -1;      // slot in the table that remove_unpublished() walks
  std::uint64_t at_ = 0;     // where the next bytes come
  std::uint64_t there_ = 0;  // size of the file
  std::uint64_t flushed_ = 0;
};

// What FileSinks have not published, in a directory, of names that are not too long for a data set.
struct UnpublishedFile {
  std::string path;
  std::string destination;  // what it was to become
  bool alive = false;       // a sink writes it
};
// Throws kIo.
std::vector<UnpublishedFile> list_unpublished(const std::string& directory);
// Removes such a file; false, and it stays, where it is being written. Throws kIo.
bool remove_unpublished(const std::string& path);

// A data set's directory, held by one publisher at a time (flock on a file ".sml-lock" in it; freed
// by the kernel when the process dies). Waits for the lock. Throws kIo; kCancelled where `stop` is
// requested while it waits.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory, const std::stop_token& stop = {});
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  void lock(const std::string& path, const std::stop_token& stop);

  int fd_ = -1;
};

// Removes a data set's directory that was made for nothing: that holds its lock file at most, and
// is not locked by another. Whether it is gone.
bool remove_unused_directory(const std::string& directory) noexcept;

// Names (without directory, with suffix) of the containers in a directory, in byte order. Hidden
// names are no containers. Throws kNotFound, kIo.
std::vector<std::string> list_containers(const std::string& directory);

// "NAME" of ".../NAME.sml": what reports and errors call a container. Of other paths the base name
// as it is.
std::string container_name(std::string_view path);

// Creates `directory` and its parents where missing, and returns those it made, the outermost
// first. Throws kIo.
std::vector<std::string> make_directories(const std::string& directory);

}  // namespace sml
