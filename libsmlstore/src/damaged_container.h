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

  const ByteSource& source() const noexcept { return *source_; }
  // Nothing where it is damaged.
  const std::optional<Tail>& tail() const noexcept { return tail_; }
  // Null where the footer is not usable.
  const ContainerReader* reader() const noexcept { return reader_.get(); }
  // The container's, from either end; else, with header_error() telling why, one that its blocks
  // fit.
  const Header& header() const noexcept { return header_; }
  const std::optional<Error>& header_error() const noexcept { return header_error_; }

  // Its blocks, from the first on: by the index, else by a scan.
  std::unique_ptr<FoundBlocks> blocks() const;

 private:
  bool header_is_newer() const;
  void guess_header();

  std::shared_ptr<const ByteSource> source_;
  std::optional<Tail> tail_;
  std::unique_ptr<ContainerReader> reader_;
  Header header_;
  std::optional<Error> header_error_;
};

// A slot of a block, verified, as it is stored; the key and the bytes are those of `block`. Throws
// kCorrupt.
EncodedRecord stored_record(const FoundBlock& block, const FoundBlock::Slot& slot);

// The pieces that a record larger than a piece has.
constexpr std::uint64_t pieces_of(std::uint64_t record_bytes, std::uint32_t piece_bytes) noexcept {
  return record_bytes / piece_bytes + (record_bytes % piece_bytes != 0 ? 1 : 0);
}

constexpr bool is_piece(BlockKind kind) noexcept {
  return kind == BlockKind::kFirstPiece || kind == BlockKind::kNextPiece;
}

}  // namespace sml
