#include "smlstore/packer.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "smlformat/key.h"
#include "smlformat/permutation.h"
#include "support/pack_input.h"
#include "support/read_container.h"

namespace {

using sml::Bytes;
using sml::ByteView;
using sml::test::Records;

using sml::test::kSeed;
using sml::test::mixed_records;
using sml::test::random_text;
using sml::test::TestList;
using sml::test::TestStream;

Bytes pack_list(const sml::RecordList& list, const sml::PackOptions& options) {
  sml::MemorySink sink;
  sml::pack(list, options, sink);
  return sink.bytes();
}

Records sorted(Records records) {
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return sml::compare_names(a.first, b.first) < 0; });
  return records;
}

sml::PackOptions small_blocks() {
  sml::PackOptions options;
  options.block_bytes = sml::kMinBlockBytes;
  return options;
}

}  // namespace

TEST_CASE("every order, grouping and compression keeps all records") {
  const Records records = mixed_records();
  const TestList list(records);
  for (const auto order :
       {sml::PackOrder::kRandom, sml::PackOrder::kName, sml::PackOrder::kInput}) {
    for (const auto grouping : {sml::Grouping::kNone, sml::Grouping::kStem}) {
      for (const auto mode :
           {sml::CompressionOptions::Mode::kNone, sml::CompressionOptions::Mode::kAuto,
            sml::CompressionOptions::Mode::kZstd}) {
        for (const std::uint32_t align : {1U, 512U}) {
          CAPTURE(sml::pack_order_name(order));
          CAPTURE(sml::grouping_name(grouping));
          CAPTURE(align);
          sml::PackOptions options = small_blocks();
          options.order = order;
          options.seed = 3;
          options.grouping = grouping;
          options.compression.mode = mode;
          options.align = align;
          const Bytes bytes = pack_list(list, options);
          const Records packed = sml::test::read_records(bytes);
          CHECK(sorted(packed) == sorted(records));
          if (order == sml::PackOrder::kName) CHECK(packed == sorted(records));
          if (order == sml::PackOrder::kInput) CHECK(packed == records);
        }
      }
    }
  }
}

TEST_CASE("the bytes do not depend on threads or memory") {
  const TestList list(mixed_records());
  sml::PackOptions options = small_blocks();
  options.grouping = sml::Grouping::kStem;
  options.threads = 1;
  const Bytes once = pack_list(list, options);
  options.threads = 4;
  CHECK(pack_list(list, options) == once);
  options.memory_bytes = 1;
  CHECK(pack_list(list, options) == once);
  options.seed = 1;
  CHECK(pack_list(list, options) != once);
}

TEST_CASE("a stream gives the records of a list in input order, and always the same bytes") {
  const Records records = mixed_records();
  for (const auto grouping : {sml::Grouping::kNone, sml::Grouping::kStem}) {
    sml::PackOptions options = small_blocks();
    options.order = sml::PackOrder::kInput;
    options.grouping = grouping;
    options.compression.mode = sml::CompressionOptions::Mode::kNone;
    const Bytes from_list = pack_list(TestList(records), options);
    Bytes first;
    for (const bool sizes_known : {true, false}) {
      for (const unsigned threads : {1U, 3U}) {
        options.threads = threads;
        TestStream stream(records, sizes_known);
        sml::MemorySink sink;
        sml::pack(stream, options, sink);
        if (first.empty()) first = sink.bytes();
        CHECK(sink.bytes() == first);
        // The tag is another, since of a stream not all keys are known when it is chosen.
        CHECK(sink.bytes().size() == from_list.size());
        CHECK(sml::test::read_records(sink.bytes()) == sml::test::read_records(from_list));
      }
    }
    // The dictionary of a stream is judged by its first records alone, so compressed bytes may
    // differ; records may not.
    options.compression.mode = sml::CompressionOptions::Mode::kAuto;
    TestStream stream(records, true);
    sml::MemorySink sink;
    sml::pack(stream, options, sink);
    CHECK(sml::test::read_records(sink.bytes()) == records);
  }
}

