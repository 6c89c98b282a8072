// Every fixed on-disk structure of a container, with its size, encode and decode side by side.
// Byte by byte in format-spec/container.md. All fields are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/codec.h"

namespace sml {

inline constexpr std::uint32_t kFormatVersion = 1;

// As in PNG: the high bit and the line ends show a transfer that changed text.
inline constexpr std::string_view kHeaderMagic{"\x89SML\r\n\x1a\n", 8};
inline constexpr std::string_view kTailMagic{"SMLTAIL\n", 8};
inline constexpr std::string_view kBlockMagic{"SMLB", 4};

inline constexpr std::uint32_t kMinBlockBytes = 64U << 10;
inline constexpr std::uint32_t kMaxBlockBytes = 64U << 20;
inline constexpr std::uint32_t kDefaultBlockBytes = 4U << 20;
inline constexpr std::uint32_t kMaxAlign = 4096;
inline constexpr std::uint64_t kMaxRecords = 0xffff'ffff;  // of one container
inline constexpr std::uint32_t kMaxParts = 65536;
inline constexpr std::uint64_t kFooterAlign = 4096;
inline constexpr std::uint64_t kSectionAlign = 64;

// Feature bits this build knows. An unknown incompatible bit is refused, an unknown compatible one
// ignored.
inline constexpr std::uint64_t kKnownIncompatibleFeatures = 0;
inline constexpr std::uint64_t kKnownCompatibleFeatures = 0;

enum class PackOrder : std::uint8_t { kInput = 0, kName = 1, kRandom = 2 };
enum class Grouping : std::uint8_t { kNone = 0, kStem = 1 };

std::string_view pack_order_name(PackOrder order) noexcept;  // "input", "name", "random"
std::string_view grouping_name(Grouping grouping) noexcept;  // "none", "stem"

// The largest piece of a record: what fits a block of `block_bytes` with any key and alignment.
constexpr std::uint32_t piece_bytes_of(std::uint32_t block_bytes, std::uint32_t align) noexcept {
  return block_bytes - 8192 - 3 * align;
}

struct Header {
  static constexpr std::size_t kBytes = 128;

  std::uint32_t version = kFormatVersion;
  std::uint32_t header_bytes = kBytes;  // where block 0 starts: kBytes rounded up to align
  std::uint64_t incompatible_features = 0;
  std::uint64_t compatible_features = 0;
  std::uint64_t seed = 0;  // of the random order
  std::uint32_t block_bytes = kDefaultBlockBytes;
  std::uint32_t piece_bytes = piece_bytes_of(kDefaultBlockBytes, 1);
  std::uint32_t align = 1;
  std::uint32_t part = 0;  // 1..parts; 0: not a part
  std::uint32_t parts = 0;
  PackOrder order = PackOrder::kRandom;
  Grouping grouping = Grouping::kNone;
  // In every block of the container again: tells them from blocks of another one, which may lie in
  // this one as a record.
  std::uint32_t tag = 0;

  std::array<std::byte, kBytes> encode() const;
  // `bytes` has kBytes bytes. Throws kCorrupt (magic, checksum, fields), kUnsupported (newer
  // version, unknown feature).
  static Header decode(ByteView bytes);
  // Throws kInvalidArgument where the fields are out of range.
  void check() const;
};

enum class BlockKind : std::uint8_t {
  kRecords = 0,
  kFirstPiece = 1,
  kNextPiece = 2,
  kDictionary = 3
};

constexpr bool is_piece(BlockKind kind) noexcept {
  return kind == BlockKind::kFirstPiece || kind == BlockKind::kNextPiece;
}

// Whether the slots of such a block are starts of records.
constexpr bool starts_records(BlockKind kind) noexcept {
  return kind == BlockKind::kRecords || kind == BlockKind::kFirstPiece;
}

// The pieces that a record of more than `piece_bytes` bytes has.
constexpr std::uint64_t pieces_of(std::uint64_t record_bytes, std::uint32_t piece_bytes) noexcept {
  return record_bytes / piece_bytes + (record_bytes % piece_bytes != 0 ? 1 : 0);
}

// At the front of every block, followed by its record table.
struct BlockHeader {
  static constexpr std::size_t kBytes = 64;

  std::uint32_t block_bytes = 0;         // all of it, from the magic to the padding
  std::uint64_t number = 0;              // of the block in its container
  std::uint64_t first_record = 0;        // records that start in earlier blocks
  std::uint32_t slots = 0;               // in this block
  std::uint32_t slots_offset = 0;        // from the start of the block
  std::uint32_t table_stored_bytes = 0;  // right behind the header
  std::uint32_t table_raw_bytes = 0;
  Codec table_codec = Codec::kStored;  // kStored or kZstd
  BlockKind kind = BlockKind::kRecords;
  std::uint64_t record_bytes = 0;  // pieces: raw size of the whole record; else 0
  std::uint32_t piece = 0;         // pieces: number of the piece, from 0; else 0
  std::uint32_t tag = 0;           // of the container

