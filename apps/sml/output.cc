#include "output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "smlformat/error.h"
#include "terminal.h"

namespace sml {
namespace {

// From here on a piece of its own costs less than a copy into the buffer.
constexpr std::size_t kHeldBytes = 2U << 10;
// Pieces of one system call, and their bytes, at most: while the reader of a pipe takes some, it
// keeps the pipe from us, so that many small calls would wait for it many times.
constexpr std::size_t kMostHeld = 512;
constexpr std::uint64_t kMostHeldBytes = 1U << 20;
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

Output::Output(int fd, std::string name) : fd_(fd), name_(std::move(name)), pipe_(is_pipe(fd)) {
  if (pipe_) ::fcntl(fd_, F_SETPIPE_SZ, kPipeBytes);  // a matter of speed only: may be refused
  renew_buffer();
}

Output::~Output() { ::munmap(buffer_, kBufferBytes); }

void Output::renew_buffer() {
  void* const fresh =
      ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) throw std::bad_alloc();
  if (buffer_ != nullptr) ::munmap(buffer_, kBufferBytes);
  buffer_ = static_cast<char*>(fresh);
  used_ = listed_ = 0;
  in_pipe_ = false;
}

void Output::write(std::string_view bytes) {
  if (bytes.size() >= kBufferBytes / 2) {
    hold(bytes);
    all_lasting_ = false;
    return flush();
  }
  while (!bytes.empty()) {
    if (used_ == kBufferBytes) make_room();
    const std::size_t count = std::min(bytes.size(), kBufferBytes - used_);
    std::memcpy(buffer_ + used_, bytes.data(), count);
    used_ += count;
    bytes.remove_prefix(count);
  }
}

void Output::write_held(ByteView bytes, bool lasting) {
  if (bytes.size() < kHeldBytes) return write(bytes);
  hold(as_text(bytes));
  if (lasting) {
    lasting_bytes_ += bytes.size();
  } else {
    all_lasting_ = false;
  }
  if (held_.size() >= kMostHeld || held_bytes_ >= kMostHeldBytes) flush();
}

void Output::make_room() {
  flush();
  if (used_ > 0) renew_buffer();
}

// Lists what was copied into the buffer since the last time.
void Output::list_copied() {
  if (used_ == listed_) return;
  held_.push_back({buffer_ + listed_, used_ - listed_});
  held_bytes_ += used_ - listed_;
  listed_ = used_;
}

void Output::hold(std::string_view bytes) {
  list_copied();
  held_.push_back({const_cast<char*>(bytes.data()), bytes.size()});
  held_bytes_ += bytes.size();
}

void Output::flush() {
  list_copied();
  writing_.clear();
  writing_.swap(held_);
  // Pages of the buffer that go into the pipe cannot be used again: only where they are few.
  const bool to_splice = pipe_ && all_lasting_ && 2 * lasting_bytes_ > held_bytes_;
  held_bytes_ = lasting_bytes_ = 0;
  all_lasting_ = true;
  push(writing_, to_splice);
  if (!in_pipe_) used_ = listed_ = 0;
}

void Output::finish() {
  flush();
  if (::close(fd_) != 0 && errno != EINTR) fail(errno);
}

// Writes the pieces, or puts their pages into the pipe.
void Output::push(std::span<iovec> pieces, bool to_splice) {
  while (!pieces.empty()) {
    const auto most = static_cast<int>(std::min<std::size_t>(pieces.size(), IOV_MAX));
    const ssize_t result = to_splice
                               ? ::vmsplice(fd_, pieces.data(), static_cast<std::size_t>(most), 0)
                               : ::writev(fd_, pieces.data(), most);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        wait_writable();
      } else if (to_splice && errno != EPIPE) {
        to_splice = false;
      } else {
        fail(errno);
      }
      continue;
    }
    in_pipe_ |= to_splice;
    auto count = static_cast<std::size_t>(result);
    written_ += count;
    while (!pieces.empty() && count >= pieces.front().iov_len) {
      count -= pieces.front().iov_len;
      pieces = pieces.subspan(1);
    }
    if (count > 0) {
      pieces.front() = {static_cast<char*>(pieces.front().iov_base) + count,
                        pieces.front().iov_len - count};
    }
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
