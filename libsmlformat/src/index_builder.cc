#include "index_builder.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "key_table.h"
#include "name_pages.h"
#include "smlformat/codec.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlformat/permutation.h"
#include "smlformat/succinct.h"

namespace sml {
namespace {

// A dictionary for name pages: worth training from this many keys on, from at most so many pages.
constexpr std::uint64_t kMinKeysForDictionary = 1024;
constexpr std::uint64_t kMaxSamplePages = 4096;
constexpr std::size_t kMaxNameDictionaryBytes = 16U << 10;
constexpr CompressionOptions kNamePageCompression{CompressionOptions::Mode::kZstd,
                                                  kDefaultZstdLevel};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what);
}

struct NameSections {
  Bytes pages;
  Bytes page_ends;
  Bytes dictionary;
  std::uint64_t key_bytes = 0;
};

// The stored form of a page: codec, raw size where compressed, bytes.
void put_page(Bytes& out, ByteView raw, Encoder* encoder) {
  Encoded page{Codec::kStored, raw};
  if (encoder != nullptr && raw.size() <= 0xffff) page = encoder->encode(raw);
  out.push_back(static_cast<std::byte>(page.codec));
  if (page.codec != Codec::kStored) {
    const auto size = static_cast<std::uint16_t>(raw.size());
    out.push_back(static_cast<std::byte>(size & 0xff));
    out.push_back(static_cast<std::byte>(size >> 8));
  }
  out.insert(out.end(), page.stored.begin(), page.stored.end());
}

std::shared_ptr<const Dictionary> train_name_dictionary(const NameList& names) {
  const std::uint64_t n = names.size();
  if (n < kMinKeysForDictionary) return nullptr;
  const std::uint64_t pages = n / kNamePageKeys;
  const std::uint64_t stride = std::max<std::uint64_t>(1, pages / kMaxSamplePages);
  Bytes sample;
  std::vector<std::size_t> sizes;
  NamePageBuilder builder;
  for (std::uint64_t page = 0; page < pages; page += stride) {
    for (std::uint64_t i = 0; i < kNamePageKeys; ++i)
      builder.add(names.key(page * kNamePageKeys + i));
    const Bytes raw = builder.take();
    sample.insert(sample.end(), raw.begin(), raw.end());
    sizes.push_back(raw.size());
  }
  const std::size_t limit =
      std::min<std::size_t>(kMaxNameDictionaryBytes, std::max<std::size_t>(256, sample.size() / 8));
  std::optional<Bytes> bytes = Dictionary::train(sample, sizes, limit);
  if (!bytes) return nullptr;
  auto dictionary = std::make_shared<const Dictionary>(std::move(*bytes), kDefaultZstdLevel);

  // Kept where it gains more than it takes, judged by the pages it was trained on.
  Encoder encoder(kNamePageCompression, dictionary);
  std::uint64_t compressed = 0;
  ByteView rest = sample;
  for (const std::size_t size : sizes) {
    compressed += encoder.encode(rest.first(size)).stored.size();
    rest = rest.subspan(size);
  }
  const std::uint64_t gain =
      (sample.size() - std::min<std::uint64_t>(compressed, sample.size())) * stride;
  return gain > dictionary->bytes().size() ? dictionary : nullptr;
}

NameSections build_names(const NameList& names) {
  NameSections out;
  const std::shared_ptr<const Dictionary> dictionary = train_name_dictionary(names);
  std::optional<Encoder> encoder;
  if (dictionary) {
    encoder.emplace(kNamePageCompression, dictionary);
    out.dictionary.assign(dictionary->bytes().begin(), dictionary->bytes().end());
  }
  std::vector<std::uint64_t> ends;
  ends.reserve(names.size() / kNamePageKeys + 1);
  NamePageBuilder builder;
  std::string previous;
  for (std::uint64_t rank = 0; rank < names.size(); ++rank) {
    const std::string_view key = names.key(rank);
    check_key(key);
    if (rank > 0 && compare_names(previous, key) >= 0) {
      refuse(fmt::format("names are not sorted, or double, at rank {}", rank));
    }
    previous.assign(key);
    out.key_bytes += key.size();
    builder.add(key);
    if (builder.full() || rank + 1 == names.size()) {
      put_page(out.pages, builder.take(), encoder ? &*encoder : nullptr);
      ends.push_back(out.pages.size());
    }
  }
  out.page_ends = EliasFano::encode(ends);
  return out;
}

std::vector<bool> stems_in_name_order(const NameList& names) {
  std::vector<bool> starts(names.size());
  std::string previous;
  for (std::uint64_t rank = 0; rank < names.size(); ++rank) {
    const std::string_view stem = key_stem(names.key(rank));
    starts[rank] = rank == 0 || stem != previous;
    previous.assign(stem);
  }
  return starts;
}

class FooterAssembler {
 public:
  void add(SectionId id, Bytes bytes) { sections_.emplace_back(id, std::move(bytes)); }

