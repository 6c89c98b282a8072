// A sealed container, opened for reading.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/codec.h"
#include "smlformat/index.h"
#include "smlformat/layout.h"

namespace sml {

// Immutable after construction: every const function may be called by any number of threads.
class ContainerReader {
 public:
  // Where the header is taken from: the front of the container, which must agree with the footer's
  // copy of it; or that copy alone, for a container whose front is damaged.
  enum class HeaderFrom : std::uint8_t { kFront, kFooter };

  // Reads header, tail and footer and checks them. Throws kTruncated, kCorrupt, kUnsupported; kIo
  // from the source.
  explicit ContainerReader(std::shared_ptr<const ByteSource> source,
                           HeaderFrom header_from = HeaderFrom::kFront);
  ~ContainerReader();

  const Header& header() const noexcept { return header_; }
  const Tail& tail() const noexcept { return tail_; }
  const Hash128& id() const noexcept { return tail_.id; }
  const Index& index() const noexcept { return *index_; }
  const ByteSource& source() const noexcept { return *source_; }
  // The container's dictionary, or null. Digested when first needed; throws kCorrupt.
  const Dictionary* dictionary() const;

 private:
  std::shared_ptr<const ByteSource> source_;
  Header header_;
  Tail tail_;
  struct FooterBytes;
  std::shared_ptr<const FooterBytes> footer_;
  std::unique_ptr<Index> index_;
  struct LazyDictionary;
  std::unique_ptr<LazyDictionary> dictionary_;
};

// A slot whose checksum and key hash are right.
struct VerifiedSlot {
  Codec codec = Codec::kStored;
  ByteView stored;
  std::uint32_t stored_crc32c =
      0;  // of the stored bytes: of the record itself where codec is kStored
};

// Checks the slot (all of its bytes). Throws kCorrupt with both checksums, or naming what is wrong.
// Pure.
VerifiedSlot verify_slot(ByteView slot, std::uint64_t expected_key_hash);
// The same without an expected key: for records asked for by number.
VerifiedSlot verify_slot(ByteView slot);

// Checks one piece of the record `key`: block header, table, slot; `piece` counts from 0. Throws
// kCorrupt.
VerifiedSlot verify_piece(ByteView block, std::uint64_t block_number, std::uint64_t piece,
                          std::uint64_t record_bytes, std::string_view key);

}  // namespace sml
