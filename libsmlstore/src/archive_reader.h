// Members of a tar or zip archive, one after another, through libarchive: names as raw bytes
// whatever the locale, and an error for every archive that is damaged, cut short, or followed by
// something else.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "gzip_reader.h"
#include "smlformat/bytes.h"
#include "smlformat/error.h"

struct archive;
struct archive_entry;

namespace sml {

struct ArchiveMember {
  enum class Kind : std::uint8_t { kFile, kHardLink, kSymbolicLink, kDirectory, kOther };

  Kind kind = Kind::kOther;
  std::string name;         // as it is in the archive
  std::string link;         // of a hard link: the name of the earlier member that it repeats
  std::uint64_t bytes = 0;  // 0 where the archive does not say before the data
  bool bytes_known = false;
  bool sparse = false;  // has holes that are not in the archive
};

// For one thread.
class ArchiveReader {
 public:
  // kOnce: the descriptor is read to its end, after `head`, bytes that were taken from it already;
  // tar only. kRegularFile: read by position; tar and zip. The descriptor is not closed; `name` is
  // for messages. Throws kInvalidArgument where it is no archive, kIo.
  enum class Input : std::uint8_t { kOnce, kRegularFile };
  ArchiveReader(int fd, Input input, std::string name, std::stop_token stop, std::string head = {});
  ~ArchiveReader();
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;

  // The next member; false at the end. Throws kCorrupt or kTruncated, naming the archive, where it
  // is damaged, cut short (the end mark is missing), or goes on after its end; kIo, kCancelled. A
  // member that cannot be given, in an archive that can be read on, throws too, and usable() is
  // true.
  bool next(ArchiveMember& member);

  // The next bytes of the member: at `offset`, behind a hole where that is not the end of the bytes
  // before. False at the member's end, with `offset` its size. The bytes are valid until the next
  // call. Throws as next() does.
  bool next_bytes(ByteView& bytes, std::uint64_t& offset);

  // After an error: whether next() can go on with the next member.
  bool usable() const noexcept { return usable_; }

  // A tar that is not compressed, whose members lie in the input as they are.
  bool is_plain_tar() const;
  // After next(): where the member's data begin, if it is a plain tar.
  std::uint64_t data_position() const;
  // After next(): where what belongs to the member (also its long name, for example) begins; at the
  // end, where the end mark begins.
  std::uint64_t header_position() const;

 private:
  struct Callbacks;

  std::size_t read_raw(MutableBytes out);
  std::size_t read_input(const void** buffer);
  std::int64_t skip_input(std::int64_t bytes) noexcept;
  std::int64_t seek_input(std::int64_t offset, int whence);
  [[noreturn]] void fail(int result, std::string_view member);
  void check_end();
  bool is_empty_zip() const;
  bool is_zip() const;
  std::string zip_name() const;

  int fd_;
  Input input_;
  std::string name_;
  std::stop_token stop_;
  std::string head_;
  std::uint64_t raw_position_ = 0;    // of the next byte that read_raw() gives, of a regular file
  std::unique_ptr<GzipReader> gzip_;  // between the input and libarchive, where it is compressed so
  std::uint64_t position_ = 0;        // of the next byte that read_input() gives
  std::uint64_t input_bytes_ = 0;     // of a regular file
  std::vector<std::byte> buffer_;
  std::size_t given_bytes_ = 0;        // by the last read_input()
  std::exception_ptr callback_error_;  // libarchive is C: it must not see exceptions
  bool usable_ = true;
  bool ended_ = false;
  std::string member_name_;
  bool member_bytes_known_ = false;
  bool member_sparse_ = false;
  std::uint64_t member_bytes_ = 0;
  std::uint64_t member_end_ = 0;  // of the bytes given so far

  struct Free {
    void operator()(archive* a) const noexcept;
  };
  std::unique_ptr<archive, Free> archive_;
};

}  // namespace sml
