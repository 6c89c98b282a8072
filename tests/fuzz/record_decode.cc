// A block from any bytes: header, table, slots, pieces, and the records decoded, with a dictionary
// or without. What a block holds, built again, is the same; what is encoded decodes to itself.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <zstd.h>

#include "fuzz.h"
#include "smlformat/block.h"
#include "smlformat/codec.h"
#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "support/reseal.h"

namespace sml::fuzz {
namespace {

// The index gives a record's size; here its frame does, within this.
constexpr std::uint64_t kMostRawBytes = 1U << 20;
constexpr std::uint64_t kMostSlots = 200;

// Beside the records: keys and ends of the slots, twice, and the block built again, in buffers that
// grow (the table of a block is at most as large as its slots can make it; see BlockTable::decode);
// a dictionary, kept and digested (28 KiB of tables each). zstd's contexts are made before.
constexpr std::uint64_t kMemoryPerByte = 16;
constexpr std::uint64_t kMemory = 3 * kMostRawBytes + (256U << 10);
// Of a table: keys of up to 4 KiB for every 16 bytes of block, decoded and copied.
constexpr std::uint64_t kTableBytesPerByte = 3 * (kMaxKeyBytes + 20) / SlotPrefix::kBytes;

// Decodes twice: as large as its frame says, or as asked.
void decode(const VerifiedSlot& slot, const Dictionary* dictionary, std::uint32_t wanted) {
  std::uint64_t bytes = wanted % kMostRawBytes;
  if (slot.codec == Codec::kStored) {
    bytes = slot.stored.size();
  } else if (const auto said = ZSTD_getFrameContentSize(slot.stored.data(), slot.stored.size());
             said <= kMostRawBytes) {
    bytes = said;
  }
  Bytes raw(bytes);
  Decoder::local().decode(slot.codec, slot.stored, dictionary, raw);
  Bytes again(bytes, std::byte{0xff});
  Decoder::local().decode(slot.codec, slot.stored, dictionary, again);
  check(raw == again, "a record decodes to two things");
}

template <class Call>
bool succeeds(Call call) {
  try {
    call();
    return true;
  } catch (const Error&) {
    return false;
  }
}

ByteView slot_of(ByteView block, const BlockTable& table, std::size_t slot) {
  return block.subspan(table.slot_begin(slot), table.slot_end(slot) - table.slot_begin(slot));
}

void check_table(ByteView block, const BlockTable& table) {
  const BlockHeader& header = table.header();
  const auto encoded = header.encode(block.subspan(BlockHeader::kBytes, header.table_stored_bytes));
  check(std::equal(encoded.begin(), encoded.end(), block.begin()),
        "a block header, encoded again, is another");
  check(table.slots() == header.slots && table.slots() > 0, "a table of another size");
  std::uint64_t end = header.slots_offset;
  for (std::size_t i = 0; i < table.slots(); ++i) {
    check(table.slot_begin(i) == end && table.slot_end(i) >= end + SlotPrefix::kBytes,
          "slots that do not follow each other");
    end = table.slot_end(i);
    check(header.kind == BlockKind::kDictionary ? table.key(i).empty() : is_valid_key(table.key(i)),
          "a key that is none");
  }
  check(end == header.block_bytes && end <= block.size(), "slots that do not fill the block");
}

void check_piece(ByteView block, const BlockTable& table, bool slot_is_right) {
  const BlockHeader& h = table.header();
  const auto piece = [&](std::uint64_t number, std::uint64_t part, std::uint64_t bytes) {
    return succeeds([&] { verify_piece(block, number, part, bytes, table.key(0)); });
  };
  check(piece(h.number, h.piece, h.record_bytes) == (is_piece(h.kind) && slot_is_right),
        "a piece is judged differently from its slot");
  check(!piece(h.number + 1, h.piece, h.record_bytes), "a piece of another block passes");
  check(!piece(h.number, h.piece + 1U, h.record_bytes), "another piece passes");
  check(!piece(h.number, h.piece, h.record_bytes + 1), "a piece of another record passes");
  check(!succeeds([&] { verify_piece(block, h.number, h.piece, h.record_bytes, "another"); }) ||
            table.key(0) == "another",
        "a piece of a record with another key passes");
}

// The records of a block as a writer would put them into one.
void check_rebuilt(const BlockTable& table, const std::vector<EncodedRecord>& records) {
  const SealedBlock rebuilt =
      build_block(Header(), table.header().number, table.header().first_record, records);
  const BlockTable again = BlockTable::decode(rebuilt.bytes);
  check(again.slots() == table.slots(), "a block, built again, has other slots");
  for (std::size_t i = 0; i < again.slots(); ++i) {
    const VerifiedSlot slot = verify_slot(slot_of(rebuilt.bytes, again, i), key_hash(again.key(i)));
    check(again.key(i) == table.key(i) && slot.codec == records[i].codec &&
              std::ranges::equal(slot.stored, records[i].stored),
          "a block, built again, holds other records");
  }
}

void read_block(ByteView block, const Dictionary* dictionary, std::uint32_t wanted) {
  const BlockTable table = BlockTable::decode(block);
  check_table(block, table);
  std::vector<EncodedRecord> records;
  for (std::size_t i = 0; i < std::min<std::size_t>(table.slots(), kMostSlots); ++i) {
    const ByteView bytes = slot_of(block, table, i);
    const std::uint64_t hash =
        table.header().kind == BlockKind::kDictionary ? 0 : key_hash(table.key(i));
    std::optional<VerifiedSlot> slot;
    try {
      slot = verify_slot(bytes);
    } catch (const Error&) {
    }
    const bool right = succeeds([&] { verify_slot(bytes, hash); });
    check(!right || slot, "a slot is right only with its key");
    check(!slot || right == (SlotPrefix::decode(bytes.data()).key_hash == hash),
          "a slot of another key passes");
    check(!slot || !succeeds([&] { verify_slot(bytes, hash + 1); }) || !right,
          "a slot passes for two keys");
    if (i == 0 && table.slots() == 1) check_piece(block, table, right);
    if (!slot) continue;
    check(slot->stored.size() <= bytes.size() - SlotPrefix::kBytes, "more stored than the slot");
    check(slot->stored_crc32c == crc32c(slot->stored), "a checksum of something else");
    EncodedRecord record;
    record.key = table.key(i);
    record.key_hash = hash;
    record.codec = slot->codec;
    record.stored = slot->stored;
    record.stored_crc32c = slot->stored_crc32c;
    records.push_back(record);
    succeeds([&] { decode(*slot, dictionary, wanted); });
  }
  if (table.header().kind == BlockKind::kRecords && records.size() == table.slots())
    check_rebuilt(table, records);
}

void encode_and_decode(ByteView raw, const std::shared_ptr<const Dictionary>& dictionary) {
  for (const auto mode : {CompressionOptions::Mode::kAuto, CompressionOptions::Mode::kZstd}) {
    CompressionOptions options;
    options.mode = mode;
    options.level = 1;
    Encoder encoder(options, dictionary);
    const Encoded encoded = encoder.encode(raw);
    check(encoded.codec == Codec::kStored || encoded.stored.size() < raw.size(),
          "compression that grows a record");
    Bytes back(raw.size(), std::byte{0xff});
    Decoder::local().decode(encoded.codec, encoded.stored, dictionary.get(), back);
    check(std::ranges::equal(back, raw), "a record does not decode to itself");
  }
}

}  // namespace
}  // namespace sml::fuzz

