#include "smlstore/verify.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/block.h"
#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "support/containers.h"

namespace {

using sml::Bytes;
using sml::ContainerReader;
using sml::Dataset;
using sml::ErrorCode;
using sml::test::build_container;
using sml::test::ContainerOptions;
using sml::test::Record;
using sml::test::TemporaryDirectory;

struct Outcome {
  sml::VerifyReport report;
  std::vector<std::string> findings;
  std::vector<ErrorCode> codes;

  bool mentions(std::string_view text) const {
    return std::any_of(findings.begin(), findings.end(),
                       [text](const std::string& f) { return f.find(text) != std::string::npos; });
  }
};

Outcome verify_dataset(const Dataset& dataset, unsigned threads = 2) {
  Outcome outcome;
  sml::VerifyOptions options;
  options.threads = threads;
  options.on_damage = [&](const sml::Error& error) {
    outcome.findings.emplace_back(error.what());
    outcome.codes.push_back(error.code());
  };
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  options.on_progress = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(done >= last);
    last = done;
    total = all;
  };
  outcome.report = verify(dataset, options);
  CHECK(last == total);
  CHECK(outcome.report.bytes == total);
  CHECK(outcome.report.damaged == outcome.findings.size());
  CHECK(outcome.report.records <= dataset.records());
  return outcome;
}

// The data set of one container, "c", in memory that the caller keeps.
Dataset dataset_of(const Bytes& bytes) {
  const auto source = std::make_shared<sml::MemorySource>(bytes);
  return Dataset::from(
      {{.name = "c", .path = "c.sml", .reader = std::make_shared<const ContainerReader>(source)}});
}

Outcome verify_bytes(const Bytes& bytes, unsigned threads = 2) {
  return verify_dataset(dataset_of(bytes), threads);
}

// Text that compresses, of about `bytes` bytes, different for each i.
std::string text(int i, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes)
    out +=
        "line " + std::to_string(out.size() * static_cast<std::size_t>(i + 1)) + " of many lines\n";
  out.resize(bytes);
  return out;
}

std::vector<Record> texts(int count, std::size_t bytes) {
  std::vector<Record> records;
  for (int i = 0; i < count; ++i)
    records.push_back({"t/" + std::to_string(i) + ".txt", text(i, bytes)});
  return records;
}

// Where a record's stored bytes are in the container.
struct Where {
  std::uint64_t block = 0;
  std::uint64_t slot = 0;     // offset
  std::uint64_t payload = 0;  // offset
  std::uint64_t payload_bytes = 0;
};

Where locate(const Bytes& bytes, std::string_view key) {
  const ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  const sml::Place place = reader.index().place(reader.index().find(key).value());
  return {place.block, place.offset, place.offset + sml::SlotPrefix::kBytes,
          place.slot_bytes - sml::SlotPrefix::kBytes};
}

void flip(Bytes& bytes, std::uint64_t at) { bytes.at(at) ^= std::byte{0x10}; }

}  // namespace

TEST_CASE("sound containers of every kind have no findings") {
  std::vector<ContainerOptions> kinds(9);
  kinds[1].order = sml::PackOrder::kInput;
  kinds[2].order = sml::PackOrder::kName;
  kinds[3].grouping = sml::Grouping::kStem;
  kinds[4].align = 512;
  kinds[5].compress = sml::CompressionOptions::Mode::kZstd;
  kinds[6].compress = sml::CompressionOptions::Mode::kZstd;
  kinds[6].dictionary = text(1, 4000);
  kinds[7].piece_bytes = 1500;
  kinds[8].piece_bytes = 1500;
  kinds[8].compress = sml::CompressionOptions::Mode::kZstd;
  kinds[8].dictionary = text(1, 4000);
  kinds[8].align = 64;
  kinds[8].grouping = sml::Grouping::kStem;
  std::vector<Record> records = texts(200, 1000);
  for (Record& r : texts(5, 5001)) records.push_back({"u" + r.key, r.content});
  records.push_back({"empty", ""});
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CAPTURE(i);
    const Outcome outcome = verify_bytes(build_container(records, kinds[i]));
    CHECK(outcome.findings.empty());
    CHECK(outcome.report.records == records.size());
    CHECK(outcome.report.containers == 1);
    CHECK(outcome.report.blocks >= 1);
  }
  const Outcome none = verify_bytes(build_container({}));
  CHECK(none.findings.empty());
  CHECK(none.report.blocks == 0);
}

