#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "smlformat/block.h"
#include "smlformat/container_reader.h"
#include "smlformat/container_writer.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlformat/permutation.h"
#include "support/read_container.h"

namespace {

using sml::Bytes;
using sml::ByteView;
using sml::test::Records;

// Names given as pairs (key, number).
class TestNames final : public sml::NameList {
 public:
  explicit TestNames(std::vector<std::pair<std::string, std::uint64_t>> names)
      : names_(std::move(names)) {}
  std::uint64_t size() const override { return names_.size(); }
  std::string_view key(std::uint64_t rank) const override { return names_[rank].first; }
  std::uint64_t number(std::uint64_t rank) const override { return names_[rank].second; }

 private:
  std::vector<std::pair<std::string, std::uint64_t>> names_;
};

// A container of small stored records, given in pack order, a few to a block.
Bytes container_of(const Records& records, sml::Header header, std::size_t records_per_block) {
  sml::MemorySink sink;
  sml::ContainerWriter writer(sink, header);
  std::vector<std::pair<std::string, std::uint64_t>> names;
  for (std::size_t first = 0; first < records.size(); first += records_per_block) {
    std::vector<sml::EncodedRecord> block;
    for (std::size_t i = first; i < std::min(records.size(), first + records_per_block); ++i) {
      sml::EncodedRecord r;
      r.key = records[i].first;
      r.key_hash = sml::key_hash(r.key);
      r.raw_bytes = records[i].second.size();
      r.stored = sml::as_bytes(records[i].second);
      r.stored_crc32c = sml::crc32c(r.stored);
      block.push_back(r);
      names.emplace_back(records[i].first, i);
    }
    writer.append(sml::build_block(writer.header(), writer.blocks(), first, block));
  }
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return sml::compare_names(a.first, b.first) < 0; });
  writer.seal(TestNames(names));
  return sink.bytes();
}

sml::Header input_order() {
  sml::Header header;
  header.order = sml::PackOrder::kInput;
  return header;
}

const Records kRecords = {{"b/2.txt", "second"},
                          {"a/1.txt", "first"},
                          {"empty", ""},
                          {"z", std::string(300, 'z')},
                          {"a/1.cls", "7"}};

}  // namespace

TEST_CASE("an empty container is valid") {
  const Bytes bytes = container_of({}, input_order(), 2);
  CHECK(sml::test::read_records(bytes).empty());
  // header, padding to 4096, footer, tail
  CHECK(bytes.size() > 4096);
}

TEST_CASE("records come back by number and by name, in input order") {
  const Bytes bytes = container_of(kRecords, input_order(), 2);
  CHECK(sml::test::read_records(bytes) == kRecords);
  const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  const sml::Index& index = reader.index();
  CHECK(index.blocks() == 3);
  CHECK_FALSE(index.find("a/1"));
  CHECK_FALSE(index.find(""));
  std::vector<std::string> names;
  std::vector<std::uint64_t> numbers;
  for (sml::Index::NameCursor cursor(index, 0); !cursor.done(); cursor.advance()) {
    names.emplace_back(cursor.key());
    numbers.push_back(index.number_of(cursor.rank()));
  }
  // by stem: a/1, a/1, b/2, empty, z
  CHECK(names == std::vector<std::string>{"a/1.cls", "a/1.txt", "b/2.txt", "empty", "z"});
  CHECK(numbers == std::vector<std::uint64_t>{4, 1, 0, 2, 3});
  CHECK(index.lower_bound("a/1.txt") == 1);
  CHECK(index.lower_bound("a/1.txu") == 2);
  CHECK(index.lower_bound("zz") == 5);
  CHECK(index.counts().raw_bytes == 6 + 5 + 0 + 300 + 1);
}

TEST_CASE("the keyed permutation leads from rank to number in random order") {
  sml::Header header;
  header.order = sml::PackOrder::kRandom;
  header.seed = 5;
  Records by_name;
  for (int i = 100; i < 400; ++i)
    by_name.emplace_back("k" + std::to_string(i), "v" + std::to_string(i));
  const sml::Permutation permutation(by_name.size(), {sml::PermutationUse::kPack, 5, 0, 0});
  Records packed(by_name.size());
  for (std::size_t rank = 0; rank < by_name.size(); ++rank)
    packed[permutation.apply(rank)] = by_name[rank];
  const Bytes bytes = container_of(packed, header, 7);
  CHECK(sml::test::read_records(bytes) == packed);
}

