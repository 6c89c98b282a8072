#include "smlformat/layout.h"

#include <bit>

#include <fmt/format.h>

#include "smlformat/error.h"

namespace sml {
namespace {

// What pack and cat speak through pipes (frames.h): taken for a container by mistake, now and then.
constexpr std::string_view kFramesMagicStart = "\x89SMLF";

[[noreturn]] void corrupt(const std::string& what) { throw Error(ErrorCode::kCorrupt, what); }

void check_crc(std::string_view what, std::uint32_t stored, std::uint32_t computed) {
  if (stored != computed) {
    corrupt(fmt::format("{}: checksum mismatch (stored {:08x}, computed {:08x})", what, stored,
                        computed));
  }
}

void check_version(std::string_view what, std::uint32_t version) {
  if (version == 0) corrupt(fmt::format("{}: version 0 does not exist", what));
  if (version > kFormatVersion) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("container format version {}, this program reads version {}", version,
                            kFormatVersion),
                "a newer sml can read it");
  }
}

bool all_zero(ByteView bytes) noexcept {
  for (const std::byte b : bytes) {
    if (b != std::byte{0}) return false;
  }
  return true;
}

template <std::size_t N, class T>
void put(std::array<std::byte, N>& out, std::size_t offset, T value) noexcept {
  store(out.data() + offset, value);
}

}  // namespace

std::string_view pack_order_name(PackOrder order) noexcept {
  switch (order) {
    case PackOrder::kInput:
      return "input";
    case PackOrder::kName:
      return "name";
    case PackOrder::kRandom:
      return "random";
  }
  return "?";
}

std::string_view grouping_name(Grouping grouping) noexcept {
  return grouping == Grouping::kStem ? "stem" : "none";
}

// --- Header

std::array<std::byte, Header::kBytes> Header::encode() const {
  std::array<std::byte, kBytes> out{};
  std::memcpy(out.data(), kHeaderMagic.data(), kHeaderMagic.size());
  put(out, 8, version);
  put(out, 12, header_bytes);
  put(out, 16, incompatible_features);
  put(out, 24, compatible_features);
  put(out, 32, seed);
  put(out, 40, block_bytes);
  put(out, 44, piece_bytes);
  put(out, 48, align);
  put(out, 52, part);
  put(out, 56, parts);
  put(out, 60, order);
  put(out, 61, grouping);
  put(out, 120, tag);
  put(out, 124, crc32c(ByteView(out).first(124)));
  return out;
}

Header Header::decode(ByteView bytes) {
  const std::string_view magic = as_text(bytes.first(kHeaderMagic.size()));
  if (magic != kHeaderMagic) {
    if (magic.starts_with(kFramesMagicStart))
      corrupt("not an SML container, but a framed record stream");
    if (magic.substr(1, 3) == "SML")
      corrupt("the first bytes of the container were changed by a text-mode transfer");
    corrupt("not an SML container (the first bytes are wrong)");
  }
  // The version comes before the checksum: a newer version may keep its checksum elsewhere.
  Header h;
  h.version = load<std::uint32_t>(bytes.data() + 8);
  check_version("header", h.version);
  check_crc("header", load<std::uint32_t>(bytes.data() + 124), crc32c(bytes.first(124)));
  h.header_bytes = load<std::uint32_t>(bytes.data() + 12);
  h.incompatible_features = load<std::uint64_t>(bytes.data() + 16);
  h.compatible_features = load<std::uint64_t>(bytes.data() + 24);
  h.seed = load<std::uint64_t>(bytes.data() + 32);
  h.block_bytes = load<std::uint32_t>(bytes.data() + 40);
  h.piece_bytes = load<std::uint32_t>(bytes.data() + 44);
  h.align = load<std::uint32_t>(bytes.data() + 48);
  h.part = load<std::uint32_t>(bytes.data() + 52);
  h.parts = load<std::uint32_t>(bytes.data() + 56);
  const auto order = load<std::uint8_t>(bytes.data() + 60);
  const auto grouping = load<std::uint8_t>(bytes.data() + 61);
  if (const std::uint64_t unknown = h.incompatible_features & ~kKnownIncompatibleFeatures;
      unknown != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the container needs feature {}, which this program does not know",
                            std::countr_zero(unknown)),
                "a newer sml may read it");
  }
  if (order > 2) corrupt(fmt::format("header: unknown order {}", order));
  if (grouping > 1) corrupt(fmt::format("header: unknown grouping {}", grouping));
  if (!all_zero(bytes.subspan(62, 58))) corrupt("header: reserved bytes are not zero");
  h.tag = load<std::uint32_t>(bytes.data() + 120);
  h.order = static_cast<PackOrder>(order);
  h.grouping = static_cast<Grouping>(grouping);
  try {
    h.check();
  } catch (const Error& e) {
    corrupt(std::string("header: ") + e.what());
  }
  return h;
}

