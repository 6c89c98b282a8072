// A framed record stream as records: in place in a regular file, or as it comes through a pipe.
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix_file.h"
#include "record_table.h"
#include "smlformat/checksum.h"
#include "smlformat/frames.h"

namespace sml {
namespace {

// What a sender could not give.
Error failed_frame(const Frame& frame, ByteView message) {
  const std::string record =
      frame.key.empty() ? "a record" : "record '" + shown_path(frame.key) + "'";
  return Error(ErrorCode::kIo, record + ": its sender failed: " + shown_path(as_text(message)));
}

// The reader's errors name no file; those of reading from the system do.
bool next_frame_of(FrameReader& reader, Frame& frame, ByteView& payload, std::string_view path) {
  try {
    return reader.next(frame, payload);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo || error.code() == ErrorCode::kNotFound ||
        error.code() == ErrorCode::kCancelled) {
      throw;
    }
    throw error.within(shown_path(path));
  }
}

Error trailing_bytes() {
  return Error(ErrorCode::kCorrupt, "framed stream: bytes follow its end frame");
}

class FramesList final : public RecordList {
 public:
  FramesList(const std::string& path, const SourceOptions& options)
      : path_(path),
        table_(options),
        places_(options.memory),
        crcs_(options.memory),
        pieces_(options.memory) {
    std::uint64_t file_bytes = 0;
    fd_ = open_regular_file(path, &file_bytes);
    ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    std::uint64_t given = 0;
    FrameReader reader([&](MutableBytes out) {
      const auto room = out.first(
          static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file_bytes - given)));
      const std::size_t got = read_at(fd_.get(), given, room, path_);
      given += got;
      return got;
    });
    list(reader, options);
    if (reader.offset() != file_bytes) {
      throw trailing_bytes().within(shown_path(path_));
    }
    ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_NORMAL);
    table_.finish();
  }

  std::uint64_t size() const override { return table_.size(); }
  std::string_view key(std::uint64_t i) const override { return table_.key(i); }
  std::uint64_t bytes(std::uint64_t i) const override { return table_.bytes(i); }
  std::string origin(std::uint64_t i) const override {
    return shown_path(path_) + ": " + shown_path(table_.key_without_prefix(i));
  }

  void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const override {
    if (in_pieces(i)) {
      read_pieces(i, offset, out);
      return;
    }
    read_exactly(i, places_[i] + offset, out);
    // Ranges were checked when the stream was listed; a whole record costs little to check again.
    if (out.size() == table_.bytes(i) && crc32c(out) != crcs_[i]) {
      throw Error(ErrorCode::kCorrupt, origin(i) + ": checksum mismatch; the stream changed");
    }
  }

 private:
  // The payload of one frame of a record that has several.
  struct Piece {
    std::uint64_t begin = 0;  // in the record
    std::uint64_t place = 0;  // in the file
  };
  // Marks a place that is an index in pieces_.
  static constexpr std::uint64_t kInPieces = std::uint64_t{1} << 63U;

  bool in_pieces(std::uint64_t i) const noexcept { return (places_[i] & kInPieces) != 0; }

  void list(FrameReader& reader, const SourceOptions& options) {
    Frame frame;
    ByteView payload;
    bool open = false;  // frames of one record were seen, its last one was not
    std::uint64_t begin = 0;
    std::uint64_t first_piece = 0;
    while (next_frame_of(reader, frame, payload, path_)) {
      const std::uint64_t place = reader.offset() - frame.payload_bytes;
      if (frame.type == FrameType::kFailed) {
        pieces_.resize(open ? first_piece : pieces_.size());
        open = false;
        report_problem(options, failed_frame(frame, payload).within(shown_path(path_)));
        continue;
      }
      if (!open && !frame.continues) {
        add(frame, place, options);
        continue;
      }
      if (!open) {
        open = true;
        first_piece = pieces_.size();
        begin = 0;
      }
      pieces_.push_back({begin, place});
      begin += frame.payload_bytes;
      if (!frame.continues) {
        open = false;
        add(frame, first_piece | kInPieces, options);
      }
    }
  }

  void add(const Frame& frame, std::uint64_t place, const SourceOptions& options) {
    if (!is_path_key(table_.prefix(), frame.key)) {
      report_bad_key(options, frame.key, path_ + ": " + std::string(frame.key));
      return;
    }
    places_.push_back(place);
    crcs_.push_back(frame.payload_crc32c);
    table_.add({}, frame.key, frame.record_bytes);
  }

  void read_exactly(std::uint64_t i, std::uint64_t place, MutableBytes out) const {
    if (read_at(fd_.get(), place, out, path_) != out.size()) {
      throw Error(ErrorCode::kIo, origin(i) + ": the stream's file became shorter");
    }
  }

  void read_pieces(std::uint64_t i, std::uint64_t offset, MutableBytes out) const {
    std::size_t piece = places_[i] & ~kInPieces;
    const std::uint64_t record_bytes = table_.bytes(i);
    const auto end_of = [&](std::size_t p) {
      return p + 1 < pieces_.size() && pieces_[p + 1].begin != 0 ? pieces_[p + 1].begin
                                                                 : record_bytes;
    };
    while (!out.empty()) {
      while (end_of(piece) <= offset) {
        ++piece;
      }
      const auto part = out.first(
          static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), end_of(piece) - offset)));
      read_exactly(i, pieces_[piece].place + (offset - pieces_[piece].begin), part);
      out = out.subspan(part.size());
      offset += part.size();
    }
  }

  std::string path_;
  FileDescriptor fd_;
  RecordTable table_;
  std::pmr::vector<std::uint64_t> places_;
  std::pmr::vector<std::uint32_t> crcs_;  // of records in one frame
  std::pmr::vector<Piece> pieces_;
};

