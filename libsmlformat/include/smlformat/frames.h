// The framed record stream: records through a pipe, with their keys and checksums, closed by a
// frame that counts. Byte by byte in format-spec/frames.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "smlformat/bytes.h"

namespace sml {

inline constexpr std::uint64_t kNoNumber = ~std::uint64_t{0};
inline constexpr std::size_t kFrameHeaderBytes = 32;
inline constexpr std::size_t kFramesMagicBytes = 8;
// A record larger than this travels in several frames.
inline constexpr std::uint32_t kMaxFramePayloadBytes = 64U << 20;

enum class FrameType : std::uint8_t { kRecord = 1, kFailed = 2, kEnd = 3 };

// One frame. A record of record_bytes bytes is one frame, or several in a row with the same key and
// number, all but the last with `continues` set and each with at least one byte. kFailed: the
// record could not be given; the payload is a message (UTF-8); it ends a record begun by continued
// frames as well. kEnd: `number` counts the records given whole, `record_bytes` their bytes; no
// key, no payload.
struct Frame {
  FrameType type = FrameType::kRecord;
  bool continues = false;
  std::string_view key;
  std::uint64_t number = kNoNumber;  // record number, where the sender knows it
  std::uint64_t record_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc32c = 0;
};

// Appends the stream's magic, or the header and the key of `frame`, to `out`; the payload follows
// as it is. The key has at most kMaxKeyBytes bytes, the payload at most kMaxFramePayloadBytes;
// otherwise kInvalidArgument is thrown.
void put_frames_magic(Bytes& out);
void put_frame_header(Bytes& out, const Frame& frame);

// Reads frames from a byte stream. Not for several threads.
class FrameReader {
 public:
  // Gives up to out.size() bytes, at least one unless the stream has ended (0). Throws kIo.
  using ReadFunction = std::function<std::size_t(MutableBytes out)>;

  explicit FrameReader(ReadFunction read);

  // The next frame that is not the end frame; false after the end frame. The frame's key and the
  // payload stay valid until the next call. Throws kTruncated where the stream ends without an end
  // frame, kCorrupt where a checksum, a length or a count is wrong, kUnsupported for an unknown
  // type, flag or version; after a throw every further call throws. Asks for more bytes only while
  // the frame is incomplete, but takes what one read gives, bytes after the end frame included.
  // Memory: at most one payload and 512 KiB.
  bool next(Frame& frame, ByteView& payload);

  // Bytes consumed so far: after next(), the offset at which the following frame starts.
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  bool fill(std::size_t bytes);  // the buffer holds at least `bytes` from begin_; false where the
                                 // stream ends before
  void require(std::size_t bytes, const char* what);
  bool read_frame(Frame& frame, ByteView& payload);
  void follow(const Frame& frame);
  [[noreturn]] void fail_corrupt(const std::string& message) const;

  ReadFunction read_;
  Bytes buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;
  bool started_ = false;
  bool ended_ = false;
  bool failed_ = false;
  // A record under way, and the counts to compare with the end frame.
  bool open_ = false;
  std::string open_key_;
  std::uint64_t open_number_ = 0;
  std::uint64_t open_bytes_ = 0;
  std::uint64_t open_seen_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace sml
