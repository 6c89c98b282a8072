#include "output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "smlformat/error.h"
#include "terminal.h"

namespace sml {
namespace {

// From here on a write of its own costs less than a copy into the buffer.
constexpr std::size_t kDirectBytes = 32U << 10;
// Below, the pages' bookkeeping costs more than the copy.
constexpr std::size_t kSpliceBytes = 32U << 10;
constexpr int kPipeBytes = 1 << 20;

constexpr auto kDigitPairs = [] {
  std::array<char, 200> pairs{};
  for (std::size_t i = 0; i < 100; ++i) {
    pairs[2 * i] = static_cast<char>('0' + i / 10);
    pairs[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return pairs;
}();

}  // namespace

Output::Output(int fd, std::string name)
    : fd_(fd),
      name_(std::move(name)),
      pipe_(is_pipe(fd)),
      buffer_(std::make_unique<char[]>(kBufferBytes)) {
  if (pipe_) ::fcntl(fd_, F_SETPIPE_SZ, kPipeBytes);  // a matter of speed only: may be refused
}

Output Output::standard() { return {STDOUT_FILENO, "standard output"}; }

void Output::write(std::string_view bytes) {
  if (bytes.size() >= kDirectBytes) return write_through(bytes);
  if (kBufferBytes - used_ < bytes.size()) flush();
  std::copy(bytes.begin(), bytes.end(), buffer_.get() + used_);
  used_ += bytes.size();
}

void Output::write_lasting(ByteView bytes) {
  if (!pipe_ || bytes.size() < kSpliceBytes) return write(bytes);
  flush();
  while (!bytes.empty()) {
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const ssize_t moved = ::vmsplice(fd_, &piece, 1, 0);
    if (moved < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        wait_writable();
        continue;
      }
      if (errno == EPIPE) throw ClosedPipe{};
      return write_through(as_text(bytes));
    }
    written_ += static_cast<std::uint64_t>(moved);
    bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
}

void Output::flush() {
  if (used_ > 0) write_through({});
}

void Output::finish() {
  flush();
  if (::close(fd_) != 0 && errno != EINTR) fail(errno);
}

void Output::write_through(std::string_view bytes) {
  std::string_view held(buffer_.get(), used_);
  used_ = 0;
  while (!held.empty() || !bytes.empty()) {
    const std::array<iovec, 2> pieces{{{const_cast<char*>(held.data()), held.size()},
                                       {const_cast<char*>(bytes.data()), bytes.size()}}};
    const ssize_t result = ::writev(fd_, pieces.data(), 2);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) fail(errno);
      wait_writable();
      continue;
    }
    const auto count = static_cast<std::size_t>(result);
    written_ += count;
    const std::size_t from_held = std::min(count, held.size());
    held.remove_prefix(from_held);
    bytes.remove_prefix(count - from_held);
  }
}

void Output::fail(int error) const {
  if (error == EPIPE) throw ClosedPipe{};
  throw Error(ErrorCode::kIo, name_ + ": " + std::strerror(error));
}

void Output::wait_writable() const {
  pollfd waiting{fd_, POLLOUT, 0};
  ::poll(&waiting, 1, -1);
}

void put_number(Output& out, std::uint64_t value) {
  std::array<char, 20> digits;
  std::size_t at = digits.size();
  while (value >= 100) {
    const std::uint64_t pair = value % 100;
    value /= 100;
    at -= 2;
    std::memcpy(&digits[at], &kDigitPairs[2 * pair], 2);
  }
  if (value >= 10) {
    at -= 2;
    std::memcpy(&digits[at], &kDigitPairs[2 * value], 2);
  } else {
    digits[--at] = static_cast<char>('0' + value);
  }
  std::memcpy(out.reserve(digits.size()), &digits[at], digits.size() - at);
  out.commit(digits.size() - at);
}

}  // namespace sml
