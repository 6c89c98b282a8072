// What an interrupted pack left: the header of a container and its blocks, up to some point. Their
// records are taken over as they are stored, so that they need not be read and encoded again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "smlformat/block.h"
#include "smlformat/bytes.h"
#include "smlformat/codec.h"
#include "smlformat/layout.h"

namespace sml {

// Where a record, or a piece of one, lies.
struct KeptSlot {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

// Slots that were read; those that cannot be read are empty.
struct KeptBytes {
  Buffer memory;  // in which they lie, wherever it is moved to
  std::vector<ByteView> slots;
};

// Nothing of it is trusted: whatever does not prove to be a record of the pack counts as not there.
// take_...() walk it once from the front, in pack order, and are for one thread; const functions
// are safe for threads. The source must outlive it; what is written over it meanwhile does no harm.
class UnsealedContainer {
 public:
  // Nothing where not even the header is there.
  static std::optional<UnsealedContainer> open(const ByteSource& source);

  const Header& header() const noexcept { return header_; }

  // Before all others: whether block 0 is there, so that `dictionary` is what the interrupted pack
  // trained (nothing where it found that a dictionary does not pay).
  bool take_dictionary(std::optional<Bytes>& dictionary);

  // The slot of the next record, or of its next piece. The walk ends with the first that is not
  // there: from then on nothing is.
  std::optional<KeptSlot> take_record(std::string_view key);
  std::optional<KeptSlot> take_piece(std::string_view key, std::uint64_t record_bytes,
                                     std::uint32_t piece);

  // Neighbours are read together.
  KeptBytes read(std::span<const KeptSlot> slots) const;
  // The record (or piece) of this key and size in a slot, where that is intact. Key and bytes are
  // those given.
  std::optional<EncodedRecord> record(ByteView slot, std::string_view key,
                                      std::uint64_t raw_bytes) const;

 private:
  UnsealedContainer(const ByteSource& source, const Header& header)
      : source_(&source), header_(header), next_block_(header.header_bytes) {}

  bool load_block();
  std::optional<KeptSlot> take_slot(std::string_view key);

  const ByteSource* source_;
  Header header_;
  bool has_dictionary_ = false;
  bool ended_ = false;
  std::uint64_t next_block_;   // its offset
  std::uint64_t blocks_ = 0;   // loaded
  std::uint64_t records_ = 0;  // that start in them
  BlockTable table_;           // of the last one
  std::uint64_t block_ = 0;    // its offset
  std::size_t slot_ = 0;       // the next one in it
};

// Whether a record decodes to `raw`.
bool decodes_to(const EncodedRecord& record, const Dictionary* dictionary, ByteView raw);

}  // namespace sml