TEST_CASE("samples lie together and in the order of the keyed permutation") {
  const Records records = mixed_records();
  sml::PackOptions options = small_blocks();
  options.grouping = sml::Grouping::kStem;
  options.seed = 11;
  const Bytes bytes = pack_list(TestList(records), options);
  const Records packed = sml::test::read_records(bytes);

  std::map<std::string, std::size_t>
      sample_ranks;  // in name order, so a stem's place is its rank among the stems
  for (const auto& [key, data] : records) sample_ranks.emplace(sml::key_stem(key), 0);
  std::size_t rank = 0;
  for (auto& [stem, r] : sample_ranks) r = rank++;
  const sml::Permutation permutation(sample_ranks.size(), {sml::PermutationUse::kPack, 11, 0, 0});
  std::size_t position = 0;
  std::string stem;
  for (const auto& [key, data] : packed) {
    if (stem == sml::key_stem(key)) continue;
    stem = sml::key_stem(key);
    CHECK(permutation.apply(sample_ranks.at(stem)) == position);
    ++position;
  }
  CHECK(position == sample_ranks.size());

  const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  CHECK(reader.index().samples() == sample_ranks.size());
  for (std::uint64_t s = 0; s < reader.index().samples(); ++s) {
    const sml::NumberRange range = reader.index().sample(s);
    CHECK(range.size() >= 1);
    for (std::uint64_t n = range.first; n < range.last; ++n) {
      CHECK(sml::key_stem(packed[n].first) == sml::key_stem(packed[range.first].first));
      CHECK(reader.index().sample_of(n) == s);
    }
  }
  // Each sample starts in exactly one block.
  std::uint64_t samples = 0;
  for (std::uint64_t b = 0; b < reader.index().blocks(); ++b)
    samples += reader.index().block_samples(b).size();
  CHECK(samples == reader.index().samples());
}

TEST_CASE("a sample that fits a block is not divided") {
  const Bytes bytes = [] {
    sml::PackOptions options = small_blocks();
    options.grouping = sml::Grouping::kStem;
    return pack_list(TestList(mixed_records()), options);
  }();
  const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  const sml::Index& index = reader.index();
  for (std::uint64_t s = 0; s < index.samples(); ++s) {
    const sml::NumberRange range = index.sample(s);
    std::uint64_t raw = 0;
    for (std::uint64_t n = range.first; n < range.last; ++n) raw += index.raw_bytes(n) + 100;
    if (raw < sml::kMinBlockBytes / 2) {
      CHECK(index.place(range.first).block == index.place(range.last - 1).block);
    }
  }
}

TEST_CASE("duplicates are refused, or the first or the last is kept") {
  const Records records = {{"a", "1"}, {"b", "2"}, {"a", "3"}, {"c", "4"}, {"a", "5"}};
  const TestList list(records);
  sml::PackOptions options;
  std::string message;
  try {
    pack_list(list, options);
  } catch (const sml::Error& e) {
    CHECK(e.code() == sml::ErrorCode::kAlreadyExists);
    message = e.what();
  }
  CHECK(message == "two records have the key 'a': 'origin0' and 'origin2'");
  std::vector<std::string> dropped;
  options.on_dropped = [&](const std::string& origin) { dropped.push_back(origin); };
  options.on_duplicate = sml::OnDuplicate::kSkip;
  CHECK(sorted(sml::test::read_records(pack_list(list, options))) ==
        Records{{"a", "1"}, {"b", "2"}, {"c", "4"}});
  CHECK(dropped == std::vector<std::string>{"origin2", "origin4"});
  dropped.clear();
  options.on_duplicate = sml::OnDuplicate::kReplace;
  CHECK(sorted(sml::test::read_records(pack_list(list, options))) ==
        Records{{"a", "5"}, {"b", "2"}, {"c", "4"}});
  CHECK(dropped == std::vector<std::string>{"origin0", "origin2"});

  options.order = sml::PackOrder::kInput;
  sml::MemorySink sink;
  TestStream replacing(records, true);
  CHECK_THROWS_AS(sml::pack(replacing, options, sink), sml::Error);
  options.on_duplicate = sml::OnDuplicate::kSkip;
  TestStream stream(records, true);
  sml::MemorySink skipped;
  sml::pack(stream, options, skipped);
  CHECK(sml::test::read_records(skipped.bytes()) == Records{{"a", "1"}, {"b", "2"}, {"c", "4"}});
}

