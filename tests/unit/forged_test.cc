// Containers and blocks whose checksums hold and whose numbers lie: sizes are bounded before they
// are used.
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/block.h"
#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/scan.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/reseal.h"

namespace {

using sml::Bytes;
using sml::ByteView;
using sml::ErrorCode;
using sml::Index;
using sml::test::check_error;

Bytes container(const sml::test::ContainerOptions& options, std::size_t content_bytes) {
  return sml::test::build_container(
      {{"a", std::string(content_bytes, 'a')}, {"b", std::string(content_bytes, 'b')}}, options);
}

sml::ContainerReader open(const Bytes& bytes) {
  return sml::ContainerReader(std::make_shared<sml::MemorySource>(bytes));
}

std::byte* footer_of(Bytes& bytes) { return bytes.data() + open(bytes).tail().footer_offset; }

}  // namespace

TEST_CASE("no record is larger than all records, whether sizes are kept or follow from slots") {
  for (const auto mode :
       {sml::CompressionOptions::Mode::kNone, sml::CompressionOptions::Mode::kZstd}) {
    CAPTURE(static_cast<int>(mode));
    sml::test::ContainerOptions options;
    options.compress = mode;
    Bytes bytes = container(options, 100);
    sml::store(footer_of(bytes) + 32, std::uint64_t{99});  // raw_bytes
    sml::test::reseal_container(bytes);
    const sml::ContainerReader reader = open(bytes);
    const Index& index = reader.index();
    check_error(ErrorCode::kCorrupt, "the size of record 0 is out of range",
                [&] { index.raw_bytes(0); });
    check_error(ErrorCode::kCorrupt, "the size of record 1 is out of range",
                [&] { index.raw_bytes(1); });
  }
}

TEST_CASE("a record in one slot is not larger than a piece") {
  for (const auto mode :
       {sml::CompressionOptions::Mode::kNone, sml::CompressionOptions::Mode::kZstd}) {
    CAPTURE(static_cast<int>(mode));
    sml::test::ContainerOptions options;
    options.compress = mode;
    Bytes bytes = container(options, 100);
    sml::store(bytes.data() + 44, std::uint32_t{99});  // piece_bytes
    sml::test::reseal_container(bytes);
    const sml::ContainerReader reader = open(bytes);
    check_error(ErrorCode::kCorrupt, "the size of record 0 makes 2 pieces, there are 1",
                [&] { reader.index().raw_bytes(0); });
  }
}

TEST_CASE("a record in pieces has the size that makes as many") {
  sml::test::ContainerOptions options;
  options.piece_bytes = 100;
  Bytes bytes = container(options, 250);
  for (const std::uint32_t piece_bytes : {124U, 126U, 249U}) {
    CAPTURE(piece_bytes);
    sml::store(bytes.data() + 44, piece_bytes);
    sml::test::reseal_container(bytes);
    const sml::ContainerReader reader = open(bytes);
    CHECK(reader.index().place(0).pieces == 3);
    if (piece_bytes == 124) {
      CHECK(reader.index().raw_bytes(0) == 250);
    } else {
      check_error(ErrorCode::kCorrupt, "the size of record 0 makes ",
                  [&] { reader.index().raw_bytes(0); });
    }
  }
}

TEST_CASE("a record table is not larger than its slots can make it") {
  std::vector<std::string> keys;
  std::vector<sml::EncodedRecord> records(8);
  for (std::size_t i = 0; i < records.size(); ++i)
    keys.push_back(std::string(4090, 'k') + std::to_string(i));
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].key = keys[i];
    records[i].key_hash = sml::key_hash(keys[i]);
  }
  const sml::SealedBlock built = sml::build_block(sml::Header(), 0, 0, records);
  Bytes block(built.bytes.begin(), built.bytes.end());
  const sml::BlockTable table = sml::BlockTable::decode(block);
  REQUIRE(table.header().table_codec == sml::Codec::kZstd);
  CHECK(table.key(7) == keys[7]);
  CHECK(block.size() < 1000);
  // As large as a block may be, as the header allows.
  sml::store(block.data() + 40, sml::kMaxBlockBytes);
  sml::test::reseal_block(block);
  check_error(ErrorCode::kCorrupt, "the record table is too large for its slots",
              [&] { sml::BlockTable::decode(block); });
}

TEST_CASE("a scan does not count beyond the last number and start again") {
  sml::EncodedRecord record;
  record.key = "k";
  const auto block = [&](std::uint64_t number, std::uint64_t first_record) {
    const auto built = sml::build_block(sml::Header(), number, first_record, {record});
    return Bytes(built.bytes.begin(), built.bytes.end());
  };
  constexpr std::uint64_t kLast = ~std::uint64_t{0};
  for (const auto& numbers :
       {std::pair{kLast, std::uint64_t{0}}, std::pair{std::uint64_t{0}, kLast}}) {
    const std::uint64_t number = numbers.first;
    const std::uint64_t first_record = numbers.second;
    CAPTURE(number);
    Bytes bytes = block(number, first_record);
    const std::uint64_t end = bytes.size();
    const Bytes next = block(1, 1);
    bytes.insert(bytes.end(), next.begin(), next.end());
    const sml::MemorySource source(bytes);
    sml::BlockScan scan(source, 0, bytes.size(), 0);
    const auto found = scan.next();
    REQUIRE(found.has_value());
    CHECK(found->offset == end);
    CHECK_FALSE(scan.next().has_value());
  }
}
