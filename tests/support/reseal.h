// Repairs the checksums of a container or of a block after its bytes were changed, so that what
// lies behind the checksums can be tested. Bytes that are too damaged for it are left as they are.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "smlformat/block.h"
#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlformat/layout.h"

namespace sml::test {

inline void reseal_header(MutableBytes container) {
  if (container.size() < Header::kBytes) return;
  store(container.data() + 124, crc32c(container.first(124)));
}

inline void reseal_slot(MutableBytes slot, std::uint64_t hash) {
  if (slot.size() < SlotPrefix::kBytes) return;
  store(slot.data() + 8, hash);
  const std::size_t behind = slot.size() - SlotPrefix::kBytes;
  const std::size_t pad = std::min<std::size_t>(load<std::uint16_t>(slot.data() + 6), behind);
  const std::uint32_t stored = crc32c(slot.subspan(SlotPrefix::kBytes, behind - pad));
  store(slot.data(), crc32c(slot.subspan(4, SlotPrefix::kBytes - 4), stored));
}

// Header and table, then the slots, with the hashes of the keys in the table.
inline void reseal_block(MutableBytes block) {
  if (block.size() < BlockHeader::kBytes) return;
  const auto table_bytes = load<std::uint32_t>(block.data() + 36);
  if (table_bytes > block.size() - BlockHeader::kBytes) return;
  store(block.data() + 4, crc32c(block.subspan(8, BlockHeader::kBytes - 8 + table_bytes)));
  std::optional<BlockTable> table;
  try {
    table = BlockTable::decode(block);
  } catch (const Error&) {
    return;
  }
  for (std::size_t i = 0; i < table->slots(); ++i) {
    const bool has_key = table->header().kind != BlockKind::kDictionary;
    reseal_slot(block.subspan(table->slot_begin(i), table->slot_end(i) - table->slot_begin(i)),
                has_key ? key_hash(table->key(i)) : 0);
  }
}

// The header, its copy in the footer, the blocks and their rows, the tail. What the tail says of
// sizes is made to agree with the bytes that are there.
inline void reseal_container(Bytes& bytes) {
  reseal_header(bytes);
  if (bytes.size() < Header::kBytes + Tail::kBytes) return;
  std::byte* const tail = bytes.data() + bytes.size() - Tail::kBytes;
  const std::uint64_t footer_end = bytes.size() - Tail::kBytes;
  const auto footer_offset = load<std::uint64_t>(tail);
  if (footer_offset > footer_end) return;
  const MutableBytes footer =
      MutableBytes(bytes).subspan(footer_offset, footer_end - footer_offset);

  // A section of the footer, if it is there.
  const auto section = [&](SectionId id) -> MutableBytes {
    if (footer.size() < FooterHeader::kBytes) return {};
    const auto rows = load<std::uint32_t>(footer.data());
    for (std::uint64_t i = 0; i < rows; ++i) {
      const std::uint64_t at = FooterHeader::kBytes + i * SectionRow::kBytes;
      if (at + SectionRow::kBytes > footer.size()) break;
      const SectionRow row = SectionRow::decode(footer.data() + at);
      if (row.id != id) continue;
      if (row.offset > footer.size() || row.bytes > footer.size() - row.offset) break;
      return footer.subspan(row.offset, row.bytes);
    }
    return {};
  };
  if (const MutableBytes copy = section(SectionId::kHeader); copy.size() == Header::kBytes) {
    std::copy_n(bytes.begin(), Header::kBytes, copy.begin());
  }
  const MutableBytes offsets = section(SectionId::kBlockOffsets);
  const MutableBytes rows = section(SectionId::kBlockRows);
  for (std::size_t b = 0; (b + 1) * BlockRow::kBytes <= rows.size(); ++b) {
    if ((b + 2) * sizeof(std::uint64_t) > offsets.size()) break;
    const auto begin = load<std::uint64_t>(offsets.data() + b * sizeof(std::uint64_t));
    const auto end = load<std::uint64_t>(offsets.data() + (b + 1) * sizeof(std::uint64_t));
    if (begin > end || end > footer_offset) continue;
    const MutableBytes block = MutableBytes(bytes).subspan(begin, end - begin);
    reseal_block(block);
    std::byte* const row = rows.data() + b * BlockRow::kBytes;
    const Hash128 hash = xxh3_128(block);
    store(row + 16, crc32c(block));
    store(row + 24, hash.low);
    store(row + 32, hash.high);
  }

  const Hash128 id = xxh3_128(footer);
  store(tail + 8, std::uint64_t{footer.size()});
  store(tail + 16, std::uint64_t{bytes.size()});
  store(tail + 24, id.low);
  store(tail + 32, id.high);
  store(tail + 40, crc32c(footer));
  store(tail + 52, crc32c(ByteView(tail, 52)));
}

}  // namespace sml::test
