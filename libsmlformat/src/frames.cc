#include "smlformat/frames.h"

#include <algorithm>
#include <utility>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {
namespace {

// Not text in any encoding (0x89), and damaged by any conversion of line ends; the last byte is the
// version.
constexpr std::string_view kMagic = "\x89SMLF\r\n\x01";
static_assert(kMagic.size() == kFramesMagicBytes);

constexpr std::uint8_t kFlagContinues = 1;
constexpr std::size_t kReadBytes = std::size_t{256} << 10;

// Offsets in the header; every field is little-endian.
constexpr std::size_t kAtHeaderCrc = 0;
constexpr std::size_t kAtType = 4;
constexpr std::size_t kAtFlags = 5;
constexpr std::size_t kAtKeyBytes = 6;
constexpr std::size_t kAtPayloadBytes = 8;
constexpr std::size_t kAtPayloadCrc = 12;
constexpr std::size_t kAtNumber = 16;
constexpr std::size_t kAtRecordBytes = 24;

std::string counted(std::uint64_t count, const char* what) {
  return std::to_string(count) + " " + what;
}

}  // namespace

void put_frames_magic(Bytes& out) {
  const ByteView magic = as_bytes(kMagic);
  out.insert(out.end(), magic.begin(), magic.end());
}

void put_frame_header(Bytes& out, const Frame& frame) {
  if (frame.key.size() > kMaxKeyBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "a frame's key of " + counted(frame.key.size(), "bytes"));
  }
  if (frame.payload_bytes > kMaxFramePayloadBytes) {
    throw Error(ErrorCode::kInvalidArgument, "a frame of " + counted(frame.payload_bytes, "bytes"));
  }
  const std::size_t start = out.size();
  out.resize(start + kFrameHeaderBytes + frame.key.size());
  std::byte* const header = out.data() + start;
  store(header + kAtType, static_cast<std::uint8_t>(frame.type));
  store(header + kAtFlags, frame.continues ? kFlagContinues : std::uint8_t{0});
  store(header + kAtKeyBytes, static_cast<std::uint16_t>(frame.key.size()));
  store(header + kAtPayloadBytes, frame.payload_bytes);
  store(header + kAtPayloadCrc, frame.payload_crc32c);
  store(header + kAtNumber, frame.number);
  store(header + kAtRecordBytes, frame.record_bytes);
  if (!frame.key.empty()) {
    std::memcpy(header + kFrameHeaderBytes, frame.key.data(), frame.key.size());
  }
  store(header + kAtHeaderCrc, crc32c(ByteView(out).subspan(start + kAtType)));
}

FrameReader::FrameReader(ReadFunction read) : read_(std::move(read)) {}

bool FrameReader::fill(std::size_t bytes) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - begin_ < bytes) {
    // What is moved is less than one frame, and the frame is then read in place.
    const ByteView kept = ByteView(buffer_).subspan(begin_, end_ - begin_);
    if (buffer_.size() < bytes) {
      // Growing starts from read-ahead only, which is small; never two large buffers at once.
      const Bytes saved(kept.begin(), kept.end());
      buffer_ = Bytes();
      buffer_.resize(std::max(bytes, kReadBytes));
      std::copy(saved.begin(), saved.end(), buffer_.begin());
    } else {
      std::copy(kept.begin(), kept.end(), buffer_.begin());
    }
    end_ -= begin_;
    begin_ = 0;
  }
  while (end_ - begin_ < bytes) {
    // A buffer grown for one large payload is not filled with read-ahead: small frames stay in the
    // CPU's cache.
    const std::size_t room = buffer_.size() - end_;
    const std::size_t wanted = std::min(room, std::max(bytes - (end_ - begin_), kReadBytes));
    const std::size_t got = read_(MutableBytes(buffer_).subspan(end_, wanted));
    if (got == 0) return false;
    end_ += got;
  }
  return true;
}

void FrameReader::require(std::size_t bytes, const char* what) {
  if (fill(bytes)) return;
  throw Error(ErrorCode::kTruncated, "framed stream ends at byte " +
                                         std::to_string(offset_ + (end_ - begin_)) + ", " + what);
}

void FrameReader::fail_corrupt(const std::string& message) const {
  throw Error(ErrorCode::kCorrupt,
              "framed stream: frame at byte " + std::to_string(offset_) + ": " + message);
}

bool FrameReader::next(Frame& frame, ByteView& payload) {
  if (ended_) return false;
  if (failed_) throw Error(ErrorCode::kCorrupt, "framed stream: read after an error");
  failed_ = true;
  const bool given = read_frame(frame, payload);
  failed_ = false;
  return given;
}

