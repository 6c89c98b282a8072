#include "lists.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "smlformat/error.h"
#include "terminal.h"

namespace sml {
namespace {

constexpr std::size_t kReadBytes = 256U << 10;

}  // namespace

ListInput::ListInput(const std::string& path, bool nul, std::size_t most_bytes)
    : fd_(STDIN_FILENO),
      name_(path == "-" ? "standard input" : path),
      separator_(nul ? '\0' : '\n'),
      most_bytes_(most_bytes) {
  if (path == "-") return;
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) {
    throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                name_ + ": " + std::strerror(errno));
  }
}

ListInput::~ListInput() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

bool ListInput::next(std::string_view& line) {
  while (!take(line)) {
    if (ended()) return false;
    fill();
  }
  return true;
}

bool ListInput::next_ready(std::string_view& line) {
  for (;;) {
    if (take(line)) return true;
    if (ended_) return false;
    pollfd waiting{fd_, POLLIN, 0};
    if (::poll(&waiting, 1, 0) <= 0) return false;
    fill();
  }
}

bool ListInput::take(std::string_view& line) {
  const char* const from = buffer_.data() + scanned_;
  const void* const found =
      end_ > scanned_ ? std::memchr(from, separator_, end_ - scanned_) : nullptr;
  if (found == nullptr && (!ended_ || begin_ == end_)) {
    scanned_ = end_;
    return false;
  }
  const std::size_t at =
      found == nullptr ? end_
                       : static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
  line = {buffer_.data() + begin_, at - begin_};
  begin_ = scanned_ = found == nullptr ? end_ : at + 1;
  ++lines_;
  return true;
}

void ListInput::fill() {
  if (ended_) return;
  if (end_ - begin_ > most_bytes_) {
    throw Error(ErrorCode::kInvalidArgument,
                name_ + ": line " + std::to_string(lines_ + 1) + " is longer than " +
                    std::to_string(most_bytes_) + " bytes: no key or path is",
                separator_ == '\n' ? "-0 reads lists that are separated by NUL" : "");
  }
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    scanned_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < kReadBytes / 2)
    buffer_.resize(buffer_.size() + std::max(kReadBytes, buffer_.size()));
  ssize_t count = 0;
  do {
    count = ::read(fd_, buffer_.data() + end_, buffer_.size() - end_);
    if (count < 0 && errno == EAGAIN) {
      pollfd waiting{fd_, POLLIN, 0};
      ::poll(&waiting, 1, -1);
    }
  } while (count < 0 && (errno == EINTR || errno == EAGAIN));
  if (count < 0) throw Error(ErrorCode::kIo, name_ + ": " + std::strerror(errno));
  ended_ = count == 0;
  end_ += static_cast<std::size_t>(count);
}

void ListOutput::refuse(std::string_view key) const {
  throw Error(ErrorCode::kInvalidArgument,
              "record '" + std::string(key) + "': the key holds a newline",
              "-0 separates keys by NUL");
}

}  // namespace sml