TEST_CASE(
    "unreadable records are skipped where the caller says so, and the rest is as if they had not "
    "been there") {
  const Records records = mixed_records();
  TestList list(records);
  list.unreadable = {records[3].first, records[100].first, records[250].first};
  for (const auto& [key, data] : records) {
    if (data.size() > sml::kMinBlockBytes) {
      list.unreadable.insert(key);  // one in pieces
      break;
    }
  }
  Records readable;
  for (const auto& record : records) {
    if (!list.unreadable.contains(record.first)) readable.push_back(record);
  }
  sml::PackOptions options = small_blocks();
  CHECK_THROWS_AS(pack_list(list, options), sml::Error);
  std::set<std::string> told;
  options.on_unreadable = [&](const sml::Error& e) {
    const std::string text = e.what();
    told.insert(text.substr(0, text.find(':')));
  };
  const Bytes bytes = pack_list(list, options);
  CHECK(told == list.unreadable);
  CHECK(bytes == pack_list(TestList(readable), small_blocks()));
}

TEST_CASE("parts hold every sample once, whole") {
  const Records records = mixed_records();
  Records all;
  std::map<std::string, std::uint32_t> part_of;
  for (std::uint32_t part = 1; part <= 3; ++part) {
    sml::PackOptions options = small_blocks();
    options.part = part;
    options.parts = 3;
    options.grouping = sml::Grouping::kStem;
    for (const auto& record : sml::test::read_records(pack_list(TestList(records), options))) {
      all.push_back(record);
      const std::string stem(sml::key_stem(record.first));
      CHECK(part_of.emplace(stem, part).first->second == part);
    }
  }
  CHECK(sorted(all) == sorted(records));
}

TEST_CASE("a stream that scatters a sample cannot be grouped") {
  sml::PackOptions options;
  options.order = sml::PackOrder::kInput;
  options.grouping = sml::Grouping::kStem;
  TestStream stream({{"a.1", "x"}, {"b.1", "x"}, {"a.2", "x"}}, true);
  sml::MemorySink sink;
  CHECK_THROWS_AS(sml::pack(stream, options, sink), sml::Error);
}

TEST_CASE("many similar small records share a dictionary that pays") {
  std::mt19937 random(kSeed);
  Records records;
  for (int i = 0; i < 5000; ++i) {
    records.emplace_back("r" + std::to_string(i),
                         "{\"width\": " + std::to_string(random() % 1000) +
                             ", \"height\": " + std::to_string(random() % 1000) +
                             ", \"class\": \"n" + std::to_string(random() % 1000) +
                             "\", \"source\": \"a synthetic corpus of annotations\"}");
  }
  const Bytes bytes = pack_list(TestList(records), sml::PackOptions{});
  const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(bytes));
  CHECK(reader.dictionary() != nullptr);
  CHECK(reader.index().counts().stored_bytes * 3 < reader.index().counts().raw_bytes);
  CHECK(sorted(sml::test::read_records(bytes)) == sorted(records));
}

TEST_CASE("a stop request ends packing") {
  const TestList list(mixed_records());
  std::stop_source stop;
  sml::PackOptions options = small_blocks();
  options.stop = stop.get_token();
  options.on_progress = [&](const sml::PackProgress&) { stop.request_stop(); };
  try {
    pack_list(list, options);
    FAIL("packing went on");
  } catch (const sml::Error& e) {
    CHECK(e.code() == sml::ErrorCode::kCancelled);
  }
}

TEST_CASE("containers of other records, or with other settings, have other tags") {
  const auto tag_of = [](const Bytes& bytes) {
    return sml::ContainerReader(std::make_shared<sml::MemorySource>(bytes)).header().tag;
  };
  std::set<std::uint32_t> tags;
  Records records = mixed_records();
  sml::PackOptions options = small_blocks();
  tags.insert(tag_of(pack_list(TestList(records), options)));
  options.seed = 77;
  tags.insert(tag_of(pack_list(TestList(records), options)));
  records.front().first += "x";
  tags.insert(tag_of(pack_list(TestList(records), options)));
  records.front().second += "x";
  tags.insert(tag_of(pack_list(TestList(records), options)));
  records.pop_back();
  tags.insert(tag_of(pack_list(TestList(records), options)));
  CHECK(tags.size() == 5);
  // A stream's are told by the bytes with which it begins.
  options.order = sml::PackOrder::kInput;
  for (const char* content : {"a", "b"}) {
    records.front().second = content;
    TestStream stream(records, true);
    sml::MemorySink sink;
    sml::pack(stream, options, sink);
    tags.insert(tag_of(sink.bytes()));
  }
  CHECK(tags.size() == 7);
}