bool FrameReader::read_frame(Frame& frame, ByteView& payload) {
  if (!started_) {
    require(kFramesMagicBytes, "before its magic");
    const std::string_view magic = as_text(ByteView(buffer_).subspan(begin_, kFramesMagicBytes));
    if (magic.substr(0, kFramesMagicBytes - 1) != kMagic.substr(0, kFramesMagicBytes - 1)) {
      throw Error(ErrorCode::kCorrupt, "not a framed record stream (no magic)");
    }
    if (magic != kMagic) {
      const auto version = static_cast<unsigned char>(magic.back());
      throw Error(ErrorCode::kUnsupported,
                  "framed stream of version " + std::to_string(version) + "; this build knows 1");
    }
    begin_ += kFramesMagicBytes;
    offset_ += kFramesMagicBytes;
    started_ = true;
  }

  require(kFrameHeaderBytes, "without an end frame");
  const std::size_t key_bytes = load<std::uint16_t>(buffer_.data() + begin_ + kAtKeyBytes);
  // Before the checksum is known to hold, so that damage cannot make the reader wait for a key that
  // never comes.
  if (key_bytes > kMaxKeyBytes) fail_corrupt("a key of " + counted(key_bytes, "bytes"));
  const std::size_t head_bytes = kFrameHeaderBytes + key_bytes;
  require(head_bytes, "inside a frame's key");
  {
    const ByteView head = ByteView(buffer_).subspan(begin_, head_bytes);
    const auto stored = load<std::uint32_t>(head.data() + kAtHeaderCrc);
    if (crc32c(head.subspan(kAtType)) != stored) fail_corrupt("header checksum mismatch");
    const auto type = load<std::uint8_t>(head.data() + kAtType);
    const auto flags = load<std::uint8_t>(head.data() + kAtFlags);
    if (type < 1 || type > 3) {
      throw Error(ErrorCode::kUnsupported, "framed stream: frame at byte " +
                                               std::to_string(offset_) + ": unknown type " +
                                               std::to_string(type));
    }
    if ((flags & ~kFlagContinues) != 0) {
      throw Error(ErrorCode::kUnsupported, "framed stream: frame at byte " +
                                               std::to_string(offset_) + ": unknown flags " +
                                               std::to_string(flags));
    }
    frame.type = static_cast<FrameType>(type);
    frame.continues = (flags & kFlagContinues) != 0;
    frame.payload_bytes = load<std::uint32_t>(head.data() + kAtPayloadBytes);
    frame.payload_crc32c = load<std::uint32_t>(head.data() + kAtPayloadCrc);
    frame.number = load<std::uint64_t>(head.data() + kAtNumber);
    frame.record_bytes = load<std::uint64_t>(head.data() + kAtRecordBytes);
  }
  if (frame.payload_bytes > kMaxFramePayloadBytes) {
    fail_corrupt("a payload of " + counted(frame.payload_bytes, "bytes"));
  }

  require(head_bytes + frame.payload_bytes, "inside a frame's payload");
  const ByteView whole = ByteView(buffer_).subspan(begin_, head_bytes + frame.payload_bytes);
  frame.key = as_text(whole.subspan(kFrameHeaderBytes, key_bytes));
  payload = whole.subspan(head_bytes);
  if (crc32c(payload) != frame.payload_crc32c) fail_corrupt("payload checksum mismatch");
  follow(frame);
  begin_ += whole.size();
  offset_ += whole.size();
  return !ended_;
}

// Checks the frame against those before it, and keeps count.
void FrameReader::follow(const Frame& frame) {
  if (frame.type != FrameType::kRecord && frame.continues) {
    fail_corrupt("only a record's frame can be continued");
  }
  if (frame.type == FrameType::kEnd) {
    if (open_) fail_corrupt("the end frame follows an unfinished record");
    if (!frame.key.empty() || frame.payload_bytes != 0) {
      fail_corrupt("an end frame with a key or a payload");
    }
    if (frame.number != records_ || frame.record_bytes != bytes_) {
      fail_corrupt("the end frame counts " + counted(frame.number, "records") + ", " +
                   counted(frame.record_bytes, "bytes") + "; the stream had " +
                   counted(records_, "records") + ", " + counted(bytes_, "bytes"));
    }
    ended_ = true;
    return;
  }
  if (open_ && (frame.key != open_key_ || frame.number != open_number_)) {
    fail_corrupt("it does not continue the record before it");
  }
  if (frame.type == FrameType::kFailed) {
    if (!frame.key.empty() && !is_valid_key(frame.key)) fail_corrupt("a key with a NUL byte");
    open_ = false;
    return;
  }
  if (!is_valid_key(frame.key)) fail_corrupt("an empty key, or one with a NUL byte");
  const std::uint64_t total = open_ ? open_bytes_ : frame.record_bytes;
  const std::uint64_t seen = open_ ? open_seen_ : 0;
  if (frame.record_bytes != total) fail_corrupt("the record's size changes within it");
  if ((open_ || frame.continues) && frame.payload_bytes == 0) {
    fail_corrupt("an empty piece of a continued record");
  }
  const std::uint64_t left = total - seen;
  if (frame.continues ? frame.payload_bytes >= left : frame.payload_bytes != left) {
    fail_corrupt("its payload does not fit the record's size, " + counted(total, "bytes"));
  }
  if (frame.continues) {
    if (!open_) {
      open_key_ = frame.key;
      open_number_ = frame.number;
      open_bytes_ = frame.record_bytes;
      open_seen_ = 0;
    }
    open_ = true;
    open_seen_ += frame.payload_bytes;
    return;
  }
  open_ = false;
  ++records_;
  bytes_ += total;
}

}  // namespace sml
