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
  SourceBytes bytes;  // of the whole block
  BlockTable table;
};

// For one thread. Throws kIo from the source, nothing else.
class BlockScan {
 public:
  // Looks at bytes begin to end - 1 of the source, which must outlive the scan. `block_bytes`: the
  // size of a block, at most.
  BlockScan(const ByteSource& source, std::uint64_t begin, std::uint64_t end,
            std::uint32_t block_bytes = kMaxBlockBytes);

  // The next intact block: right behind the one before, else, after damage, further on. Numbers
  // ascend, first records never descend. Nothing where none follows.
  //
  // After damage the bytes may also show blocks of another container that lies in this one as a
  // record. Of the blocks that could follow within one block's size, the scan therefore takes that
  // from which intact neighbours reach furthest: those of a record end before it does.
  std::optional<ScannedBlock> next();

  // Where the last block that was given ends.
  std::uint64_t position() const noexcept { return at_; }
  // What the next block has if none is missing.
  std::uint64_t next_number() const noexcept { return number_; }
  std::uint64_t next_record() const noexcept { return record_; }

 private:
  std::optional<ScannedBlock> at(std::uint64_t offset) const;
  bool may_follow(const ScannedBlock& block) const noexcept;
  std::optional<ScannedBlock> search();
  std::uint64_t find_magic(std::uint64_t from) const;
  std::uint64_t reach(const ScannedBlock& block, std::uint64_t limit) const;

  const ByteSource& source_;
  std::uint64_t end_;
  std::uint32_t block_bytes_;
  std::uint64_t at_;
  std::uint64_t number_ = 0;
  std::uint64_t record_ = 0;
};

}  // namespace sml