// flags, what a record is to decode to, dictionary size, dictionary, block. Flags: 1 repairs the
// checksums, 2 takes the block as a record and encodes it.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sml::fuzz;
  sml::Decoder::local();
  Input input(data, size);
  const auto flags = input.number<std::uint8_t>();
  const auto wanted = input.number<std::uint16_t>();
  const auto dictionary_bytes = input.number<std::uint16_t>();
  const sml::ByteView dictionary = input.take(dictionary_bytes);
  sml::Bytes block(input.rest().begin(), input.rest().end());
  if ((flags & 1) != 0) sml::test::reseal_block(block);

  MemoryLimit limit(kMemory + kMemoryPerByte * size + kTableBytesPerByte * block.size());
  try {
    std::shared_ptr<const sml::Dictionary> digested;
    const bool encodes = (flags & 2) != 0;
    if (!dictionary.empty()) {
      digested = std::make_shared<const sml::Dictionary>(
          sml::Bytes(dictionary.begin(), dictionary.end()), encodes ? 1 : 0);
    }
    if (encodes) {
      // An encoder's context and its tables: documented by zstd as some 600 KiB at level 1; twice,
      // for a digested dictionary.
      limit.set(kMemory + (4U << 20) + kMemoryPerByte * size);
      encode_and_decode(block, digested);
    } else {
      read_block(block, digested.get(), wanted);
    }
  } catch (const sml::Error&) {
  }
  return 0;
}
