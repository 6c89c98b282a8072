// Lists of keys and paths: read as they come, written one per line or NUL-separated.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace sml {

// A list from a file or standard input, separated by newline or NUL; the last separator may be
// missing. For one thread. Throws Error kNotFound, kIo.
class ListInput {
 public:
  // No key and no path is longer.
  static constexpr std::size_t kMaxLineBytes = 64U << 10U;

  // path "-": standard input. A line that grows beyond most_bytes is an error (kInvalidArgument)
  // before the rest of it is read.
  ListInput(const std::string& path, bool nul, std::size_t most_bytes = kMaxLineBytes);
  ~ListInput();
  ListInput(const ListInput&) = delete;
  ListInput& operator=(const ListInput&) = delete;

  // The next line, which stays valid until the next call; false at the end. Waits where need be.
  bool next(std::string_view& line);
  // The same without waiting: false where no whole line is there yet, or none is left (then ended()
  // is true).
  bool next_ready(std::string_view& line);
  bool ended() const noexcept { return ended_ && begin_ == end_; }

  // "keys.txt" or "standard input".
  const std::string& name() const noexcept { return name_; }
  // Of the line given last, from 1.
  std::uint64_t line_number() const noexcept { return lines_; }

 private:
  bool take(std::string_view& line);
  void fill();

  int fd_;
  std::string name_;
  char separator_;
  std::size_t most_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t scanned_ = 0;  // no separator in [begin_, scanned_)
  std::size_t end_ = 0;
  bool ended_ = false;
  std::uint64_t lines_ = 0;
};

// Keys, each followed by a separator. Without NUL a key that holds a newline is an error that says
// so (kInvalidArgument).
class ListOutput {
 public:
  ListOutput(Output& out, bool nul) : out_(out), separator_(nul ? '\0' : '\n') {}

  void write(std::string_view key) {
    check(key);
    out_.write(key);
    out_.put(separator_);
  }
  void write_number(std::uint64_t number) {
    put_number(out_, number);
    out_.put(separator_);
  }
  // To be asked before a line that begins with something else than the key.
  void check(std::string_view key) const {
    if (separator_ == '\n' && key.find('\n') != std::string_view::npos) refuse(key);
  }

 private:
  [[noreturn]] void refuse(std::string_view key) const;

  Output& out_;
  char separator_;
};

}  // namespace sml