TEST_CASE(
    "a flipped byte in a record is found, by container, block, key, offset and both checksums") {
  const std::vector<Record> records = texts(300, 1000);
  Bytes bytes = build_container(records);
  const Where where = locate(bytes, "t/17.txt");
  flip(bytes, where.payload + 500);
  const Outcome outcome = verify_bytes(bytes);
  REQUIRE(outcome.findings.size() == 2);
  const std::string block = "container 'c': block " + std::to_string(where.block) + ": ";
  CHECK(outcome.findings[0].starts_with(block + "at offset "));
  CHECK(outcome.findings[0].find("checksum mismatch (stored ") != std::string::npos);
  CHECK(outcome.findings[0].find(", computed ") != std::string::npos);
  CHECK(outcome.findings[1].starts_with(block + "record 't/17.txt' at offset " +
                                        std::to_string(where.slot) +
                                        ": checksum mismatch (stored "));
  CHECK(outcome.codes == std::vector<ErrorCode>(2, ErrorCode::kCorrupt));
  CHECK(outcome.report.records == 300);
}

TEST_CASE("with a damaged record table the records are checked through the index") {
  Bytes bytes = build_container(texts(300, 1000));
  const Where where = locate(bytes, "t/17.txt");
  const ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  const std::uint64_t begin = reader.index().block_offset(where.block);
  flip(bytes, begin + sml::BlockHeader::kBytes + 3);
  Outcome outcome = verify_bytes(bytes);
  CHECK(outcome.findings.size() == 2);  // the block's checksum and its header's
  CHECK(outcome.mentions("block header: checksum mismatch"));
  flip(bytes, where.payload);
  outcome = verify_bytes(bytes);
  CHECK(outcome.findings.size() == 3);
  CHECK(outcome.mentions("record 't/17.txt' at offset " + std::to_string(where.slot) +
                         ": checksum mismatch"));
}

TEST_CASE("a wrong but consistent record shows as a block that is not the one of the index") {
  // Two containers that differ in the content of one record only; their payloads have equal sizes.
  std::vector<Record> records = texts(20, 1000);
  const Bytes original = build_container(records);
  records[7].content[5] = '#';
  const Bytes other = build_container(records);
  Bytes mixed = original;
  const ContainerReader reader(std::make_shared<sml::MemorySource>(original));
  const std::uint64_t end = reader.index().block_offset(reader.index().blocks());
  std::copy_n(other.begin(), end, mixed.begin());
  const Outcome outcome = verify_bytes(mixed);
  REQUIRE(outcome.findings.size() == 1);
  CHECK(outcome.mentions("block 0: at offset 128: checksum mismatch"));
}

TEST_CASE("an index that contradicts its blocks is found") {
  // The same content with two keys exchanged: every checksum is right, and so are all sizes.
  ContainerOptions options;
  options.order = sml::PackOrder::kInput;
  std::vector<Record> records = texts(10, 1000);
  const Bytes original = build_container(records, options);
  std::swap(records[2].key, records[3].key);
  const Bytes swapped = build_container(records, options);
  Bytes mixed = original;
  const ContainerReader reader(std::make_shared<sml::MemorySource>(original));
  std::copy_n(swapped.begin(), reader.index().block_offset(reader.index().blocks()), mixed.begin());
  const Outcome outcome = verify_bytes(mixed);
  CHECK(outcome.findings.size() == 3);
  CHECK(outcome.mentions("record 't/3.txt' at offset"));
  CHECK(outcome.mentions("the index finds its key at number 3 instead of 2"));
  CHECK(outcome.mentions("the index finds its key at number 2 instead of 3"));
}

