// Inflates a gzip stream and checks its trailers, which libarchive does not (3.6.2).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "smlformat/bytes.h"

namespace sml {

// For one thread.
class GzipReader {
 public:
  // Fills the front of `out`, returns how much; 0 at the end.
  using ReadFunction = std::function<std::size_t(MutableBytes out)>;

  static bool is_gzip(ByteView head) noexcept;

  // `name` is for messages.
  GzipReader(ReadFunction read, std::string name);
  ~GzipReader();

  // Up to out.size() bytes of what the stream holds, members of a concatenation one behind the
  // other; 0 at its end. Throws kCorrupt (a checksum or a length is wrong; something else follows),
  // kTruncated, and what the read function throws.
  std::size_t read(MutableBytes out);

 private:
  bool fill();
  bool next_member();

  struct State;
  ReadFunction read_;
  std::string name_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<State> state_;
  bool ended_ = false;
};

}  // namespace sml
