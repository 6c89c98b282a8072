#include "smlformat/index.h"

#include <algorithm>

#include <fmt/format.h>

#include "key_table.h"
#include "name_pages.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlformat/permutation.h"
#include "smlformat/succinct.h"

namespace sml {
namespace {

[[noreturn]] void corrupt(const std::string& what) {
  throw Error(ErrorCode::kCorrupt, "index: " + what);
}

constexpr std::uint32_t kMaxSections = 1024;

unsigned number_bits(std::uint64_t records) noexcept {
  return records < 2 ? 0 : static_cast<unsigned>(std::bit_width(records - 1));
}

// The section rows of a footer, checked against its bounds.
class Sections {
 public:
  Sections(ByteView footer, std::uint32_t count) : footer_(footer) {
    const std::uint64_t rows_end = FooterHeader::kBytes + std::uint64_t{count} * SectionRow::kBytes;
    if (count > kMaxSections || rows_end > footer.size())
      corrupt(fmt::format("{} sections do not fit", count));
    std::uint64_t end = rows_end;
    for (std::uint32_t i = 0; i < count; ++i) {
      const SectionRow row =
          SectionRow::decode(footer.data() + FooterHeader::kBytes + i * SectionRow::kBytes);
      if (row.offset < end || row.offset % kSectionAlign != 0 || row.offset > footer.size() ||
          row.bytes > footer.size() - row.offset) {
        corrupt(fmt::format("section {} lies out of bounds", static_cast<std::uint32_t>(row.id)));
      }
      if (find(row.id) != nullptr)
        corrupt(fmt::format("section {} is double", static_cast<std::uint32_t>(row.id)));
      end = row.offset + row.bytes;
      rows_.push_back(row);
    }
  }

  bool has(SectionId id) const noexcept { return find(id) != nullptr; }
  ByteView get(SectionId id) const {
    const SectionRow* row = find(id);
    if (row == nullptr)
      corrupt(fmt::format("section {} is missing", static_cast<std::uint32_t>(id)));
    return footer_.subspan(row->offset, row->bytes);
  }
  std::uint64_t bytes(SectionId id) const noexcept {
    const SectionRow* row = find(id);
    return row == nullptr ? 0 : row->bytes;
  }

 private:
  const SectionRow* find(SectionId id) const noexcept {
    const auto at =
        std::find_if(rows_.begin(), rows_.end(), [id](const SectionRow& r) { return r.id == id; });
    return at == rows_.end() ? nullptr : &*at;
  }