class FramesStream final : public RecordStream {
 public:
  FramesStream(int fd, std::string name, const SourceOptions& options)
      : name_(std::move(name)),
        options_(options),
        reader_([this](MutableBytes out) { return read_some(out); }),
        fd_(fd) {
    check_prefix(options_.prefix);
  }

  bool next(Record& record) override {
    skip_record();
    while (next_frame()) {
      if (frame_.type == FrameType::kFailed) {
        report_problem(options_, failed_frame(frame_, payload_).within(shown_path(name_)));
        continue;
      }
      const std::string origin = name_ + ": " + std::string(frame_.key);
      if (!is_path_key(options_.prefix, frame_.key)) {
        report_bad_key(options_, frame_.key, origin);
        open_ = frame_.continues;
        skip_record();
        continue;
      }
      record.key = options_.prefix;
      record.key += frame_.key;
      record.origin = shown_path(origin);
      left_ = payload_;
      open_ = frame_.continues;
      return true;
    }
    return false;
  }

  std::size_t read(MutableBytes out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      if (left_.empty() && !next_piece()) {
        break;
      }
      const std::size_t part = std::min(out.size() - done, left_.size());
      std::copy_n(left_.begin(), part, out.begin() + static_cast<std::ptrdiff_t>(done));
      left_ = left_.subspan(part);
      done += part;
    }
    return done;
  }

 private:
  std::size_t read_some(MutableBytes out) {
    check_stop(options_);
    while (true) {
      const ssize_t got = ::read(fd_, out.data(), out.size());
      if (got >= 0) {
        given_ += static_cast<std::uint64_t>(got);
        return static_cast<std::size_t>(got);
      }
      if (errno != EINTR) {
        throw system_error(name_, "cannot read", errno);
      }
      check_stop(options_);
    }
  }

  bool next_frame() {
    if (ended_) {
      return false;
    }
    const bool more = next_frame_of(reader_, frame_, payload_, name_);
    std::byte beyond{};
    if (!more && (given_ != reader_.offset() || read_some({&beyond, 1}) != 0)) {
      throw trailing_bytes().within(shown_path(name_));
    }
    ended_ = !more;
    return more;
  }

  // The next frame of the current record. False where it has no more.
  bool next_piece() {
    left_ = {};
    if (!open_) {
      return false;
    }
    open_ = false;
    next_frame();  // never the end: the reader refuses an end frame within a record
    if (frame_.type == FrameType::kFailed) {
      throw failed_frame(frame_, payload_).within(shown_path(name_));
    }
    left_ = payload_;
    open_ = frame_.continues;
    return true;
  }

  void skip_record() {
    left_ = {};
    while (open_) {
      open_ = false;
      next_frame();
      if (frame_.type == FrameType::kFailed) {
        report_problem(options_, failed_frame(frame_, payload_).within(shown_path(name_)));
        return;
      }
      open_ = frame_.continues;
    }
  }

  std::string name_;
  SourceOptions options_;
  FrameReader reader_;
  int fd_;
  std::uint64_t given_ = 0;
  Frame frame_;
  ByteView payload_;
  ByteView left_;      // of payload_, not yet read
  bool open_ = false;  // the current record goes on in the next frame
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<RecordList> list_frames(const std::string& path, const SourceOptions& options) {
  return std::make_unique<FramesList>(path, options);
}

std::unique_ptr<RecordStream> stream_frames(int fd, const std::string& name,
                                            const SourceOptions& options) {
  return std::make_unique<FramesStream>(fd, name, options);
}

}  // namespace sml
