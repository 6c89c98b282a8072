#include "smlformat/scan.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/container_reader.h"
#include "support/containers.h"

using sml::BlockScan;
using sml::Bytes;
using sml::ContainerReader;
using sml::MemorySource;
using sml::ScannedBlock;
using sml::test::build_container;
using sml::test::ContainerOptions;
using sml::test::Record;

namespace {

// Records that fill several blocks of 64 KiB.
std::vector<Record> many_records(std::size_t count, char fill) {
  std::vector<Record> records;
  for (std::size_t i = 0; i < count; ++i)
    records.push_back({"r" + std::to_string(1000 + i), std::string(9000, fill)});
  return records;
}

ContainerOptions tagged(std::uint32_t tag) {
  ContainerOptions options;
  options.tag = tag;
  return options;
}

struct Blocks {
  Bytes bytes;
  std::vector<std::uint64_t> offsets;  // and where the last one ends
};

Blocks blocks_of(Bytes bytes) {
  const ContainerReader reader(std::make_shared<MemorySource>(bytes));
  Blocks out;
  for (std::uint64_t b = 0; b <= reader.index().blocks(); ++b)
    out.offsets.push_back(reader.index().block_offset(b));
  out.bytes = std::move(bytes);
  return out;
}

// Numbers of the blocks that a scan of all bytes gives; each is where it was.
std::vector<std::uint64_t> scanned(const Blocks& blocks) {
  const MemorySource source(blocks.bytes);
  BlockScan scan(source, sml::Header::kBytes, blocks.bytes.size(), 7);
  std::vector<std::uint64_t> numbers;
  while (const std::optional<ScannedBlock> block = scan.next()) {
    const std::uint64_t number = block->table.header().number;
    REQUIRE(number < blocks.offsets.size() - 1);
    CHECK(block->offset == blocks.offsets[number]);
    CHECK((*block->bytes).size() ==
          std::min<std::uint64_t>(blocks.offsets[number + 1], blocks.bytes.size()) - block->offset);
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::uint64_t> all_but(std::uint64_t count, std::vector<std::uint64_t> missing) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i)
    if (std::find(missing.begin(), missing.end(), i) == missing.end()) numbers.push_back(i);
  return numbers;
}

void damage(Blocks& blocks, std::uint64_t offset) { blocks.bytes[offset] ^= std::byte{0x40}; }

}  // namespace

TEST_CASE("a scan gives every block, in order, and ends before the footer") {
  const Blocks blocks = blocks_of(build_container(many_records(40, 'x'), tagged(7)));
  CHECK(blocks.offsets.size() == 7);
  CHECK(scanned(blocks) == all_but(6, {}));
}

TEST_CASE("an empty container has no blocks") {
  CHECK(scanned(blocks_of(build_container({}))).empty());
}

TEST_CASE("a scan passes over blocks whose header or table is damaged, wherever it is hit") {
  const Blocks sound = blocks_of(build_container(many_records(40, 'x'), tagged(7)));
  for (const std::uint64_t block : {0U, 2U, 5U}) {
    for (std::uint64_t at = 0; at < 70; ++at) {
      CAPTURE(block);
      CAPTURE(at);
      Blocks blocks = sound;
      damage(blocks, sound.offsets[block] + at);
      CHECK(scanned(blocks) == all_but(6, {block}));
    }
  }
}

TEST_CASE("several damaged blocks are passed over together") {
  Blocks blocks = blocks_of(build_container(many_records(40, 'x'), tagged(7)));
  for (const std::uint64_t block : {1U, 2U, 4U}) damage(blocks, blocks.offsets[block] + 24);
  CHECK(scanned(blocks) == all_but(6, {1, 2, 4}));
}

TEST_CASE("damage of slots is no matter of a scan") {
  Blocks blocks = blocks_of(build_container(many_records(40, 'x'), tagged(7)));
  damage(blocks, blocks.offsets[3] - 10);
  CHECK(scanned(blocks) == all_but(6, {}));
}

TEST_CASE("a container that is cut gives the block that is cut too, if its table is there") {
  const Blocks sound = blocks_of(build_container(many_records(40, 'x'), tagged(7)));
  for (const std::uint64_t cut :
       {sound.offsets[3] - 1, sound.offsets[3], sound.offsets[3] + 63, sound.offsets[3] + 1000}) {
    Blocks blocks = sound;
    blocks.bytes.resize(cut);
    CHECK(scanned(blocks) == all_but(cut >= sound.offsets[3] + 1000 ? 4 : 3, {}));
  }
}

TEST_CASE("blocks of a container that is a record are not taken for its own, whatever is damaged") {
  // The record's blocks 0, 1, ... lie in block 1.
  ContainerOptions small = tagged(8);
  small.piece_bytes = 4000;
  small.order = sml::PackOrder::kInput;
  const Bytes nested = build_container({{"i", std::string(40000, 'i')}}, small);
  REQUIRE(nested.size() < 60000);
  ContainerOptions options = tagged(7);
  options.order = sml::PackOrder::kInput;
  std::vector<Record> records = many_records(7, 'x');  // block 0
  records.push_back({"nested.sml", std::string(sml::as_text(nested))});
  for (const Record& record : many_records(20, 'y'))
    records.push_back({"s" + record.key, record.content});
  const Blocks sound = blocks_of(build_container(records, options));
  const std::uint64_t count = sound.offsets.size() - 1;
  REQUIRE(count == 5);
  for (unsigned lost = 0; lost < 1U << count; ++lost) {
    Blocks blocks = sound;
    std::vector<std::uint64_t> missing;
    for (std::uint64_t b = 0; b < count; ++b) {
      if ((lost >> b & 1) == 0) continue;
      damage(blocks, blocks.offsets[b] + 8);
      missing.push_back(b);
    }
    CHECK(scanned(blocks) == all_but(count, missing));
    blocks.bytes.resize(blocks.offsets[2] - 100);  // in the block that holds the record
    CHECK(scanned(blocks) == all_but(2, missing));
  }
}

TEST_CASE("without a tag every intact block is given, also one inside another") {
  const Bytes nested = build_container({{"i", "x"}}, tagged(8));
  const Bytes bytes =
      build_container({{"nested.sml", std::string(sml::as_text(nested))}}, tagged(7));
  const MemorySource source(bytes);
  BlockScan scan(source, 0, bytes.size(), std::nullopt);
  CHECK(scan.next()->table.header().tag == 7);
  CHECK(scan.next()->table.header().tag == 8);
  CHECK_FALSE(scan.next().has_value());
}