TEST_CASE("a damaged dictionary block is found; records are decoded with the footer's copy") {
  ContainerOptions options;
  options.compress = sml::CompressionOptions::Mode::kZstd;
  options.dictionary = text(1, 4000);
  std::vector<Record> records = texts(20, 1000);
  records.push_back({"stored", "x"});
  Bytes bytes = build_container(records, options);
  const ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  REQUIRE(reader.dictionary() != nullptr);
  flip(bytes, reader.index().block_offset(1) - 100);
  const Outcome outcome = verify_bytes(bytes);
  CHECK(outcome.mentions("block 0: at offset 128: checksum mismatch"));
  CHECK(outcome.mentions("block 0: dictionary: checksum mismatch"));
  CHECK(outcome.findings.size() == 2);
  CHECK(outcome.report.records == 21);
}

TEST_CASE("damage in one piece of a large record is found there") {
  ContainerOptions options;
  options.piece_bytes = 2000;
  Bytes bytes = build_container({{"large", text(0, 9000)}, {"small", "x"}}, options);
  const Where where = locate(bytes, "large");
  const ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  const std::uint64_t third = reader.index().block_offset(where.block + 2);
  flip(bytes, third + 1000);
  const Outcome outcome = verify_bytes(bytes);
  CHECK(outcome.findings.size() == 2);
  CHECK(
      outcome.mentions("block " + std::to_string(where.block + 2) + ": record 'large' at offset"));
}

TEST_CASE("every flipped byte between header and footer's end is found, and damage never aborts") {
  ContainerOptions options;
  options.piece_bytes = 300;
  options.align = 16;
  options.compress = sml::CompressionOptions::Mode::kAuto;
  options.grouping = sml::Grouping::kStem;
  const Bytes sound = build_container(
      {{"a.x", text(0, 200)}, {"a.y", "y"}, {"b", text(1, 700)}, {"c", ""}}, options);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < sound.size(); ++at) {
    Bytes bytes = sound;
    flip(bytes, at);
    try {
      if (verify_bytes(bytes, 1).findings.empty()) FAIL_CHECK("byte " << at << " is not guarded");
    } catch (const sml::Error&) {
      ++refused;  // does not open
    }
  }
  CHECK(refused > 64);
  CHECK(refused < sound.size() / 2);
}

TEST_CASE("blocks that cannot be read are findings, and name the records that are lost") {
  const Bytes bytes = build_container(texts(300, 1000));
  // A source without a mapping, which fails after the container was opened.
  class FailingSource final : public sml::ByteSource {
   public:
    explicit FailingSource(const Bytes& all) : bytes_(all) {}
    std::uint64_t size() const override { return bytes_.size(); }
    void read(std::uint64_t offset, sml::MutableBytes out) const override {
      if (fails && offset < 200'000 && offset + out.size() > 100'000)
        throw sml::Error(ErrorCode::kIo, "the disk fails");
      sml::MemorySource(bytes_).read(offset, out);
    }
    bool fails = false;

   private:
    const Bytes& bytes_;
  };
  const auto source = std::make_shared<FailingSource>(bytes);
  const auto reader = std::make_shared<const ContainerReader>(source);
  source->fails = true;
  const Dataset dataset = Dataset::from({{.name = "c", .path = "c.sml", .reader = reader}});
  Outcome outcome;
  sml::VerifyOptions options;
  options.on_damage = [&](const sml::Error& error) { outcome.findings.emplace_back(error.what()); };
  outcome.report = verify(dataset, options);
  CHECK(outcome.mentions("the disk fails"));
  CHECK(outcome.mentions("lost with the block that cannot be read"));
  CHECK(outcome.report.records == 300);
  CHECK(outcome.report.damaged == outcome.findings.size());
}

