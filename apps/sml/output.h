// Standard output: large writes, every one checked, the last one too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/uio.h>
#include <unistd.h>

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
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  // Standard output; a pipe is given its largest buffer.
  static Output standard() { return {STDOUT_FILENO, "standard output"}; }

  void write(std::string_view bytes);
  void write(ByteView bytes) { write(as_text(bytes)); }
  void put(char byte) { *reserve(1) = byte, commit(1); }

  // Bytes that stay as they are until release(): large ones are not copied. `lasting`: they lie in
  // pages of a file that never change, so that they go into a pipe without being copied at all.
  void write_held(ByteView bytes, bool lasting);
  // What was given to write_held() is not used any more.
  void release() {
    if (!held_.empty()) flush();
  }

  // Room for `bytes` (at most kMaxReserve) to be filled in place; commit() says how much of it was
  // used.
  char* reserve(std::size_t bytes) {
    if (kBufferBytes - used_ < bytes) make_room();
    return buffer_ + used_;
  }
  void commit(std::size_t bytes) noexcept { used_ += bytes; }

  void flush();
  // Flushes and closes: some file systems tell of a lost write only then.
  void finish();

  std::uint64_t bytes() const noexcept { return written_ + held_bytes_ + (used_ - listed_); }

 private:
  void make_room();
  void renew_buffer();
  void list_copied();
  void hold(std::string_view bytes);
  void push(std::span<iovec> pieces, bool to_splice);
  [[noreturn]] void fail(int error) const;
  void wait_writable() const;

  int fd_;
  std::string name_;
  bool pipe_ = false;

  char* buffer_ = nullptr;   // pages of its own: those that went into a pipe are not written again
  std::size_t used_ = 0;     // of the buffer
  std::size_t listed_ = 0;   // of that, in `held_` or written
  bool in_pipe_ = false;     // some of it lies in the pipe
  std::vector<iovec> held_;  // to be written, in order; then what is used and not listed
  std::vector<iovec> writing_;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t lasting_bytes_ = 0;  // of those
  bool all_lasting_ = true;          // but for what lies in the buffer
  std::uint64_t written_ = 0;
};

// Appends a decimal number; some 5 ns.
void put_number(Output& out, std::uint64_t value);

}  // namespace sml
