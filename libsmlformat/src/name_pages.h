// Name pages: up to kNamePageKeys keys in name order, front-coded at both ends. Encoding:
// format-spec/index.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smlformat/bytes.h"
#include "smlformat/index.h"

namespace sml {

// Collects the keys of one page.
class NamePageBuilder {
 public:
  void add(std::string_view key);
  bool full() const noexcept { return keys_ == kNamePageKeys; }
  bool empty() const noexcept { return keys_ == 0; }
  // The page's bytes; the builder is empty afterwards.
  Bytes take();

 private:
  std::uint32_t keys_ = 0;
  std::string previous_;
  Bytes prefixes_, suffixes_, middles_, text_;
};

// Decodes the first `wanted` keys of a page of `count`: end to end into `keys`, which may be longer
// than they are; ends[i] is the end of key i, for all `count`. Throws kCorrupt.
void decode_name_page(ByteView page, std::uint32_t count, std::uint32_t wanted, std::string& keys,
                      std::uint32_t* ends);

}  // namespace sml