  ByteView footer_;
  std::vector<SectionRow> rows_;
};

}  // namespace

Header header_in_footer(ByteView footer) {
  if (footer.size() < FooterHeader::kBytes) corrupt("footer is too short");
  const Sections sections(footer, FooterHeader::decode(footer.data()).sections);
  const ByteView header = sections.get(SectionId::kHeader);
  if (header.size() != Header::kBytes) corrupt("the copy of the header has a wrong size");
  return Header::decode(header);
}

struct Index::Parts {
  std::uint64_t blocks_end = 0;
  const std::byte* block_offsets = nullptr;
  const std::byte* block_rows = nullptr;
  ByteView dictionary;
  EliasFano places;
  std::optional<EliasFano> raw_sums;
  ByteView name_pages;
  EliasFano name_page_ends;
  std::unique_ptr<Dictionary> name_dictionary;
  KeyTable key_table;
  PackedInts rank_to_number;
  PackedInts number_to_rank;
  BitVector name_samples;
  BitVector pack_samples;
  Permutation permutation{0, {}};
};

Index::~Index() = default;
Index::Index(Index&&) noexcept = default;

Index::Index(ByteView footer, const Header& header, std::uint64_t footer_offset)
    : header_(header), parts_(std::make_unique<Parts>()) {
  if (footer.size() < FooterHeader::kBytes) corrupt("footer is too short");
  counts_ = FooterHeader::decode(footer.data());
  const std::uint64_t n = counts_.records;
  if (n > kMaxRecords) corrupt(fmt::format("{} records are more than a container holds", n));
  if (counts_.samples > n || (n > 0 && counts_.samples == 0))
    corrupt("the number of samples is wrong");
  const Sections sections(footer, counts_.sections);
  Parts& p = *parts_;
  p.blocks_end = footer_offset;
  const auto encoded_header = header.encode();
  if (!std::ranges::equal(sections.get(SectionId::kHeader), encoded_header))
    corrupt("it belongs to a container with another header");

  const ByteView offsets = sections.get(SectionId::kBlockOffsets);
  const ByteView rows = sections.get(SectionId::kBlockRows);
  if (counts_.blocks > footer.size() ||
      offsets.size() != (counts_.blocks + 1) * sizeof(std::uint64_t) ||
      rows.size() != counts_.blocks * BlockRow::kBytes) {
    corrupt("the block table has a wrong size");
  }
  p.block_offsets = offsets.data();
  p.block_rows = rows.data();
  check_blocks();

  if (sections.has(SectionId::kDictionary)) p.dictionary = sections.get(SectionId::kDictionary);
  const bool dictionary_block = counts_.blocks > 0 && block(0).kind == BlockKind::kDictionary;
  if (dictionary_block == p.dictionary.empty() || p.dictionary.size() > kMaxDictionaryBytes)
    corrupt("the dictionary is missing, needless or too large");

  p.places = EliasFano(sections.get(SectionId::kPlaces));
  if (p.places.size() != n) corrupt("the number of places is wrong");
  if (sections.has(SectionId::kRawSizes)) {
    p.raw_sums = EliasFano(sections.get(SectionId::kRawSizes));
    if (p.raw_sums->size() != n) corrupt("the number of raw sizes is wrong");
  }

  p.name_pages = sections.get(SectionId::kNamePages);
  p.name_page_ends = EliasFano(sections.get(SectionId::kNamePageEnds));
  if (p.name_page_ends.size() != (n + kNamePageKeys - 1) / kNamePageKeys) {
    corrupt("the number of name pages is wrong");
  }
  const std::uint64_t pages = p.name_page_ends.size();
  if (p.name_pages.size() != (pages == 0 ? 0 : p.name_page_ends[pages - 1]))
    corrupt("the last name page does not end with its section");
  if (sections.has(SectionId::kNameDictionary)) {
    const ByteView bytes = sections.get(SectionId::kNameDictionary);
    if (bytes.size() > kMaxDictionaryBytes) corrupt("the name dictionary is too large");
    try {
      p.name_dictionary = std::make_unique<Dictionary>(Bytes(bytes.begin(), bytes.end()), 0);
    } catch (const Error& e) {
      throw e.within("index: name dictionary");
    }
  }
  p.key_table =
      KeyTable(sections.get(SectionId::kKeyBuckets), sections.get(SectionId::kKeyTable), n);

  const auto belong = [&sections](SectionId a, SectionId b, bool wanted) {
    if (sections.has(a) != wanted || sections.has(b) != wanted) {
      corrupt(fmt::format("sections {} and {} are {}", static_cast<std::uint32_t>(a),
                          static_cast<std::uint32_t>(b), wanted ? "missing" : "needless"));
    }
  };
  belong(SectionId::kRankToNumber, SectionId::kNumberToRank, header.order == PackOrder::kInput);
  belong(SectionId::kNameSamples, SectionId::kPackSamples, header.grouping == Grouping::kStem);
  if (header.order == PackOrder::kInput) {
    const unsigned bits = number_bits(n);
    p.rank_to_number = PackedInts(sections.get(SectionId::kRankToNumber), n, bits);
    p.number_to_rank = PackedInts(sections.get(SectionId::kNumberToRank), n, bits);
  }
  if (header.grouping == Grouping::kStem) {
    p.name_samples = BitVector(sections.get(SectionId::kNameSamples));
    p.pack_samples = BitVector(sections.get(SectionId::kPackSamples));
    for (const BitVector* v : {&p.name_samples, &p.pack_samples}) {
      if (v->size() != n || v->ones() != counts_.samples || (n > 0 && !(*v)[0])) {
        corrupt("the sample bounds are wrong");
      }
    }
  } else if (counts_.samples != n) {
    corrupt("the number of samples is wrong");
  }
  if (header.order == PackOrder::kRandom) {
    p.permutation = Permutation(counts_.samples, {PermutationUse::kPack, header.seed, 0, 0});
  }

  const auto part = [&sections](std::initializer_list<SectionId> ids) {
    std::uint64_t sum = 0;
    for (const SectionId id : ids) sum += sections.bytes(id);
    return sum;
  };
  bytes_.places = part({SectionId::kPlaces});
  bytes_.raw_sizes = part({SectionId::kRawSizes});
  bytes_.names =
      part({SectionId::kNamePages, SectionId::kNamePageEnds, SectionId::kNameDictionary});
  bytes_.key_table = part({SectionId::kKeyBuckets, SectionId::kKeyTable});
  bytes_.ranks = part({SectionId::kRankToNumber, SectionId::kNumberToRank});
  bytes_.samples = part({SectionId::kNameSamples, SectionId::kPackSamples});
  bytes_.blocks = part({SectionId::kBlockOffsets, SectionId::kBlockRows});
  bytes_.dictionary = part({SectionId::kDictionary});
  bytes_.total = footer.size();
}

void Index::check_blocks() const {
  std::uint64_t offset = header_.header_bytes;
  std::uint64_t first_record = 0;
  for (std::uint64_t b = 0; b < counts_.blocks; ++b) {
    const BlockRow row = block(b);
    const std::uint64_t begin = block_offset(b);
    const std::uint64_t end = block_offset(b + 1);
    const auto kind = static_cast<std::uint8_t>(row.kind);
    if (begin != offset || end <= begin || end - begin > header_.block_bytes) {
      corrupt(fmt::format("block {} lies out of bounds", b));
    }
    if (row.slots_offset < BlockHeader::kBytes || row.slots_offset > end - begin ||
        row.slots == 0 || row.slots > (end - begin - row.slots_offset) / SlotPrefix::kBytes ||
        kind > 3) {
      corrupt(fmt::format("the row of block {} is damaged", b));
    }
    if (row.first_record != first_record)
      corrupt(fmt::format("block {} starts with a wrong record", b));
    if (row.kind == BlockKind::kDictionary && b != 0)
      corrupt("a dictionary that is not the first block");
    if (row.kind == BlockKind::kNextPiece && (b == 0 || !is_piece(block(b - 1).kind))) {
      corrupt(fmt::format("block {} continues no record", b));
    }
    if (row.kind != BlockKind::kRecords && row.slots != 1)
      corrupt(fmt::format("block {} has too many slots", b));
    if (starts_records(row.kind)) first_record += row.slots;
    offset = end;
  }
  if (first_record != counts_.records) corrupt("the blocks hold another number of records");
  // Padding up to the footer's boundary follows the last block.
  if (block_offset(counts_.blocks) != offset || offset > parts_->blocks_end ||
      parts_->blocks_end - offset >= kFooterAlign) {
    corrupt("the blocks end in a wrong place");
  }
}

ByteView Index::dictionary() const noexcept { return parts_->dictionary; }

// --- names

void Index::read_page(std::uint64_t page, std::uint32_t wanted, NamePage& out) const {
  const Parts& p = *parts_;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (page == 0) {
    end = p.name_page_ends[0];
  } else {
    std::tie(begin, end) = p.name_page_ends.pair(page - 1);
  }
  if (begin >= end || end > p.name_pages.size()) corrupt("a name page lies out of bounds");
  const ByteView stored = p.name_pages.subspan(begin + 1, end - begin - 1);
  const auto codec = static_cast<Codec>(p.name_pages[begin]);
  out.count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(kNamePageKeys, counts_.records - page * kNamePageKeys));
  wanted = std::min(wanted, out.count);
  if (codec == Codec::kStored)
    return decode_name_page(stored, out.count, wanted, out.keys, out.ends);

