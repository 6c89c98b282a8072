// FrameReader over any stream, as it is or with its checksums repaired, delivered at once and in
// pieces: both give the same frames and the same end, and the frames, written again, the same
// bytes.
#include "smlformat/frames.h"

#include <string>

#include "fuzz.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml::fuzz {
namespace {

// A payload that is not there is made no larger than this: a reader makes room for it, and clearing
// 64 MiB takes longer than a hundred other inputs.
constexpr std::uint32_t kMissingPayloadBytes = 64U << 10;

// By its documentation a reader takes one payload and 512 KiB. Beside it there is what was read,
// written again (up to three times as long while it grows), and messages.
constexpr std::uint64_t kMemoryPerByte = 1 + 4;
constexpr std::uint64_t kMemory = kMissingPayloadBytes + (512U << 10) + (64U << 10);

// Checksums of headers and payloads, as far as the lengths lead; with `counts`, the end frame's
// counts too.
void repair(Bytes& stream, bool counts) {
  std::uint64_t records = 0;
  std::uint64_t record_bytes = 0;
  std::size_t at = kFramesMagicBytes;
  while (at < stream.size() && stream.size() - at >= kFrameHeaderBytes) {
    std::byte* const header = stream.data() + at;
    const std::size_t key_bytes = load<std::uint16_t>(header + 6);
    auto payload_bytes = load<std::uint32_t>(header + 8);
    const std::size_t left = stream.size() - at - kFrameHeaderBytes;
    if (key_bytes > left) return;
    const bool is_there = payload_bytes <= left - key_bytes;
    if (is_there) {
      store(header + 12, crc32c(ByteView(header + kFrameHeaderBytes + key_bytes, payload_bytes)));
    } else if (payload_bytes <= kMaxFramePayloadBytes) {
      payload_bytes = std::max(payload_bytes % kMissingPayloadBytes,
                               static_cast<std::uint32_t>(left - key_bytes) + 1);
      store(header + 8, payload_bytes);
    }
    const auto type = load<std::uint8_t>(header + 4);
    const auto flags = load<std::uint8_t>(header + 5);
    if (counts && type == 1 && flags == 0) {
      ++records;
      record_bytes += load<std::uint64_t>(header + 24);
    }
    if (counts && type == 3) {
      store(header + 16, records);
      store(header + 24, record_bytes);
    }
    store(header, crc32c(ByteView(header + 4, kFrameHeaderBytes - 4 + key_bytes)));
    if (!is_there) return;
    at += kFrameHeaderBytes + key_bytes + payload_bytes;
  }
}

struct Outcome {
  std::string error;  // empty: the stream was read to its end frame
  std::uint64_t offset = 0;
  std::uint64_t records = 0;
  Bytes again;  // the frames, written once more

  bool operator==(const Outcome&) const = default;
};

// `pieces` 0: each read gives all that is asked for; else a seed of sizes.
Outcome read_all(ByteView stream, std::uint32_t pieces) {
  std::size_t given = 0;
  std::uint32_t state = pieces;
  FrameReader reader([&](MutableBytes out) {
    check(!out.empty(), "a read of nothing");
    std::size_t bytes = out.size();
    if (pieces != 0) {
      state = state * 1664525 + 1013904223;
      bytes = std::min<std::size_t>(bytes, 1 + (state >> 24) % (1 + (state >> 16) % 64));
    }
    bytes = std::min(bytes, stream.size() - given);
    std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(given), bytes, out.begin());
    given += bytes;
    return bytes;
  });
  Outcome outcome;
  put_frames_magic(outcome.again);
  std::uint64_t record_bytes = 0;
  Frame frame;
  ByteView payload;
  try {
    while (reader.next(frame, payload)) {
      check(frame.type != FrameType::kEnd, "the end frame is given as a frame");
      check(payload.size() == frame.payload_bytes, "a payload of another size than its frame says");
      check(crc32c(payload) == frame.payload_crc32c, "a payload that is not the one sent");
      check(frame.key.size() <= kMaxKeyBytes, "a key that is too long");
      put_frame_header(outcome.again, frame);
      outcome.again.insert(outcome.again.end(), payload.begin(), payload.end());
      check(reader.offset() == outcome.again.size(), "an offset that is not where the frame ends");
      if (frame.type == FrameType::kRecord && !frame.continues) {
        ++outcome.records;
        record_bytes += frame.record_bytes;
      }
    }
    Frame end;
    end.type = FrameType::kEnd;
    end.number = outcome.records;
    end.record_bytes = record_bytes;
    put_frame_header(outcome.again, end);
    check(reader.offset() == outcome.again.size(), "an offset that is not where the stream ends");
    check(std::equal(outcome.again.begin(), outcome.again.end(), stream.begin()),
          "frames that are not those of the stream");
    check(!reader.next(frame, payload), "a frame after the end frame");
  } catch (const Error& error) {
    outcome.error = error.what();
    check(!outcome.error.empty() && outcome.error.find('\n') == std::string::npos,
          "an error's message is not one line");
    bool again = false;
    try {
      reader.next(frame, payload);
    } catch (const Error&) {
      again = true;
    }
    check(again, "reading goes on after an error");
  }
  outcome.offset = reader.offset();
  return outcome;
}

}  // namespace
}  // namespace sml::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sml::fuzz;
  Input input(data, size);
  const auto flags = input.number<std::uint8_t>();
  const auto pieces = input.number<std::uint8_t>();
  sml::Bytes stream(input.rest().begin(), input.rest().end());
  if ((flags & 1) != 0) repair(stream, (flags & 2) != 0);
  const MemoryLimit limit(kMemory + kMemoryPerByte * stream.size());
  const Outcome whole = read_all(stream, 0);
  check(whole == read_all(stream, 1U + pieces), "a stream in pieces is read differently");
  return 0;
}