void Header::check() const {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, what);
  };
  if (block_bytes < kMinBlockBytes || block_bytes > kMaxBlockBytes) {
    refuse(fmt::format("block size {} is not between {} and {}", block_bytes, kMinBlockBytes,
                       kMaxBlockBytes));
  }
  if (!std::has_single_bit(align) || align > kMaxAlign) {
    refuse(fmt::format("alignment {} is not a power of two from 1 to {}", align, kMaxAlign));
  }
  if (piece_bytes == 0 || piece_bytes > piece_bytes_of(block_bytes, align)) {
    refuse(fmt::format("piece size {} does not fit blocks of {}", piece_bytes, block_bytes));
  }
  if (header_bytes != round_up(kBytes, align))
    refuse(fmt::format("header size {} is wrong", header_bytes));
  if (parts > kMaxParts) refuse(fmt::format("{} parts are more than {}", parts, kMaxParts));
  if (parts == 0 ? part != 0 : (part == 0 || part > parts)) {
    refuse(fmt::format("part {} of {} does not exist", part, parts));
  }
}

// --- BlockHeader

std::array<std::byte, BlockHeader::kBytes> BlockHeader::encode(ByteView table_stored) const {
  std::array<std::byte, kBytes> out{};
  std::memcpy(out.data(), kBlockMagic.data(), kBlockMagic.size());
  put(out, 8, number);
  put(out, 16, first_record);
  put(out, 24, block_bytes);
  put(out, 28, slots_offset);
  put(out, 32, slots);
  put(out, 36, table_stored_bytes);
  put(out, 40, table_raw_bytes);
  put(out, 44, table_codec);
  put(out, 45, kind);
  put(out, 48, record_bytes);
  put(out, 56, piece);
  put(out, 60, tag);
  put(out, 4, crc32c(table_stored, crc32c(ByteView(out).subspan(8))));
  return out;
}

BlockHeader BlockHeader::decode(ByteView block) {
  if (block.size() < kBytes) throw Error(ErrorCode::kTruncated, "block header is cut short");
  if (as_text(block.first(kBlockMagic.size())) != kBlockMagic)
    corrupt("no block starts here (magic is wrong)");
  BlockHeader h;
  const std::byte* p = block.data();
  h.number = load<std::uint64_t>(p + 8);
  h.first_record = load<std::uint64_t>(p + 16);
  h.block_bytes = load<std::uint32_t>(p + 24);
  h.slots_offset = load<std::uint32_t>(p + 28);
  h.slots = load<std::uint32_t>(p + 32);
  h.table_stored_bytes = load<std::uint32_t>(p + 36);
  h.table_raw_bytes = load<std::uint32_t>(p + 40);
  const auto codec = load<std::uint8_t>(p + 44);
  const auto kind = load<std::uint8_t>(p + 45);
  h.record_bytes = load<std::uint64_t>(p + 48);
  h.piece = load<std::uint32_t>(p + 56);
  h.tag = load<std::uint32_t>(p + 60);
  if (h.table_stored_bytes > block.size() - kBytes) {
    throw Error(ErrorCode::kTruncated, "the record table of the block is cut short");
  }
  check_crc("block header", load<std::uint32_t>(p + 4),
            crc32c(block.subspan(8, kBytes - 8 + h.table_stored_bytes)));
  if (h.block_bytes < kBytes || h.block_bytes > kMaxBlockBytes)
    corrupt("block header: size out of range");
  if (h.slots_offset < kBytes + h.table_stored_bytes || h.slots_offset > h.block_bytes) {
    corrupt("block header: slots start out of range");
  }
  if (h.slots == 0 || h.slots > (h.block_bytes - h.slots_offset) / SlotPrefix::kBytes) {
    corrupt("block header: more slots than the block can hold");
  }
  if (h.table_raw_bytes > kMaxBlockBytes) corrupt("block header: record table too large");
  if (codec > 1) corrupt("block header: unknown codec of the record table");
  if (codec == 0 && h.table_raw_bytes != h.table_stored_bytes)
    corrupt("block header: sizes of the record table differ");
  if (kind > 3) corrupt(fmt::format("block header: unknown kind {}", kind));
  if (!all_zero(block.subspan(46, 2))) corrupt("block header: reserved bytes are not zero");
  h.table_codec = static_cast<Codec>(codec);
  h.kind = static_cast<BlockKind>(kind);
  if (is_piece(h.kind) != (h.record_bytes != 0))
    corrupt("block header: record size contradicts the kind");
  if (h.kind != BlockKind::kRecords && h.slots != 1)
    corrupt("block header: a block of this kind has one slot");
  if ((h.kind == BlockKind::kNextPiece) != (h.piece != 0))
    corrupt("block header: piece number contradicts the kind");
  return h;
}

std::optional<BlockHeader::Glance> BlockHeader::glance(ByteView front) noexcept {
  if (as_text(front.first(kBlockMagic.size())) != kBlockMagic) return std::nullopt;
  const std::byte* p = front.data();
  Glance glance{};
  glance.number = load<std::uint64_t>(p + 8);
  glance.front_bytes = kBytes + std::uint64_t{load<std::uint32_t>(p + 36)};
  glance.block_bytes = load<std::uint32_t>(p + 24);
  glance.tag = load<std::uint32_t>(p + 60);
  return glance;
}

