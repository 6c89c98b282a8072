// A container that may be damaged anywhere: what of it can be known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "found_blocks.h"
#include "smlformat/block.h"
#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/layout.h"

namespace sml {

class DamagedContainer {
 public:
  // Bytes of the source that cannot be read count as zeros. Throws kCorrupt where there is neither
  // a header nor a block, kUnsupported for an intact container of a newer kind.
  explicit DamagedContainer(std::shared_ptr<const ByteSource> source);

  // The container's bytes, without what is in front of it.
  const ByteSource& source() const noexcept { return *source_; }
  // Nothing where it is damaged.
  const std::optional<Tail>& tail() const noexcept { return tail_; }
  // The index; null where the footer is not usable.
  const Index* index() const noexcept { return reader_ ? &reader_->index() : nullptr; }
  // Whether the index leads to the blocks. Else they were found by a scan.
  bool by_index() const noexcept { return reader_ != nullptr && !blocks_moved_; }
  // The container's, from either end; else, with header_error() telling why, one that its blocks
  // fit.
  const Header& header() const noexcept { return header_; }
  const std::optional<Error>& header_error() const noexcept { return header_error_; }
  // Null where there is none, or where it is lost.
  const Dictionary* dictionary() const noexcept { return dictionary_.get(); }

  // Its blocks, from the first on: by the index, else by a scan.
  std::unique_ptr<FoundBlocks> blocks() const;
  // Where an intact block of another container is, in front of this one or behind `behind`.
  std::optional<std::uint64_t> foreign_block(std::uint64_t behind) const;

 private:
  void find_tail();
  void open();
  bool header_is_newer() const;
  bool starts_with_block() const;
  void guess_header();
  void find_dictionary();

  std::shared_ptr<const ByteSource> given_;
  std::shared_ptr<const ByteSource> source_;  // that, as far as it is the container's
  std::optional<Tail> tail_;
  std::unique_ptr<ContainerReader> reader_;
  Header header_;
  std::optional<Error> header_error_;
  std::unique_ptr<Dictionary> dictionary_;
  std::shared_ptr<const ByteSource>
      before_;  // the source with the bytes in front, if there are any
  std::uint64_t bytes_in_front_ = 0;
  bool blocks_moved_ = false;  // bytes were put in between: the index does not lead to the blocks
  std::uint64_t moved_by_ = 0;
};

// A slot of a block, verified and decoded, as it is stored; key and bytes are those of `block`.
// Throws kCorrupt, kUnsupported.
EncodedRecord stored_record(const FoundBlock& block, const FoundBlock::Slot& slot,
                            const Dictionary* dictionary);

}  // namespace sml
