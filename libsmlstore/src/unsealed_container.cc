#include "unsealed_container.h"

#include <algorithm>

#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {

std::optional<UnsealedContainer> UnsealedContainer::open(const ByteSource& source) {
  if (source.size() < Header::kBytes) return std::nullopt;
  std::byte bytes[Header::kBytes];
  try {
    source.read(0, bytes);
    return UnsealedContainer(source, Header::decode(bytes));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Makes the next block the one that slots are taken from. Its table tells where they are, once it
// is known to be intact and of this place in this container; the slots prove themselves.
bool UnsealedContainer::load_block() {
  try {
    Bytes front(BlockHeader::kBytes);
    const std::uint64_t rest = source_->size() - std::min(source_->size(), next_block_);
    if (rest < front.size()) return false;
    source_->read(next_block_, front);
    const auto glance = BlockHeader::glance(front);
    if (!glance || glance->tag != header_.tag || glance->number != blocks_ ||
        glance->block_bytes > header_.block_bytes || glance->front_bytes > glance->block_bytes ||
        glance->front_bytes > rest) {
      return false;
    }
    front.resize(glance->front_bytes);
    source_->read(next_block_, front);
    table_ = BlockTable::decode(front, false);
  } catch (const Error&) {
    return false;
  }
  const BlockHeader& h = table_.header();
  if (h.first_record != records_) return false;
  block_ = next_block_;
  slot_ = 0;
  next_block_ += h.block_bytes;
  ++blocks_;
  if (starts_records(h.kind)) records_ += h.slots;
  return true;
}

bool UnsealedContainer::take_dictionary(std::optional<Bytes>& dictionary) {
  ended_ = !load_block();
  if (ended_) return false;
  if (table_.header().kind != BlockKind::kDictionary) return true;
  ended_ = true;
  const std::optional<KeptSlot> slot = take_slot({});
  if (!slot) return false;
  try {
    const KeptBytes bytes = read({&*slot, 1});
    const VerifiedSlot verified = verify_slot(bytes.slots[0], 0);
    if (verified.codec != Codec::kStored || verified.stored.empty()) return false;
    dictionary.emplace(verified.stored.begin(), verified.stored.end());
  } catch (const Error&) {
    return false;
  }
  ended_ = false;
  has_dictionary_ = true;
  return true;
}

// The next slot of the block at hand.
std::optional<KeptSlot> UnsealedContainer::take_slot(std::string_view key) {
  const KeptSlot slot{block_ + table_.slot_begin(slot_),
                      table_.slot_end(slot_) - table_.slot_begin(slot_)};
  // The last block may be cut short.
  if (table_.key(slot_) != key || slot.offset + slot.bytes > source_->size()) return std::nullopt;
  ++slot_;
  return slot;
}

std::optional<KeptSlot> UnsealedContainer::take_record(std::string_view key) {
  std::optional<KeptSlot> slot;
  if (!ended_ && (slot_ < table_.slots() || load_block()) &&
      table_.header().kind == BlockKind::kRecords) {
    slot = take_slot(key);
  }
  ended_ = !slot;
  return slot;
}

std::optional<KeptSlot> UnsealedContainer::take_piece(std::string_view key,
                                                      std::uint64_t record_bytes,
                                                      std::uint32_t piece) {
  std::optional<KeptSlot> slot;
  if (!ended_ && (slot_ < table_.slots() || load_block()) && is_piece(table_.header().kind) &&
      table_.header().piece == piece && table_.header().record_bytes == record_bytes) {
    slot = take_slot(key);
  }
  ended_ = !slot;
  return slot;
}

KeptBytes UnsealedContainer::read(std::span<const KeptSlot> slots) const {
  KeptBytes out;
  std::uint64_t bytes = 0;
  for (const KeptSlot& slot : slots) bytes += slot.bytes;
  out.memory.resize(bytes);
  out.slots.resize(slots.size());
  std::size_t at = 0;
  for (std::size_t first = 0; first < slots.size();) {
    std::size_t end = first;
    std::uint64_t run = 0;
    while (end < slots.size() && slots[end].offset == slots[first].offset + run)
      run += slots[end++].bytes;
    try {
      const MutableBytes to = MutableBytes(out.memory).subspan(at, run);
      source_->read(slots[first].offset, to);
      for (std::size_t i = first, offset = 0; i < end; offset += slots[i++].bytes)
        out.slots[i] = to.subspan(offset, slots[i].bytes);
    } catch (const Error&) {  // not there
    }
    at += run;
    first = end;
  }
  return out;
}

std::optional<EncodedRecord> UnsealedContainer::record(ByteView slot, std::string_view key,
                                                       std::uint64_t raw_bytes) const {
  EncodedRecord record;
  record.key = key;
  record.key_hash = key_hash(key);
  record.raw_bytes = raw_bytes;
  try {
    const VerifiedSlot verified = verify_slot(slot, record.key_hash);
    record.codec = verified.codec;
    record.stored = verified.stored;
    record.stored_crc32c = verified.stored_crc32c;
  } catch (const Error&) {
    return std::nullopt;
  }
  const bool decodable = record.codec != Codec::kZstdDictionary || has_dictionary_;
  const bool fits =
      record.cost(header_.align) <= header_.block_bytes - block_overhead(header_.align);
  if (!decodable || !fits || raw_bytes_of(record.codec, record.stored) != raw_bytes)
    return std::nullopt;
  return record;
}

bool decodes_to(const EncodedRecord& record, const Dictionary* dictionary, ByteView raw) {
  if (record.codec == Codec::kStored)
    return std::equal(record.stored.begin(), record.stored.end(), raw.begin(), raw.end());
  thread_local Buffer decoded;
  decoded.resize(raw.size());
  try {
    Decoder::local().decode(record.codec, record.stored, dictionary, decoded);
  } catch (const Error&) {
    return false;
  }
  return std::equal(decoded.begin(), decoded.end(), raw.begin());
}

}  // namespace sml
