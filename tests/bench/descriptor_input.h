// The bytes of a pipe or a socket: large reads into one buffer, parsed where they are.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include <unistd.h>

#include "side.h"

class DescriptorInput {
 public:
  explicit DescriptorInput(int descriptor) : descriptor_(descriptor) { buffer_.resize(kBytes); }

  // The next bytes; valid until the next call.
  std::string_view take(std::size_t bytes) {
    while (end_ - begin_ < bytes) fill(bytes);
    const std::string_view taken(text() + begin_, bytes);
    begin_ += bytes;
    return taken;
  }

  // The next line, without its "\r\n".
  std::string_view take_line() {
    for (std::size_t searched = 0;;) {
      const void* found = std::memchr(text() + begin_ + searched, '\n', end_ - begin_ - searched);
      if (found != nullptr) {
        const auto bytes =
            static_cast<std::size_t>(static_cast<const char*>(found) - text()) + 1 - begin_;
        if (bytes < 2) fail("a line ends too early");
        return take(bytes).substr(0, bytes - 2);
      }
      searched = end_ - begin_;
      fill(searched + 1);
    }
  }

 private:
  // The best of those tried, for pipes and sockets alike: what was read stays in the processor's
  // cache, and whoever writes is not kept waiting for long.
  static constexpr std::size_t kBytes = 512U << 10;
  static constexpr std::size_t kMostRead = 256U << 10;

  const char* text() const { return reinterpret_cast<const char*>(buffer_.data()); }

  // At least one byte more, with room for so many from begin_ on.
  void fill(std::size_t bytes) {
    if (bytes > kBytes) fail("a record is larger than the buffer");
    if (begin_ + bytes > kBytes || begin_ == end_) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const ssize_t got =
        ::read(descriptor_, buffer_.data() + end_, std::min(kMostRead, kBytes - end_));
    if (got < 0) fail(std::strerror(errno));
    if (got == 0) fail("the stream ends too early");
    end_ += static_cast<std::size_t>(got);
  }

  int descriptor_;
  sml::Buffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};
