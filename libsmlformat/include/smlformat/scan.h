// Walks the blocks of a container from the front, without its index: for containers whose footer is
// lost. See format-spec/container.md, "Scanning forward".
#pragma once

#include <cstdint>
#include <optional>

#include "smlformat/block.h"
#include "smlformat/bytes.h"

namespace sml {

// A block whose header and record table are intact; its slots have yet to be verified.
struct ScannedBlock {
  std::uint64_t offset = 0;
  SourceBytes bytes;  // of the block, as far as the source goes: the last one may be cut short
  BlockTable table;
};

// For one thread. Throws kIo from the source, nothing else.
class BlockScan {
 public:
  // Looks at bytes begin to end - 1 of the source, which must outlive the scan. `tag`: of the
  // container; blocks with other tags are not its own. Without a tag every intact block is given,
  // also those that lie in others.
  BlockScan(const ByteSource& source, std::uint64_t begin, std::uint64_t end,
            std::optional<std::uint32_t> tag);

  // The next intact block: right behind the one before, else, after damage, the next one that
  // follows somewhere. With a tag numbers ascend and first records never descend; blocks that do
  // not are passed over. Nothing where none follows.
  std::optional<ScannedBlock> next();

 private:
  std::optional<ScannedBlock> at(std::uint64_t offset);
  std::uint64_t find_magic(std::uint64_t from);
  // Bytes of the source, read in large windows. Valid until the next call.
  ByteView window(std::uint64_t offset, std::uint64_t bytes);

  const ByteSource& source_;
  std::uint64_t end_;
  std::optional<std::uint32_t> tag_;
  std::uint64_t at_;
  std::uint64_t number_ = 0;  // of the next block, at least
  std::uint64_t record_ = 0;  // its first, at least
  SourceBytes window_;
  std::uint64_t window_offset_ = 0;
};

}  // namespace sml
