// What is packed: files found by walking or listed, members of archives, framed records. Either a
// list, whose records can be read in any order and twice, or a stream, read once.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/error.h"

namespace sml {

enum class Symlinks : std::uint8_t { kFollow, kSkip, kError };

// What a file is, whatever its path.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  auto operator<=>(const FileIdentity&) const = default;
};

struct SourceOptions {
  std::string prefix;  // put before every key
  Symlinks symlinks = Symlinks::kFollow;
  // Called for what cannot be a record (unreadable directory or file, dangling link, FIFO, device,
  // link loop, bad key), with where it is and why. It may throw to give up. Default: throws the
  // error.
  std::function<void(const Error&)> on_problem;
  // Called for each member of an archive that is no file and no directory (symbolic link, FIFO,
  // device) and is passed over, with where it is; not for links under Symlinks::kSkip. Perhaps
  // twice for one member. Default: nothing.
  std::function<void(const std::string&)> on_passed_over;
  // Called now and then with the number of records found so far.
  std::function<void(std::uint64_t)> on_found;
  // Files that a walk passes over without a word: where the output goes.
  std::vector<FileIdentity> leave_out;
  unsigned threads = 0;  // of a walk; 0: one per processor
  std::stop_token stop;  // throws kCancelled when requested
  std::pmr::memory_resource* memory =
      std::pmr::get_default_resource();  // for arrays that grow with the records
};

// Records that can be read in any order. Const functions are safe for threads.
class RecordList {
 public:
  virtual ~RecordList() = default;
  virtual std::uint64_t size() const = 0;
  virtual std::string_view key(std::uint64_t i) const = 0;  // checked; valid as long as the list
  virtual std::uint64_t bytes(std::uint64_t i) const = 0;   // size when it was listed
  virtual std::string origin(
      std::uint64_t i) const = 0;  // for messages: a path, or "photos.tar: member"
  // Reads bytes(i) bytes from `offset` 0, or the range of a large record. Throws kIo, naming the
  // origin, where it cannot be read or where the file is no longer bytes(i) long ("changed while it
  // was read"), kCorrupt where a checksum of the input is wrong.
  virtual void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const = 0;
};

// Records that come once, in order. For one thread.
class RecordStream {
 public:
  struct Record {
    std::string key;
    std::string origin;
    std::optional<std::uint64_t> bytes;  // size, where the stream tells it beforehand
  };

  virtual ~RecordStream() = default;
  // The next record; false at the (proper) end. What was not read of the previous record is passed
  // over. Throws kTruncated, kCorrupt, kIo.
  virtual bool next(Record& record) = 0;
  // Fills `out` from the current record as far as it goes; fewer bytes only at the end of the
  // record.
  virtual std::size_t read(MutableBytes out) = 0;
};

// Every regular file below `sources` (directories, walked; files, as they are), in the order of the
// sources, each directory in name order. Keys as in the contract: below a directory the path below
// it, of a file its base name. A source that does not exist is an error (kNotFound) at once.
// Directories reached twice through symbolic links on one path are a loop (a problem, not
// followed). A link that is itself named as a source is followed whatever options.symlinks says.
// Below one source the records are in name order of their keys.
std::unique_ptr<RecordList> list_walked(const std::vector<std::string>& sources,
                                        const SourceOptions& options);

// The regular files named in `paths` (read from `next_path` until it gives false): keys are the
// paths as listed, without leading "./" and "/". Directories are passed over; ".." components and
// what cannot be opened are problems.
std::unique_ptr<RecordList> list_paths(const std::function<bool(std::string& path)>& next_path,
                                       const SourceOptions& options);

// The regular members of a tar or zip archive (also compressed) in a regular file. Plain
// uncompressed tar is read in place; from others the members are unpacked into an unlinked
// temporary file. Hard links in a tar are copies of what they link to; symbolic links, directories
// and devices are passed over (symbolic links are problems under Symlinks::kError). Names are the
// bytes that the archive has. Archives one behind the other are read as one. Throws
// kInvalidArgument where it is no archive, kTruncated where it was cut short (a tar without its end
// mark included), kCorrupt where it is damaged or something else follows it.
std::unique_ptr<RecordList> list_archive(const std::string& path, const SourceOptions& options);

// The records of a framed stream in a regular file, read in place. All checksums are checked while
// listing. What its sender failed to give is a problem (kIo). Throws kTruncated, kCorrupt,
// kUnsupported as FrameReader does, and kCorrupt where bytes follow the end frame.
std::unique_ptr<RecordList> list_frames(const std::string& path, const SourceOptions& options);

// The same from a file descriptor that can be read once (standard input, a pipe). `name` is for
// messages. The descriptor is not closed; at the end of the stream it has been read to its end.
// Hard links in a streamed tar are problems (kUnsupported): what they link to has gone by. A zip is
// copied to an unlinked temporary file first, since what it holds is said at its end.
std::unique_ptr<RecordStream> stream_archive(int fd, const std::string& name,
                                             const SourceOptions& options);
std::unique_ptr<RecordStream> stream_frames(int fd, const std::string& name,
                                            const SourceOptions& options);

}  // namespace sml
