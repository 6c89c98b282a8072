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
  BlockScan scan(source, sml::Header::kBytes, blocks.bytes.size(), sml::kMinBlockBytes);
  std::vector<std::uint64_t> numbers;
  while (const std::optional<ScannedBlock> block = scan.next()) {
    const std::uint64_t number = block->table.header().number;
    REQUIRE(number < blocks.offsets.size() - 1);
    CHECK(block->offset == blocks.offsets[number]);
    CHECK(scan.position() == blocks.offsets[number + 1]);
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
  const Blocks blocks = blocks_of(build_container(many_records(40, 'x')));
  CHECK(blocks.offsets.size() == 7);
  CHECK(scanned(blocks) == all_but(6, {}));
}

TEST_CASE("an empty container has no blocks") {
  CHECK(scanned(blocks_of(build_container({}))).empty());
}

TEST_CASE("a scan passes over blocks whose header or table is damaged, wherever it is hit") {
  const Blocks sound = blocks_of(build_container(many_records(40, 'x')));
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
  Blocks blocks = blocks_of(build_container(many_records(40, 'x')));
  for (const std::uint64_t block : {1U, 2U, 4U}) damage(blocks, blocks.offsets[block] + 24);
  CHECK(scanned(blocks) == all_but(6, {1, 2, 4}));
}

TEST_CASE("damage of slots is no matter of a scan") {
  Blocks blocks = blocks_of(build_container(many_records(40, 'x')));
  damage(blocks, blocks.offsets[3] - 10);
  CHECK(scanned(blocks) == all_but(6, {}));
}

TEST_CASE("a container that is cut gives the blocks that are whole") {
  const Blocks sound = blocks_of(build_container(many_records(40, 'x')));
  for (const std::uint64_t cut : {sound.offsets[3] - 1, sound.offsets[3], sound.offsets[3] + 63}) {
    Blocks blocks = sound;
    blocks.bytes.resize(cut);
    const std::uint64_t whole = cut >= sound.offsets[3] ? 3 : 2;
    CHECK(scanned(blocks) == all_but(whole, {}));
  }
}

TEST_CASE("blocks of a container that is a record of a damaged block are not taken for its own") {
  // The record's blocks 1, 2, ... lie in block 1: after damage of its header they could follow
  // block 0.
  ContainerOptions small;
  small.block_bytes = sml::kMinBlockBytes;
  std::vector<Record> inner;
  for (int i = 0; i < 3; ++i) inner.push_back({"i" + std::to_string(i), std::string(40000, 'i')});
  // Blocks that are small enough to lie in one record: written with pieces of 4000 bytes.
  small.piece_bytes = 4000;
  small.order = sml::PackOrder::kInput;
  const Bytes nested = build_container({inner[0]}, small);
  REQUIRE(nested.size() < 60000);

  ContainerOptions options;
  options.order = sml::PackOrder::kInput;
  std::vector<Record> records = many_records(7, 'x');  // block 0
  records.push_back({"nested.sml", std::string(sml::as_text(nested))});
  for (const Record& record : many_records(20, 'y'))
    records.push_back({"s" + record.key, record.content});
  Blocks blocks = blocks_of(build_container(records, options));
  const std::uint64_t count = blocks.offsets.size() - 1;
  REQUIRE(count == 5);
  CHECK(scanned(blocks) == all_but(count, {}));
  damage(blocks, blocks.offsets[1] + 8);
  CHECK(scanned(blocks) == all_but(count, {1}));
  // The last but one and the last: what follows is the footer.
  damage(blocks, blocks.offsets[2] + 8);
  damage(blocks, blocks.offsets[3] + 8);
  CHECK(scanned(blocks) == all_but(count, {1, 2, 3}));
}
