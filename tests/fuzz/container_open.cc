// A container from any bytes: scanned for blocks, then opened, and if that succeeds header, blocks
// and every record are read, as a reader that trusts nothing but what the libraries promise would
// do it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "container_input.h"
#include "fuzz.h"
#include "smlformat/block.h"
#include "smlformat/checksum.h"
#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlformat/scan.h"

namespace sml::fuzz {
namespace {

// An index of a few bytes can give many pages of long keys, and pieces that decode to megabytes.
constexpr std::uint64_t kMostRecords = 2000;
constexpr std::uint64_t kMostKeyBytes = 4U << 20;
constexpr std::uint64_t kMostRawBytes = 8U << 20;

void check_header(const ContainerReader& reader, ByteView container) {
  const auto encoded = reader.header().encode();
  check(std::equal(encoded.begin(), encoded.end(), container.begin()),
        "the header, encoded again, is another");
  const auto tail = reader.tail().encode();
  check(std::equal(tail.begin(), tail.end(), container.end() - Tail::kBytes),
        "the tail, encoded again, is another");
}

void check_blocks(const ContainerReader& reader, ByteView container) {
  const Index& index = reader.index();
  std::uint64_t records = 0;
  for (std::uint64_t b = 0; b < index.blocks(); ++b) {
    const BlockRow row = index.block(b);
    const std::uint64_t begin = index.block_offset(b);
    const std::uint64_t end = index.block_offset(b + 1);
    check(begin < end && end <= container.size() && end - begin <= reader.header().block_bytes,
          "a block out of bounds");
    check(row.first_record == records, "a block that starts with another record");
    if (starts_records(row.kind)) records += row.slots;
  }
  check(records == index.records(), "the blocks hold another number of records");
}

// The keys of blocks, of up to 4 KiB for every 16 bytes of a block's slots: in a few tables at
// once, and decoded.
constexpr std::uint64_t kScanMemoryPerByte = 8 * (kMaxKeyBytes + 20) / SlotPrefix::kBytes;

struct FoundBlock {
  std::uint64_t offset = 0;
  BlockHeader header;
};

// Throws nothing: here a source gives all that it has.
std::vector<FoundBlock> scan(ByteView container, std::uint32_t tag) {
  std::vector<FoundBlock> found;
  const MemorySource source(container);
  BlockScan blocks(source, Header::kBytes, container.size(), tag);
  std::uint64_t end = Header::kBytes;
  while (const std::optional<ScannedBlock> block = blocks.next()) {
    const BlockHeader& header = block->table.header();
    check(block->offset >= end, "scanned blocks overlap");
    end = block->offset + (*block->bytes).size();
    check(end <= container.size() && (*block->bytes).size() <= header.block_bytes,
          "a scanned block out of bounds");
    check(header.tag == tag, "a scanned block of another container");
    check(
        std::ranges::equal(*block->bytes, container.subspan(block->offset, (*block->bytes).size())),
        "a scanned block with the bytes of another");
    check(found.empty() || (header.number > found.back().header.number &&
                            header.first_record >= found.back().header.first_record),
          "scanned blocks that do not ascend");
    found.push_back({block->offset, header});
  }
  return found;
}

// A scan finds what the index knows, if it is there.
void check_scan(const ContainerReader& reader, const std::vector<FoundBlock>& found) {
  const Index& index = reader.index();
  check(found.size() >= index.blocks(), "a scan that misses blocks");
  for (std::uint64_t b = 0; b < index.blocks(); ++b) {
    check(found[b].offset == index.block_offset(b) && found[b].header.number == b &&
              found[b].header.first_record == index.block(b).first_record &&
              found[b].header.kind == index.block(b).kind,
          "a scan that finds another block than the index");
  }
}

// Whether the index's hashes of the record's blocks hold: then it must be readable, unless the
// index itself is forged.
bool blocks_are_whole(const Index& index, ByteView container, std::uint64_t first,
                      std::uint64_t count) {
  for (std::uint64_t b = first; b < first + count; ++b) {
    const ByteView block =
        container.subspan(index.block_offset(b), index.block_offset(b + 1) - index.block_offset(b));
    if (xxh3_128(block) != index.block(b).xxh3) return false;
  }
  return true;
}

void decode(const ContainerReader& reader, const VerifiedSlot& slot, std::uint64_t raw_bytes) {
  Bytes raw(raw_bytes);
  Decoder::local().decode(slot.codec, slot.stored, reader.dictionary(), raw);
  check(slot.codec != Codec::kStored || crc32c(raw) == slot.stored_crc32c,
        "a stored record whose checksum is not the slot's");
}

// Returns the bytes read.
std::uint64_t read_record(const ContainerReader& reader, ByteView container, std::uint64_t number,
                          const std::string& key) {
  const Index& index = reader.index();
  const std::uint64_t piece_bytes = reader.header().piece_bytes;
  const Place place = index.place(number);
  const std::uint64_t raw_bytes = index.raw_bytes(number);
  check(place.block + place.pieces <= index.blocks() && place.pieces > 0, "a place without blocks");
  check(place.offset >= index.block_offset(place.block) &&
            place.offset + place.slot_bytes <= index.block_offset(place.block + 1),
        "a place outside its block");
  check(raw_bytes <= index.counts().raw_bytes, "a record larger than all records");
  if (place.pieces == 1) {
    check(raw_bytes <= piece_bytes, "a record larger than a piece, in one slot");
    decode(reader, verify_slot(container.subspan(place.offset, place.slot_bytes), key_hash(key)),
           raw_bytes);
    return raw_bytes;
  }
  check(raw_bytes <= piece_bytes || place.pieces == (raw_bytes - 1) / piece_bytes + 1,
        "a number of pieces that does not follow from the size");
  if (raw_bytes <= piece_bytes) throw Error(ErrorCode::kCorrupt, "pieces of a small record");
  std::uint64_t done = 0;
  for (std::uint64_t piece = 0; piece < place.pieces && done < kMostRawBytes; ++piece) {
    const std::uint64_t begin = index.block_offset(place.block + piece);
    const std::uint64_t end = index.block_offset(place.block + piece + 1);
    const VerifiedSlot slot = verify_piece(container.subspan(begin, end - begin),
                                           place.block + piece, piece, raw_bytes, key);
    const std::uint64_t bytes = std::min(piece_bytes, raw_bytes - piece * piece_bytes);
    decode(reader, slot, bytes);
    done += bytes;
  }
  return done;
}

void read_records(const ContainerReader& reader, ByteView container, bool genuine) {
  const Index& index = reader.index();
  std::uint64_t key_bytes = 0;
  std::uint64_t raw_bytes = 0;
  for (std::uint64_t number = 0; number < std::min(index.records(), kMostRecords); ++number) {
    if (key_bytes > kMostKeyBytes || raw_bytes > kMostRawBytes) return;
    bool placed = false;
    Place place;
    try {
      std::string key;
      index.key_of(number, key);
      key_bytes += kNamePageKeys * key.size();  // what was decoded for it
      place = index.place(number);
      placed = true;
      raw_bytes += read_record(reader, container, number, key);
    } catch (const Error& error) {
      if (!genuine) continue;
      check(placed, "a record that a writer's index does not lead to");
      check(!blocks_are_whole(index, container, place.block, place.pieces), error.what());
    }
  }
}

}  // namespace
}  // namespace sml::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sml::fuzz;
  warm_up();
  const ContainerInput container = make_container(Input(data, size));
  const sml::ByteView bytes = container.bytes;
  const std::uint64_t open_bytes = kIndexMemory + kIndexMemoryPerByte * bytes.size();
  MemoryLimit limit(open_bytes + kScanMemoryPerByte * bytes.size());
  const std::uint32_t tag =
      bytes.size() < sml::Header::kBytes ? 0 : sml::load<std::uint32_t>(bytes.data() + 120);
  const std::vector<FoundBlock> found = scan(bytes, tag);
  // A scan keeps a few fields of each block.
  limit.set(2 * open_bytes + 4 * found.size() * sizeof(FoundBlock));
  const auto source = std::make_shared<sml::MemorySource>(bytes);
  try {
    const sml::ContainerReader reader(source, sml::ContainerReader::HeaderFrom::kFooter);
    check_blocks(reader, bytes);
  } catch (const sml::Error&) {
  }
  try {
    const sml::ContainerReader reader(source);
    check_header(reader, bytes);
    check_blocks(reader, bytes);
    if (container.genuine && blocks_are_whole(reader.index(), bytes, 0, reader.index().blocks()))
      check_scan(reader, found);
    check(
        sml::ContainerReader(source, sml::ContainerReader::HeaderFrom::kFooter).id() == reader.id(),
        "a container that its footer alone does not open");
    // One record at a time, or one piece: neither is larger than a block. The table of a piece's
    // block has one slot, so it is small.
    limit.set(2 * open_bytes + 4 * found.size() * sizeof(FoundBlock) + reader.header().block_bytes);
    read_records(reader, bytes, container.genuine);
  } catch (const sml::Error&) {
  }
  return 0;
}