TEST_CASE("keys in two containers, and keys of another part, are found") {
  const TemporaryDirectory dir;
  dir.write("a.sml", build_container({{"k1", ""}, {"twice", "1"}}));
  dir.write("b.sml", build_container({{"k2", ""}}));
  dir.write("c.sml", build_container({{"k3", ""}, {"twice", "2"}}));
  const Outcome outcome = verify_dataset(Dataset::open(sml::Location{dir.path()}));
  REQUIRE(outcome.findings.size() == 1);
  CHECK(outcome.findings[0] == "key 'twice' is in containers 'a' and 'c'");
  CHECK(outcome.codes[0] == ErrorCode::kAmbiguous);
  CHECK(outcome.report.containers == 3);

  ContainerOptions options;
  options.part = 1;
  options.parts = 1000;
  const Outcome part = verify_bytes(build_container({{"k1.x", ""}}, options));
  REQUIRE(part.findings.size() == 1);
  const std::string expected = std::to_string(sml::xxh3_64(sml::as_bytes("k1")) % 1000 + 1);
  CHECK(part.mentions("its stem belongs to part " + expected + " of 1000, not 1"));
}

TEST_CASE("a sample has a block of each container, however small it is") {
  const Bytes first = build_container(texts(400, 1000));
  Bytes second = build_container(texts(1, 1000));
  const Bytes none = build_container({});
  const auto sampled = [&](double percent, std::uint64_t seed) {
    const auto reader = [](const Bytes& bytes) {
      return std::make_shared<const ContainerReader>(std::make_shared<sml::MemorySource>(bytes));
    };
    const Dataset dataset = Dataset::from({{.name = "a", .path = "a.sml", .reader = reader(first)},
                                           {.name = "b", .path = "b.sml", .reader = reader(none)}});
    sml::VerifyOptions options;
    options.sample_percent = percent;
    options.sample_seed = seed;
    return verify(dataset, options);
  };
  const std::uint64_t blocks = verify_bytes(first).report.blocks;
  CHECK(blocks > 4);
  std::uint64_t records = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const sml::VerifyReport report = sampled(1e-9, seed);
    CHECK(report.blocks == 1);
    CHECK(report.containers == 2);
    CHECK(report.records > 0);
    records += report.records;
  }
  // Not always the same one: the last has fewer records.
  CHECK(records % 50 != 0);
  CHECK(sampled(100, 1).blocks == blocks);
  // One that has but one block is found damaged every time.
  flip(second, locate(second, "t/0.txt").payload);
  const Dataset damaged = dataset_of(second);
  sml::VerifyOptions options;
  options.sample_percent = 1e-9;
  CHECK(verify(damaged, options).damaged > 0);
}

TEST_CASE("findings and report do not depend on the number of threads") {
  Bytes bytes = build_container(texts(2000, 1000));
  for (std::uint64_t at = 5000; at < 1'900'000; at += 77'777) flip(bytes, at);
  const Outcome one = verify_bytes(bytes, 1);
  CHECK(one.findings.size() > 40);
  for (const unsigned threads : {2U, 3U, 8U}) {
    const Outcome more = verify_bytes(bytes, threads);
    CHECK(more.findings == one.findings);
    CHECK(more.report.bytes == one.report.bytes);
  }
}

TEST_CASE("verify stops when asked to, and what a callback throws comes through") {
  Bytes bytes = build_container(texts(500, 1000));
  flip(bytes, 100'000);
  const Dataset dataset = dataset_of(bytes);
  sml::VerifyOptions options;
  std::stop_source stop;
  options.stop = stop.get_token();
  options.on_progress = [&](std::uint64_t done, std::uint64_t) {
    if (done > 150'000) stop.request_stop();
  };
  try {
    verify(dataset, options);
    FAIL("went on");
  } catch (const sml::Error& e) {
    CHECK(e.code() == ErrorCode::kCancelled);
  }
  options = {};
  options.on_damage = [](const sml::Error& error) { throw error; };
  CHECK_THROWS_AS(verify(dataset, options), sml::Error);
}
