#include "smlstore/dataset.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "smlformat/key.h"
#include "support/containers.h"

namespace {

using sml::Dataset;
using sml::ErrorCode;
using sml::Location;
using sml::test::build_container;
using sml::test::ContainerOptions;
using sml::test::Record;
using sml::test::TemporaryDirectory;

std::vector<Record> numbered(const std::string& prefix, int count) {
  std::vector<Record> records;
  for (int i = 0; i < count; ++i)
    records.push_back({prefix + std::to_string(i), std::string(static_cast<std::size_t>(i), 'x')});
  return records;
}

ContainerOptions grouped() {
  ContainerOptions options;
  options.grouping = sml::Grouping::kStem;
  return options;
}

ContainerOptions part(std::uint32_t i, std::uint32_t n) {
  ContainerOptions options;
  options.part = i;
  options.parts = n;
  return options;
}

// The records whose stems belong to part i of n.
std::vector<Record> records_of_part(const std::vector<Record>& records, std::uint32_t i,
                                    std::uint32_t n) {
  std::vector<Record> out;
  for (const Record& r : records) {
    if (sml::xxh3_64(sml::as_bytes(sml::key_stem(r.key))) % n == i - 1) out.push_back(r);
  }
  return out;
}

template <class F>
sml::Error error_of(F f) {
  try {
    f();
  } catch (const sml::Error& e) {
    return e;
  }
  return {ErrorCode::kCancelled, "nothing was thrown"};
}

bool contains(const sml::Error& error, std::string_view text) {
  return std::string_view(error.what()).find(text) != std::string_view::npos;
}

std::vector<std::string> names_of(const Dataset& dataset) {
  std::vector<std::string> names;
  for (Dataset::NameCursor at(dataset); !at.done(); at.advance()) {
    names.emplace_back(at.key());
    std::string key;
    dataset.key_of(at.number(), key);
    CHECK(key == at.key());
    CHECK(dataset.container_of_record(at.number()) == at.container());
  }
  return names;
}

}  // namespace

TEST_CASE("one file is a data set of one container") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("photos.sml", build_container(numbered("r", 100)));
  const Dataset dataset = Dataset::open(Location{path});
  REQUIRE(dataset.containers().size() == 1);
  CHECK(dataset.containers()[0].name == "photos");
  CHECK(dataset.records() == 100);
  CHECK(dataset.samples() == 100);
  for (int i = 0; i < 100; ++i) {
    const auto number = dataset.find("r" + std::to_string(i));
    REQUIRE(number);
    CHECK(dataset.raw_bytes(*number) == static_cast<std::uint64_t>(i));
    std::string key;
    dataset.key_of(*number, key);
    CHECK(key == "r" + std::to_string(i));
  }
  CHECK_FALSE(dataset.find("r100"));
  CHECK_FALSE(dataset.find(""));
  CHECK(names_of(dataset).size() == 100);
}

TEST_CASE("a directory is the data set of its containers in the order of their names") {
  const TemporaryDirectory dir;
  dir.write("b.sml", build_container(numbered("b", 3)));
  dir.write("a-b.sml", build_container(numbered("a-b/", 4)));  // '-' < '.': after "a" all the same
  dir.write("a.sml", build_container(numbered("a/", 5)));
  dir.write("empty.sml", build_container({}));
  dir.write("notes.txt", {});
  dir.write(".hidden.sml", {});
  const Dataset dataset = Dataset::open(Location{dir.path() + "/"});
  REQUIRE(dataset.containers().size() == 4);
  CHECK(dataset.containers()[0].name == "a");
  CHECK(dataset.containers()[1].name == "a-b");
  CHECK(dataset.containers()[2].name == "b");
  CHECK(dataset.containers()[3].name == "empty");
  CHECK(dataset.containers()[1].first_record == 5);
  CHECK(dataset.containers()[2].first_record == 9);
  CHECK(dataset.records() == 12);
  const std::vector<std::size_t> expected{0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2};
  for (std::uint64_t number = 0; number < 12; ++number) {
    CHECK(dataset.container_of_record(number) == expected[number]);
    CHECK(dataset.container_of_sample(number) == expected[number]);
    std::string key;
    dataset.key_of(number, key);
    CHECK(dataset.find(key) == number);
  }
  // Merged in name order.
  CHECK(names_of(dataset) == std::vector<std::string>{"a-b/0", "a-b/1", "a-b/2", "a-b/3", "a/0",
                                                      "a/1", "a/2", "a/3", "a/4", "b0", "b1",
                                                      "b2"});
}