  Bytes assemble(FooterHeader& counts) const {
    counts.sections = static_cast<std::uint32_t>(sections_.size());
    std::vector<SectionRow> rows;
    std::uint64_t end = FooterHeader::kBytes + sections_.size() * SectionRow::kBytes;
    for (const auto& [id, bytes] : sections_) {
      SectionRow row;
      row.id = id;
      row.offset = round_up(end, kSectionAlign);
      row.bytes = bytes.size();
      end = row.offset + row.bytes;
      rows.push_back(row);
    }
    Bytes footer;
    footer.reserve(round_up(end, kSectionAlign));
    footer.resize(FooterHeader::kBytes + rows.size() * SectionRow::kBytes);
    counts.encode(footer.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].encode(footer.data() + FooterHeader::kBytes + i * SectionRow::kBytes);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      footer.resize(rows[i].offset);
      footer.insert(footer.end(), sections_[i].second.begin(), sections_[i].second.end());
    }
    footer.resize(round_up(end, kSectionAlign));
    return footer;
  }

 private:
  std::vector<std::pair<SectionId, Bytes>> sections_;
};

Bytes raw_copy(std::span<const std::uint64_t> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Bytes build_footer(const IndexInput& in, FooterHeader& counts) {
  const std::uint64_t n = in.hashes.size();
  if (in.names.size() != n) refuse(fmt::format("{} names for {} records", in.names.size(), n));
  const bool grouped = in.header.grouping == Grouping::kStem;
  if (grouped && in.sample_starts.size() != n) refuse("sample bounds are missing");

  FooterAssembler footer;
  footer.add(SectionId::kBlockOffsets, raw_copy(in.block_offsets));
  Bytes rows(in.rows.size() * BlockRow::kBytes);
  for (std::size_t i = 0; i < in.rows.size(); ++i)
    in.rows[i].encode(rows.data() + i * BlockRow::kBytes);
  footer.add(SectionId::kBlockRows, std::move(rows));
  footer.add(SectionId::kPlaces, EliasFano::encode(in.places));
  if (!in.raw_sizes_follow) footer.add(SectionId::kRawSizes, EliasFano::encode(in.raw_sums));

  NameSections names = build_names(in.names);
  footer.add(SectionId::kNamePages, std::move(names.pages));
  footer.add(SectionId::kNamePageEnds, std::move(names.page_ends));
  if (!names.dictionary.empty())
    footer.add(SectionId::kNameDictionary, std::move(names.dictionary));
  KeyTableSections table = KeyTable::encode(in.hashes);
  footer.add(SectionId::kKeyBuckets, std::move(table.buckets));
  footer.add(SectionId::kKeyTable, std::move(table.rows));

  if (in.header.order == PackOrder::kInput) {
    std::vector<std::uint32_t> to_number(n);
    std::vector<std::uint32_t> to_rank(n);
    for (std::uint64_t rank = 0; rank < n; ++rank) {
      const std::uint64_t number = in.names.number(rank);
      if (number >= n) refuse(fmt::format("rank {} has number {} of {}", rank, number, n));
      to_number[rank] = static_cast<std::uint32_t>(number);
      to_rank[number] = static_cast<std::uint32_t>(rank);
    }
    const unsigned bits = n < 2 ? 0 : static_cast<unsigned>(std::bit_width(n - 1));
    footer.add(SectionId::kRankToNumber, PackedInts::encode(to_number, bits));
    footer.add(SectionId::kNumberToRank, PackedInts::encode(to_rank, bits));
  }
  counts.samples = n;
  if (grouped) {
    const std::vector<bool> by_name = stems_in_name_order(in.names);
    counts.samples = static_cast<std::uint64_t>(std::count(by_name.begin(), by_name.end(), true));
    footer.add(SectionId::kNameSamples, BitVector::encode(by_name));
    footer.add(SectionId::kPackSamples, BitVector::encode(in.sample_starts));
  }
  const auto header = in.header.encode();
  footer.add(SectionId::kHeader, {header.begin(), header.end()});
  if (!in.dictionary.empty())
    footer.add(SectionId::kDictionary, {in.dictionary.begin(), in.dictionary.end()});
  counts.records = n;
  counts.blocks = in.rows.size();
  counts.raw_bytes = n == 0 ? 0 : in.raw_sums.back();
  counts.stored_bytes = in.stored_bytes;
  counts.key_bytes = names.key_bytes;
  Bytes bytes = footer.assemble(counts);

  // The finished index must lead from every name to the record that has it.
  const std::uint64_t footer_offset = round_up(in.block_offsets.back(), kFooterAlign);
  const Index index(bytes, in.header, footer_offset);
  for (std::uint64_t rank = 0; rank < n; ++rank) {
    if (in.hashes[index.number_of(rank)] != key_hash(in.names.key(rank))) {
      refuse(fmt::format("the name at rank {} is not that of its record", rank));
    }
  }
  return bytes;
}

}  // namespace sml