  if (stored.size() < sizeof(std::uint16_t)) corrupt("a name page is too short");
  const std::uint64_t raw_bytes = load<std::uint16_t>(stored.data());
  std::byte near[2048];  // enough for nearly all
  Buffer far;
  MutableBytes raw(near);
  if (raw_bytes > raw.size()) {
    far.resize(raw_bytes);
    raw = far;
  }
  raw = raw.first(raw_bytes);
  Decoder::local().decode(codec, stored.subspan(sizeof(std::uint16_t)), p.name_dictionary.get(),
                          raw);
  decode_name_page(raw, out.count, wanted, out.keys, out.ends);
}

void Index::key_at_rank(std::uint64_t rank, std::string& key) const {
  thread_local NamePage page;
  const std::uint32_t i = rank % kNamePageKeys;
  read_page(rank / kNamePageKeys, i + 1, page);
  key.assign(page[i]);
}

std::optional<std::uint64_t> Index::find(std::string_view key) const {
  std::optional<std::uint64_t> found;
  if (!is_valid_key(key)) return found;
  parts_->key_table.find(key_hash(key), [&](std::uint64_t number) {
    const std::uint64_t rank = rank_of(number);
    const std::uint32_t i = rank % kNamePageKeys;
    thread_local NamePage page;
    read_page(rank / kNamePageKeys, i + 1, page);
    if (page[i] != key) return false;
    found = number;
    return true;
  });
  return found;
}

