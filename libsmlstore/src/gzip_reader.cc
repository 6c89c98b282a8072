#include "gzip_reader.h"

#include <algorithm>

#include <isa-l/igzip_lib.h>

#include "posix_file.h"
#include "smlformat/error.h"

namespace sml {
namespace {

constexpr std::size_t kBufferBytes = 256U << 10;

}  // namespace

struct GzipReader::State {
  inflate_state inflate{};

  void start() noexcept {
    // The input that is left stays where it is.
    ::isal_inflate_reset(&inflate);
    inflate.crc_flag = ISAL_GZIP;
  }
};

bool GzipReader::is_gzip(ByteView head) noexcept {
  return head.size() >= 2 && head[0] == std::byte{0x1f} && head[1] == std::byte{0x8b};
}

GzipReader::GzipReader(ReadFunction read, std::string name)
    : read_(std::move(read)),
      name_(std::move(name)),
      buffer_(kBufferBytes),
      state_(std::make_unique<State>()) {
  ::isal_inflate_init(&state_->inflate);
  state_->start();
}

GzipReader::~GzipReader() = default;

// More input, where all has been used; false at its end.
bool GzipReader::fill() {
  inflate_state& s = state_->inflate;
  if (s.avail_in > 0) return true;
  const std::size_t got = read_(buffer_);
  s.next_in = reinterpret_cast<std::uint8_t*>(buffer_.data());
  s.avail_in = static_cast<std::uint32_t>(got);
  return got > 0;
}

// After a member: whether another one follows. Zeros are padding.
bool GzipReader::next_member() {
  inflate_state& s = state_->inflate;
  while (fill()) {
    if (*s.next_in == 0x1f) {
      state_->start();
      return true;
    }
    if (*s.next_in != 0) {
      throw Error(ErrorCode::kCorrupt,
                  shown_path(name_) + ": bytes follow the end of the gzip stream");
    }
    ++s.next_in;
    --s.avail_in;
  }
  return false;
}

std::size_t GzipReader::read(MutableBytes out) {
  inflate_state& s = state_->inflate;
  const auto wanted =
      static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), std::size_t{1} << 30U));
  s.next_out = reinterpret_cast<std::uint8_t*>(out.data());
  s.avail_out = wanted;
  while (!ended_ && s.avail_out == wanted) {
    if (s.block_state == ISAL_BLOCK_FINISH) {
      ended_ = !next_member();
      continue;
    }
    const bool more = fill();
    const std::uint32_t before = s.avail_in;
    const int result = ::isal_inflate(&s);
    if (result < 0) {
      throw Error(ErrorCode::kCorrupt,
                  shown_path(name_) + (result == ISAL_INCORRECT_CHECKSUM
                                           ? ": the gzip stream is damaged (its checksum is wrong)"
                                           : ": the gzip stream is damaged"));
    }
    const bool stuck = s.avail_in == before && s.avail_out == wanted;
    if (!more && stuck && s.block_state != ISAL_BLOCK_FINISH) {
      throw Error(ErrorCode::kTruncated, shown_path(name_) + ": the gzip stream was cut short");
    }
  }
  return wanted - s.avail_out;
}

}  // namespace sml