TEST_CASE("the merge of many containers is in name order, by stem") {
  const TemporaryDirectory dir;
  std::vector<std::string> all;
  std::vector<std::vector<Record>> records(17);
  for (int i = 0; i < 2000; ++i) {
    const std::string key = "d" + std::to_string(i % 7) + "/" + std::to_string(i / 2) +
                            (i % 2 == 0 ? ".cls" : ".seg.png");
    records[static_cast<std::size_t>(i * 31 % 17)].push_back({key, ""});
    all.push_back(key);
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    dir.write("c" + std::to_string(i) + ".sml", build_container(records[i]));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return sml::compare_names(a, b) < 0; });
  CHECK(names_of(Dataset::open(Location{dir.path()})) == all);
}

TEST_CASE("samples of grouped containers keep their records together") {
  const TemporaryDirectory dir;
  dir.write(
      "a.sml",
      build_container(
          {{"1.jpg", "j"}, {"1.cls", "c"}, {"2.jpg", "j"}, {"3.a", ""}, {"3.b", ""}, {"3.c", ""}},
          grouped()));
  dir.write("b.sml", build_container({{"7.jpg", "j"}, {"7.cls", "c"}}, grouped()));
  const Dataset dataset = Dataset::open(Location{dir.path()});
  CHECK(dataset.grouping() == sml::Grouping::kStem);
  CHECK(dataset.records() == 8);
  REQUIRE(dataset.samples() == 4);
  std::map<std::string, std::uint64_t> sizes;
  std::uint64_t next = 0;
  for (std::uint64_t sample = 0; sample < 4; ++sample) {
    const sml::NumberRange range = dataset.sample(sample);
    CHECK(range.first == next);
    next = range.last;
    for (std::uint64_t number = range.first; number < range.last; ++number) {
      CHECK(dataset.sample_of(number) == sample);
      std::string key;
      dataset.key_of(number, key);
      ++sizes[std::string(sml::key_stem(key))];
    }
  }
  CHECK(next == 8);
  CHECK(sizes == std::map<std::string, std::uint64_t>{{"1", 2}, {"2", 1}, {"3", 3}, {"7", 2}});
}