std::uint64_t Index::lower_bound(std::string_view key) const {
  std::uint64_t low = 0;
  std::uint64_t high = counts_.records;
  std::string middle_key;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    key_at_rank(middle, middle_key);
    if (compare_names(middle_key, key) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Index::NameCursor::NameCursor(const Index& index, std::uint64_t rank)
    : index_(&index), rank_(rank) {
  if (!done()) load_page();
}

void Index::NameCursor::advance() {
  ++rank_;
  if (done()) return;
  if (rank_ % kNamePageKeys == 0) return load_page();
  key_ = page_[rank_ % kNamePageKeys];
}

void Index::NameCursor::load_page() {
  index_->read_page(rank_ / kNamePageKeys, kNamePageKeys, page_);
  key_ = page_[rank_ % kNamePageKeys];
}

// --- number <-> rank

std::uint64_t Index::rank_of(std::uint64_t number) const {
  const Parts& p = *parts_;
  std::uint64_t rank = number;
  if (header_.order == PackOrder::kInput) {
    rank = p.number_to_rank[number];
  } else if (header_.order == PackOrder::kRandom) {
    if (header_.grouping == Grouping::kNone) return p.permutation.invert(number);
    const std::uint64_t sample = sample_of(number);
    rank = p.name_samples.select(p.permutation.invert(sample)) +
           (number - p.pack_samples.select(sample));
  }
  if (rank >= counts_.records)
    corrupt(fmt::format("the rank of record {} is out of range", number));
  return rank;
}

std::uint64_t Index::number_of(std::uint64_t rank) const {
  const Parts& p = *parts_;
  std::uint64_t number = rank;
  if (header_.order == PackOrder::kInput) {
    number = p.rank_to_number[rank];
  } else if (header_.order == PackOrder::kRandom) {
    if (header_.grouping == Grouping::kNone) return p.permutation.apply(rank);
    const std::uint64_t sample = p.name_samples.rank(rank + 1) - 1;
    number =
        p.pack_samples.select(p.permutation.apply(sample)) + (rank - p.name_samples.select(sample));
  }
  if (number >= counts_.records)
    corrupt(fmt::format("the number of rank {} is out of range", rank));
  return number;
}

// --- samples

NumberRange Index::sample(std::uint64_t sample) const noexcept {
  if (header_.grouping == Grouping::kNone) return {sample, sample + 1};
  return {parts_->pack_samples.select(sample), parts_->pack_samples.select(sample + 1)};
}

std::uint64_t Index::sample_of(std::uint64_t number) const noexcept {
  if (header_.grouping == Grouping::kNone) return number;
  return parts_->pack_samples.rank(number + 1) - 1;
}

bool Index::starts_sample(std::uint64_t rank) const noexcept {
  return header_.grouping == Grouping::kNone || parts_->name_samples[rank];
}

// --- places and sizes

Place Index::place(std::uint64_t number) const {
  const auto damaged = [number] {
    corrupt(fmt::format("the place of record {} is out of range", number));
  };
  // First, so that the processor waits for memory while it searches.
  std::uint64_t next = 0;
  Place place;
  if (number + 1 < counts_.records) {
    std::tie(place.offset, next) = parts_->places.pair(number);
  } else {
    place.offset = parts_->places[number];
  }
  // The last block that starts with this record or an earlier one holds it. Without branches: which
  // half comes next cannot be foretold.
  std::uint64_t low = 0;
  for (std::uint64_t left = counts_.blocks; left > 1;) {
    const std::uint64_t half = left / 2;
    const auto first = load<std::uint64_t>(parts_->block_rows + (low + half) * BlockRow::kBytes);
    low += first <= number ? half : 0;
    left -= half;
  }
  const BlockRow row = block(low);
  const std::uint64_t begin = block_offset(low);
  place.block = low;
  const bool last = number + 1 >= row.first_record + row.slots;
  const std::uint64_t end = last ? block_offset(low + 1) : next;
  if (place.offset < begin + row.slots_offset || end > block_offset(low + 1) ||
      place.offset > end || end - place.offset < SlotPrefix::kBytes) {
    damaged();
  }
  place.slot_bytes = end - place.offset;
  if (row.kind == BlockKind::kFirstPiece) {
    while (low + place.pieces < counts_.blocks &&
           block(low + place.pieces).kind == BlockKind::kNextPiece) {
      ++place.pieces;
    }
  } else if (row.kind != BlockKind::kRecords) {
    damaged();
  }
  return place;
}

std::uint64_t Index::raw_bytes(std::uint64_t number) const {
  const Parts& p = *parts_;
  std::uint64_t before = 0;
  std::uint64_t sum = 0;
  if (!p.raw_sums) {
    sum = place(number).slot_bytes - SlotPrefix::kBytes;
  } else if (number == 0) {
    sum = (*p.raw_sums)[0];
  } else {
    std::tie(before, sum) = p.raw_sums->pair(number - 1);
  }
  if (sum < before || sum > counts_.raw_bytes)
    corrupt(fmt::format("the size of record {} is out of range", number));
  const std::uint64_t bytes = sum - before;
  // What is not larger than a piece needs no look at the blocks.
  if (bytes > header_.piece_bytes) {
    const std::uint64_t wanted = pieces_of(bytes, header_.piece_bytes);
    if (const std::uint64_t pieces = place(number).pieces; pieces != wanted) {
      corrupt(fmt::format("the size of record {} makes {} pieces, there are {}", number, wanted,
                          pieces));
    }
  }
  return bytes;
}

// --- blocks

std::uint64_t Index::block_offset(std::uint64_t block) const noexcept {
  return load<std::uint64_t>(parts_->block_offsets + block * sizeof(std::uint64_t));
}

BlockRow Index::block(std::uint64_t block) const noexcept {
  return BlockRow::decode(parts_->block_rows + block * BlockRow::kBytes);
}

NumberRange Index::block_samples(std::uint64_t block) const noexcept {
  const std::uint64_t first = this->block(block).first_record;
  const std::uint64_t last =
      block + 1 < counts_.blocks ? this->block(block + 1).first_record : counts_.records;
  if (header_.grouping == Grouping::kNone) return {first, last};
  return {parts_->pack_samples.rank(first), parts_->pack_samples.rank(last)};
}

}  // namespace sml