TEST_CASE("names that are not those of the records are refused") {
  sml::Header header;
  header.order = sml::PackOrder::kName;
  // Packed in an order that is not name order.
  CHECK_THROWS_AS(container_of(kRecords, header, 2), sml::Error);
}

TEST_CASE("every truncation of a container is an error") {
  const Bytes bytes = container_of(kRecords, input_order(), 2);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(sml::test::read_records(ByteView(bytes).first(size)), sml::Error);
  }
}

TEST_CASE("every flipped byte gives an error or the same records") {
  const Bytes original = container_of(kRecords, input_order(), 2);
  Bytes bytes = original;
  std::size_t same = 0;
  std::size_t refused = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      bytes[at] = original[at] ^ static_cast<std::byte>(mask);
      CAPTURE(at);
      CAPTURE(mask);
      Records records;
      bool opened = true;
      try {
        records = sml::test::read_records(bytes);
      } catch (const sml::Error&) {
        opened = false;
      }
      if (opened) CHECK(records == kRecords);
      ++(opened ? same : refused);
      bytes[at] = original[at];
    }
  }
  // Header, slots, footer and tail are guarded. Block headers and tables, read by recovery alone,
  // and the padding before the footer are not.
  const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(original));
  const std::size_t payload = 6 + 5 + 0 + 300 + 1;
  CHECK(refused == 3 * (sml::Header::kBytes + kRecords.size() * sml::SlotPrefix::kBytes + payload +
                        reader.tail().footer_bytes + sml::Tail::kBytes));
  CHECK(same + refused == 3 * original.size());
}

TEST_CASE("aligned records start at multiples of the alignment") {
  for (const std::uint32_t align : {2U, 16U, 64U, 4096U}) {
    CAPTURE(align);
    sml::Header header = input_order();
    header.align = align;
    header.piece_bytes = sml::piece_bytes_of(header.block_bytes, align);
    const Bytes bytes = container_of(kRecords, header, 2);
    CHECK(sml::test::read_records(bytes) == kRecords);
    const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
    for (std::uint64_t n = 0; n < reader.index().records(); ++n) {
      CHECK((reader.index().place(n).offset + sml::SlotPrefix::kBytes) % align == 0);
    }
    for (std::uint64_t b = 0; b <= reader.index().blocks(); ++b)
      CHECK(reader.index().block_offset(b) % align == 0);
  }
}

TEST_CASE("a container with the header of another is refused") {
  sml::Header header = input_order();
  const Bytes first = container_of(kRecords, header, 2);
  header.seed = 1;
  const Bytes second = container_of(kRecords, header, 2);
  CHECK(sml::ContainerReader(std::make_shared<sml::MemorySource>(first)).id() !=
        sml::ContainerReader(std::make_shared<sml::MemorySource>(second)).id());
  Bytes spliced = first;
  std::copy_n(second.begin(), sml::Header::kBytes, spliced.begin());
  CHECK_THROWS_AS(sml::test::read_records(spliced), sml::Error);
}

TEST_CASE(
    "the cutter keeps a sample in one block where it fits, and lets a larger one start a block") {
  const std::uint32_t block_bytes = sml::kMinBlockBytes;
  const std::uint64_t capacity = block_bytes - sml::block_overhead(1);
  sml::BlockCutter cutter(block_bytes, 1);
  std::vector<bool> starts;
  cutter.place(std::vector<std::uint64_t>{capacity / 2}, starts);
  CHECK(starts == std::vector<bool>{true});
  cutter.place(std::vector<std::uint64_t>{capacity / 2 - 10}, starts);
  CHECK(starts == std::vector<bool>{false});
  cutter.place(std::vector<std::uint64_t>{5, 6}, starts);  // 11 do not fit behind the first two
  CHECK(starts == std::vector<bool>{true, false});
  cutter.place(std::vector<std::uint64_t>{capacity - 1, 2}, starts);  // larger than a block
  CHECK(starts == std::vector<bool>{true, true});
  cutter.place(std::vector<std::uint64_t>{1}, starts);
  CHECK(starts == std::vector<bool>{false});
  cutter.place(std::vector<std::uint64_t>{sml::BlockCutter::kOwnBlocks}, starts);
  CHECK(starts == std::vector<bool>{true});
  cutter.place(std::vector<std::uint64_t>{1}, starts);  // nothing follows pieces in their block
  CHECK(starts == std::vector<bool>{true});
}