  // Header and table are guarded by one CRC32C, so both are needed.
  std::array<std::byte, kBytes> encode(ByteView table_stored) const;
  // `block` starts at the magic and holds at least the header and the stored table. Throws
  // kTruncated, kCorrupt.
  static BlockHeader decode(ByteView block);
  // What the first kBytes bytes of a block say that a scan looks at before anything is checked.
  struct Glance {
    std::uint64_t number;
    std::uint64_t front_bytes;  // of header and stored table
    std::uint32_t block_bytes;
    std::uint32_t tag;
  };
  // Nothing where the magic is not there.
  static std::optional<Glance> glance(ByteView front) noexcept;
};

// In front of every record's stored bytes. The CRC32C runs over the stored bytes, then over bytes 4
// to 15 of the prefix, so that for a stored record the running value half way is the CRC32C of the
// record itself.
struct SlotPrefix {
  static constexpr std::size_t kBytes = 16;

  std::uint32_t crc32c = 0;
  Codec codec = Codec::kStored;
  std::uint16_t pad_bytes = 0;  // zeros behind the stored bytes, up to the end of the slot
  std::uint64_t key_hash = 0;   // of a dictionary block: 0

  void encode(std::byte* to) const noexcept;  // kBytes bytes
  static SlotPrefix decode(const std::byte* from) noexcept;
  // What the checksum of this prefix must be, given the CRC32C of the stored bytes.
  std::uint32_t checksum(std::uint32_t stored_crc32c) const noexcept;
};

// One row per block in the footer.
struct BlockRow {
  static constexpr std::size_t kBytes = 48;

  std::uint64_t first_record = 0;
  std::uint32_t slots = 0;
  std::uint32_t slots_offset = 0;
  std::uint32_t crc32c = 0;  // of the whole block
  BlockKind kind = BlockKind::kRecords;
  Hash128 xxh3;  // of the whole block

  void encode(std::byte* to) const noexcept;
  static BlockRow decode(const std::byte* from) noexcept;
};

enum class SectionId : std::uint32_t {
  kBlockOffsets = 1,    // u64 x (blocks + 1)
  kBlockRows = 2,       // BlockRow x blocks
  kPlaces = 3,          // Elias-Fano: offset of each record's first slot, by number
  kRawSizes = 4,        // Elias-Fano: running sum of raw sizes, by number; absent where slots tell
  kNamePages = 5,       // pages of front-coded keys in name order
  kNamePageEnds = 6,    // Elias-Fano: end of each page in section 5
  kNameDictionary = 7,  // zstd dictionary of the pages; absent where pages are stored
  kKeyBuckets = 8,      // u32 x (buckets + 1)
  kKeyTable = 9,        // packed rows, by bucket
  kRankToNumber = 10,   // packed; input order only
  kNumberToRank = 11,
  kNameSamples = 12,  // bit vector in name order: a sample starts here; grouping only
  kPackSamples = 13,  // the same in pack order
  kHeader = 14,       // the container's header, again
  kDictionary = 15,   // the container's dictionary, again; present where block 0 is one
};

struct FooterHeader {
  static constexpr std::size_t kBytes = 64;

  std::uint32_t sections = 0;
  std::uint64_t records = 0;
  std::uint64_t samples = 0;
  std::uint64_t blocks = 0;
  std::uint64_t raw_bytes = 0;     // sum of the records' sizes
  std::uint64_t stored_bytes = 0;  // sum of their stored sizes
  std::uint64_t key_bytes = 0;     // sum of the keys' sizes

  void encode(std::byte* to) const noexcept;
  static FooterHeader decode(const std::byte* from) noexcept;
};

struct SectionRow {
  static constexpr std::size_t kBytes = 32;

  SectionId id{};
  std::uint32_t parameter = 0;
  std::uint64_t offset = 0;  // from the start of the footer, a multiple of kSectionAlign
  std::uint64_t bytes = 0;

  void encode(std::byte* to) const noexcept;
  static SectionRow decode(const std::byte* from) noexcept;
};

struct Tail {
  static constexpr std::size_t kBytes = 64;

  std::uint32_t version = kFormatVersion;
  std::uint64_t footer_offset = 0;
  std::uint64_t footer_bytes = 0;
  std::uint64_t container_bytes = 0;  // from the header to the end of the tail
  Hash128 id;                         // XXH3-128 of the footer
  std::uint32_t footer_crc32c = 0;

  std::array<std::byte, kBytes> encode() const;
  // Throws kTruncated where the magic is missing, kCorrupt, kUnsupported.
  static Tail decode(ByteView bytes);
};

}  // namespace sml
