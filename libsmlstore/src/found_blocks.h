// The blocks of a damaged container, one after another: what recovery goes by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smlformat/container_reader.h"
#include "smlformat/layout.h"
#include "smlformat/scan.h"

namespace sml {

struct FoundBlock {
  struct Slot {
    std::string key;          // empty: nothing tells it
    std::uint64_t begin = 0;  // in the block
    std::uint64_t end = 0;    // begin: nothing tells the place
  };

  BlockHeader header;
  std::uint64_t offset = 0;
  std::shared_ptr<const SourceBytes> bytes;  // of the whole block
  // Header, table and paddings are as they were written: with intact slots all of the block is.
  bool framed = false;
  std::vector<Slot> slots;
  std::string unreadable;  // why none of it can be read; its bytes are zeros then
};

class FoundBlocks {
 public:
  virtual ~FoundBlocks() = default;
  virtual std::optional<FoundBlock> next() = 0;
};

// Every block that the index names, its slots from the table where the block is intact, else from
// the index. `why_missing`: why the byte at an offset cannot be read; empty where it can.
std::unique_ptr<FoundBlocks> blocks_by_index(
    const ContainerReader& reader, std::function<std::string(std::uint64_t offset)> why_missing);

// The blocks that a forward scan finds; the last one may be cut short.
std::unique_ptr<FoundBlocks> blocks_by_scan(const ByteSource& source, std::uint64_t begin,
                                            std::uint64_t end, std::uint32_t tag);

}  // namespace sml
