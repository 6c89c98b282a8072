// Standard output: large writes, every one checked, the last one too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "smlformat/bytes.h"

namespace sml {

// The reader of a pipe has left. Not an error in itself: whoever writes decides.
struct ClosedPipe {};

// A buffered writer over a file descriptor that it does not own. For one thread. All functions
// throw ClosedPipe, and Error kIo that names the output. What was not flushed when it is destroyed
// is lost.
class Output {
 public:
  static constexpr std::size_t kBufferBytes = 256U << 10;
  // The largest piece that reserve() gives.
  static constexpr std::size_t kMaxReserve = 16U << 10;

  Output(int fd, std::string name);
  // Standard output; a pipe is given its largest buffer.
  static Output standard();

  void write(std::string_view bytes);
  void write(ByteView bytes) { write(as_text(bytes)); }
  void put(char byte) { *reserve(1) = byte, commit(1); }
  // Bytes in mapped pages that never change: large ones go into a pipe without being copied.
  void write_lasting(ByteView bytes);

  // Room for `bytes` (at most kMaxReserve) to be filled in place; commit() says how much of it was
  // used.
  char* reserve(std::size_t bytes) {
    if (kBufferBytes - used_ < bytes) flush();
    return buffer_.get() + used_;
  }
  void commit(std::size_t bytes) noexcept { used_ += bytes; }

  void flush();
  // Flushes and closes: some file systems tell of a lost write only then.
  void finish();

  std::uint64_t bytes() const noexcept { return written_ + used_; }

 private:
  void write_through(std::string_view bytes);
  [[noreturn]] void fail(int error) const;
  void wait_writable() const;

  int fd_;
  std::string name_;
  bool pipe_ = false;
  std::unique_ptr<char[]> buffer_;
  std::size_t used_ = 0;
  std::uint64_t written_ = 0;
};

// Appends a decimal number; some 5 ns.
void put_number(Output& out, std::uint64_t value);

}  // namespace sml