TEST_CASE("containers that disagree about grouping are no data set") {
  const TemporaryDirectory dir;
  dir.write("a.sml", build_container({{"1", ""}}));
  dir.write("b.sml", build_container({{"2", ""}}, grouped()));
  const sml::Error error = error_of([&] { Dataset::open(Location{dir.path()}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(contains(error, "'a' has none, 'b' has stem"));
}

TEST_CASE("a key in two of three containers is ambiguous, and both are named") {
  const TemporaryDirectory dir;
  dir.write("a.sml", build_container({{"k1", ""}, {"twice", "1"}}));
  dir.write("b.sml", build_container({{"k2", ""}}));
  dir.write("c.sml", build_container({{"k3", ""}, {"twice", "2"}}));
  const Dataset dataset = Dataset::open(Location{dir.path()});
  const sml::Error error = error_of([&] { dataset.find("twice"); });
  CHECK(error.code() == ErrorCode::kAmbiguous);
  CHECK(std::string(error.what()) == "key 'twice' is in containers 'a' and 'c'");
  CHECK(dataset.find("k1"));
  CHECK(dataset.find("k3"));
  CHECK(names_of(dataset) == std::vector<std::string>{"k1", "k2", "k3", "twice", "twice"});
}

TEST_CASE("what is not there or no container is refused by name") {
  const TemporaryDirectory dir;
  CHECK(error_of([&] { Dataset::open(Location{dir.file("none.sml")}); }).code() ==
        ErrorCode::kNotFound);
  CHECK(error_of([&] { Dataset::open(Location{dir.file("none/")}); }).code() ==
        ErrorCode::kNotFound);
  CHECK(error_of([&] { Dataset::open(Location{dir.path()}); }).code() == ErrorCode::kNotFound);
  const std::string path = dir.write("bad.sml", sml::as_bytes(std::string(1000, 'x')));
  const sml::Error error = error_of([&] { Dataset::open(Location{path}); });
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK(contains(error, path + ": "));
}

TEST_CASE("parts: all must be there, once each, of one whole") {
  const TemporaryDirectory dir;
  const std::vector<Record> records = numbered("r", 60);
  dir.write("x-1-of-3.sml", build_container(records_of_part(records, 1, 3), part(1, 3)));
  dir.write("x-3-of-3.sml", build_container(records_of_part(records, 3, 3), part(3, 3)));
  dir.write("other.sml", build_container({{"beside", ""}}));

  const sml::Error missing = error_of([&] { Dataset::open(Location{dir.path()}); });
  CHECK(missing.code() == ErrorCode::kInvalidArgument);
  CHECK(contains(missing, "part 2 of 3 missing"));
  sml::DatasetOptions partial;
  partial.partial = true;
  CHECK(Dataset::open(Location{dir.path()}, partial).containers().size() == 3);
  // One part named as a file is what it is.
  CHECK(Dataset::open(Location{dir.file("x-1-of-3.sml")}).containers().size() == 1);

  dir.write("x-2-of-3.sml", build_container(records_of_part(records, 2, 3), part(2, 3)));
  const Dataset whole = Dataset::open(Location{dir.path()});
  CHECK(whole.records() == 61);
  for (const Record& r : records) CHECK(whole.find(r.key));
  CHECK(whole.find("beside"));

  dir.write("y-2-of-3.sml", build_container({}, part(2, 3)));
  const sml::Error twice = error_of([&] { Dataset::open(Location{dir.path()}, partial); });
  CHECK(twice.code() == ErrorCode::kInvalidArgument);
  CHECK(contains(twice, "part 2 of 3 is there twice: 'x-2-of-3' and 'y-2-of-3'"));

  dir.write("y-2-of-3.sml", build_container({}, part(2, 4)));
  const sml::Error mixed = error_of([&] { Dataset::open(Location{dir.path()}, partial); });
  CHECK(contains(mixed, "'x-1-of-3' is one of 3 parts, 'y-2-of-3' one of 4"));
}

TEST_CASE("the digest names the containers in order") {
  const TemporaryDirectory one;
  one.write("a.sml", build_container({{"1", "x"}}));
  one.write("b.sml", build_container({{"2", "x"}}));
  const TemporaryDirectory same;
  same.write("p.sml", build_container({{"1", "x"}}));
  same.write("q.sml", build_container({{"2", "x"}}));
  const TemporaryDirectory swapped;
  swapped.write("a.sml", build_container({{"2", "x"}}));
  swapped.write("b.sml", build_container({{"1", "x"}}));
  const auto digest = [](const TemporaryDirectory& dir) {
    return Dataset::open(Location{dir.path()}).digest();
  };
  CHECK(digest(one) == digest(same));
  CHECK(digest(one) != digest(swapped));
}

TEST_CASE("unique keys are checked against every container, whatever the sizes") {
  const TemporaryDirectory dir;
  dir.write("big.sml", build_container(numbered("big", 500)));
  dir.write("small.sml", build_container(numbered("small", 3)));
  const Dataset dataset = Dataset::open(Location{dir.path()});
  const auto check = [&](std::vector<Record> records, const std::string& extra) {
    if (!extra.empty()) records.push_back({extra, ""});
    const sml::Bytes bytes = build_container(records);
    const sml::ContainerReader added(std::make_shared<sml::MemorySource>(bytes));
    return error_of([&] {
      check_unique_keys(dataset, added, "new");
      throw sml::Error(ErrorCode::kCancelled, "unique");
    });
  };
  for (const int count : {0, 1, 90, 400, 4000}) {
    CAPTURE(count);
    CHECK(check(numbered("added", count), "").code() == ErrorCode::kCancelled);
    const sml::Error in_big = check(numbered("added", count), "big123");
    CHECK(in_big.code() == ErrorCode::kAlreadyExists);
    CHECK(std::string(in_big.what()) == "key 'big123' is in container 'big' and in 'new'");
    CHECK(std::string(check(numbered("added", count), "small2").what()) ==
          "key 'small2' is in container 'small' and in 'new'");
  }
}
