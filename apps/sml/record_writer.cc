#include "record_writer.h"

#include <algorithm>

#include "smlformat/checksum.h"
#include "smlformat/frames.h"

namespace sml {
namespace {

class RawWriter final : public RecordWriter {
 public:
  explicit RawWriter(Output& out) : out_(out) {}

  std::optional<Error> write(const RecordPiece& piece) override {
    out_.write_held(piece.bytes, piece.immutable);
    return std::nullopt;
  }
  void fail(const RecordPiece& /*piece*/, const Error& /*error*/) override {}
  void release() override { out_.release(); }
  void flush() override { out_.flush(); }
  void finish() override { out_.finish(); }

 private:
  Output& out_;
};

class FramesWriter final : public RecordWriter {
 public:
  explicit FramesWriter(Output& out) : out_(out) {
    put_frames_magic(header_);
    out_.write(header_);
  }

  std::optional<Error> write(const RecordPiece& piece) override {
    Frame frame;
    frame.key = piece.key;
    frame.number = piece.number;
    frame.record_bytes = piece.record_bytes;
    ByteView rest = piece.bytes;
    do {
      const ByteView payload =
          rest.first(std::min<std::size_t>(rest.size(), kMaxFramePayloadBytes));
      rest = rest.subspan(payload.size());
      frame.continues = !rest.empty() || !piece.last;
      frame.payload_bytes = static_cast<std::uint32_t>(payload.size());
      frame.payload_crc32c = payload.size() == piece.bytes.size() ? piece.crc32c : crc32c(payload);
      put(frame);
      out_.write_held(payload, piece.immutable);
    } while (!rest.empty());
    if (piece.last) {
      ++records_;
      bytes_ += piece.record_bytes;
    }
    return std::nullopt;
  }

  void fail(const RecordPiece& piece, const Error& error) override {
    const std::string_view message = error.what();
    Frame frame;
    frame.type = FrameType::kFailed;
    frame.key = piece.key;
    frame.number = piece.number;
    frame.record_bytes = piece.record_bytes;
    frame.payload_bytes = static_cast<std::uint32_t>(message.size());
    frame.payload_crc32c = crc32c(as_bytes(message));
    put(frame);
    out_.write(message);
  }

  void release() override { out_.release(); }
  void flush() override { out_.flush(); }

  void finish() override {
    Frame frame;
    frame.type = FrameType::kEnd;
    frame.number = records_;
    frame.record_bytes = bytes_;
    put(frame);
    out_.finish();
  }

 private:
  void put(const Frame& frame) {
    header_.clear();
    put_frame_header(header_, frame);
    out_.write(header_);
  }

  Output& out_;
  Bytes header_;
  std::uint64_t records_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<RecordWriter> make_raw_writer(Output& out) {
  return std::make_unique<RawWriter>(out);
}
std::unique_ptr<RecordWriter> make_frames_writer(Output& out) {
  return std::make_unique<FramesWriter>(out);
}

}  // namespace sml
