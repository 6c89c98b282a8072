// The members of an archive as they come through a pipe.
#include <algorithm>
#include <array>
#include <cerrno>

#include <unistd.h>

#include "archive_reader.h"
#include "posix_file.h"
#include "record_table.h"
#include "smlstore/spill.h"

namespace sml {
namespace {

constexpr std::size_t kHeadBytes = 4;  // enough to tell a zip
constexpr std::size_t kCopyBytes = 256U << 10;

class ArchiveStream final : public RecordStream {
 public:
  ArchiveStream(int fd, std::string name, const SourceOptions& options)
      : name_(std::move(name)), options_(options) {
    check_prefix(options_.prefix);
    std::string head(kHeadBytes, '\0');
    head.resize(read_some(fd, head.data(), head.size(), true));
    if (head.starts_with("PK")) {
      // What a zip holds is said at its end.
      spool_ = std::make_unique<SpillFile>();
      spool_->append(head.data(), head.size());
      std::vector<char> buffer(kCopyBytes);
      while (const std::size_t got = read_some(fd, buffer.data(), buffer.size(), false)) {
        spool_->append(buffer.data(), got);
      }
      reader_ = std::make_unique<ArchiveReader>(
          spool_->descriptor(), ArchiveReader::Input::kRegularFile, name_, options_.stop);
    } else {
      reader_ = std::make_unique<ArchiveReader>(fd, ArchiveReader::Input::kOnce, name_,
                                                options_.stop, std::move(head));
    }
  }

  bool next(Record& record) override {
    while (true) {
      try {
        if (!reader_->next(member_)) {
          return false;
        }
        if (is_record()) {
          break;
        }
      } catch (const Error& problem) {
        if (!reader_->usable()) {
          throw;
        }
        report_problem(options_, problem);
      }
    }
    record.key = options_.prefix;
    record.key += strip_path(member_.name);
    record.origin = shown_path(name_) + ": " + shown_path(strip_path(member_.name));
    bytes_ = {};
    given_ = 0;
    next_offset_ = 0;
    ended_ = false;
    return true;
  }

  std::size_t read(MutableBytes out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      if (given_ < next_offset_) {
        const auto hole = static_cast<std::size_t>(
            std::min<std::uint64_t>(out.size() - done, next_offset_ - given_));
        std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(done), hole, std::byte{0});
        done += hole;
        given_ += hole;
      } else if (!bytes_.empty()) {
        const std::size_t part = std::min(out.size() - done, bytes_.size());
        std::copy_n(bytes_.begin(), part, out.begin() + static_cast<std::ptrdiff_t>(done));
        bytes_ = bytes_.subspan(part);
        done += part;
        given_ += part;
        next_offset_ += part;
      } else if (ended_) {
        break;
      } else {
        bytes_ = {};
        ended_ = !reader_->next_bytes(bytes_, next_offset_);
      }
    }
    return done;
  }

 private:
  // Up to `bytes` bytes, all of them where `whole` and the input has them; 0 at its end.
  std::size_t read_some(int fd, char* out, std::size_t bytes, bool whole) const {
    std::size_t done = 0;
    do {
      check_stop(options_);
      const ssize_t got = ::read(fd, out + done, bytes - done);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        throw system_error(name_, "cannot read", errno);
      }
      if (got == 0) {
        break;
      }
      done += static_cast<std::size_t>(got);
    } while (done == 0 || (whole && done < bytes));
    return done;
  }

  // False for what is passed over; throws a problem for what cannot be a record.
  bool is_record() const {
    const std::string origin = name_ + ": " + std::string(strip_path(member_.name));
    switch (member_.kind) {
      case ArchiveMember::Kind::kFile:
        check_path_key(options_.prefix, strip_path(member_.name), origin);
        return true;
      case ArchiveMember::Kind::kHardLink:
        throw Error(ErrorCode::kUnsupported,
                    shown_path(origin) + ": is a hard link to '" + shown_path(member_.link) +
                        "', which a stream cannot go back to",
                    "pack the archive from a file");
      case ArchiveMember::Kind::kSymbolicLink:
        if (options_.symlinks == Symlinks::kError) {
          throw Error(ErrorCode::kInvalidArgument, shown_path(origin) + ": is a symbolic link");
        }
        if (options_.symlinks == Symlinks::kSkip) return false;
        [[fallthrough]];
      case ArchiveMember::Kind::kOther:
        if (options_.on_passed_over) options_.on_passed_over(shown_path(origin));
        return false;
      case ArchiveMember::Kind::kDirectory:
        return false;
    }
    return false;
  }

  std::string name_;
  SourceOptions options_;
  std::unique_ptr<SpillFile> spool_;
  std::unique_ptr<ArchiveReader> reader_;
  ArchiveMember member_;
  ByteView bytes_;                 // read from the archive, not yet given
  std::uint64_t next_offset_ = 0;  // where they belong in the member
  std::uint64_t given_ = 0;        // of the member so far
  bool ended_ = true;
};

}  // namespace

std::unique_ptr<RecordStream> stream_archive(int fd, const std::string& name,
                                             const SourceOptions& options) {
  return std::make_unique<ArchiveStream>(fd, name, options);
}

}  // namespace sml