// --- SlotPrefix

void SlotPrefix::encode(std::byte* to) const noexcept {
  store(to, crc32c);
  store(to + 4, codec);
  store(to + 5, std::uint8_t{0});
  store(to + 6, pad_bytes);
  store(to + 8, key_hash);
}

SlotPrefix SlotPrefix::decode(const std::byte* from) noexcept {
  SlotPrefix p;
  p.crc32c = load<std::uint32_t>(from);
  p.codec = static_cast<Codec>(load<std::uint8_t>(from + 4));
  p.pad_bytes = load<std::uint16_t>(from + 6);
  p.key_hash = load<std::uint64_t>(from + 8);
  return p;
}

std::uint32_t SlotPrefix::checksum(std::uint32_t stored_crc32c) const noexcept {
  std::byte bytes[kBytes];
  encode(bytes);
  return sml::crc32c(ByteView(bytes).subspan(4), stored_crc32c);
}

// --- BlockRow

void BlockRow::encode(std::byte* to) const noexcept {
  std::memset(to, 0, kBytes);
  store(to, first_record);
  store(to + 8, slots);
  store(to + 12, slots_offset);
  store(to + 16, crc32c);
  store(to + 20, kind);
  store(to + 24, xxh3.low);
  store(to + 32, xxh3.high);
}

BlockRow BlockRow::decode(const std::byte* from) noexcept {
  BlockRow r;
  r.first_record = load<std::uint64_t>(from);
  r.slots = load<std::uint32_t>(from + 8);
  r.slots_offset = load<std::uint32_t>(from + 12);
  r.crc32c = load<std::uint32_t>(from + 16);
  r.kind = static_cast<BlockKind>(load<std::uint8_t>(from + 20));
  r.xxh3.low = load<std::uint64_t>(from + 24);
  r.xxh3.high = load<std::uint64_t>(from + 32);
  return r;
}

// --- FooterHeader, SectionRow

void FooterHeader::encode(std::byte* to) const noexcept {
  std::memset(to, 0, kBytes);
  store(to, sections);
  store(to + 8, records);
  store(to + 16, samples);
  store(to + 24, blocks);
  store(to + 32, raw_bytes);
  store(to + 40, stored_bytes);
  store(to + 48, key_bytes);
}

FooterHeader FooterHeader::decode(const std::byte* from) noexcept {
  FooterHeader f;
  f.sections = load<std::uint32_t>(from);
  f.records = load<std::uint64_t>(from + 8);
  f.samples = load<std::uint64_t>(from + 16);
  f.blocks = load<std::uint64_t>(from + 24);
  f.raw_bytes = load<std::uint64_t>(from + 32);
  f.stored_bytes = load<std::uint64_t>(from + 40);
  f.key_bytes = load<std::uint64_t>(from + 48);
  return f;
}

void SectionRow::encode(std::byte* to) const noexcept {
  std::memset(to, 0, kBytes);
  store(to, id);
  store(to + 4, parameter);
  store(to + 8, offset);
  store(to + 16, bytes);
}

SectionRow SectionRow::decode(const std::byte* from) noexcept {
  SectionRow s;
  s.id = static_cast<SectionId>(load<std::uint32_t>(from));
  s.parameter = load<std::uint32_t>(from + 4);
  s.offset = load<std::uint64_t>(from + 8);
  s.bytes = load<std::uint64_t>(from + 16);
  return s;
}

// --- Tail

std::array<std::byte, Tail::kBytes> Tail::encode() const {
  std::array<std::byte, kBytes> out{};
  put(out, 0, footer_offset);
  put(out, 8, footer_bytes);
  put(out, 16, container_bytes);
  put(out, 24, id.low);
  put(out, 32, id.high);
  put(out, 40, footer_crc32c);
  put(out, 44, version);
  put(out, 52, crc32c(ByteView(out).first(52)));
  std::memcpy(out.data() + 56, kTailMagic.data(), kTailMagic.size());
  return out;
}

Tail Tail::decode(ByteView bytes) {
  if (as_text(bytes.subspan(56, 8)) != kTailMagic) {
    throw Error(ErrorCode::kTruncated,
                "the container has no tail: it was cut short or never sealed");
  }
  Tail t;
  t.version = load<std::uint32_t>(bytes.data() + 44);
  check_version("tail", t.version);
  check_crc("tail", load<std::uint32_t>(bytes.data() + 52), crc32c(bytes.first(52)));
  t.footer_offset = load<std::uint64_t>(bytes.data());
  t.footer_bytes = load<std::uint64_t>(bytes.data() + 8);
  t.container_bytes = load<std::uint64_t>(bytes.data() + 16);
  t.id.low = load<std::uint64_t>(bytes.data() + 24);
  t.id.high = load<std::uint64_t>(bytes.data() + 32);
  t.footer_crc32c = load<std::uint32_t>(bytes.data() + 40);
  if (!all_zero(bytes.subspan(48, 4))) corrupt("tail: reserved bytes are not zero");
  return t;
}

}  // namespace sml
