#include "smlstore/selection.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "support/containers.h"

namespace {

using sml::Dataset;
using sml::Glob;
using sml::Selection;
using sml::SelectionOptions;
using sml::test::Record;

std::function<bool(std::string&)> listed(std::vector<std::string> keys) {
  return [keys = std::move(keys), next = std::size_t{0}](std::string& key) mutable {
    if (next == keys.size()) return false;
    key = keys[next++];
    return true;
  };
}

// The keys of all records of the selected samples.
std::set<std::string> keys_of(const Dataset& dataset, const Selection& selection) {
  CHECK(std::is_sorted(selection.samples.begin(), selection.samples.end()));
  std::set<std::string> keys;
  for (const std::uint64_t sample : selection.samples) {
    const sml::NumberRange range = dataset.sample(sample);
    for (std::uint64_t number = range.first; number < range.last; ++number) {
      std::string key;
      dataset.key_of(number, key);
      keys.insert(key);
    }
  }
  return keys;
}

// Two containers: a/0 to a/19 in one, b/0 to b/9 in the other.
struct Plain {
  Plain() {
    std::vector<Record> a;
    std::vector<Record> b;
    for (int i = 0; i < 20; ++i) a.push_back({"a/" + std::to_string(i), ""});
    for (int i = 0; i < 10; ++i) b.push_back({"b/" + std::to_string(i), ""});
    dir.write("a.sml", sml::test::build_container(a));
    dir.write("b.sml", sml::test::build_container(b));
    dataset = Dataset::open(sml::Location{dir.path()});
  }
  std::set<std::string> keys(const SelectionOptions& options) const {
    return keys_of(dataset, select(dataset, options));
  }

  sml::test::TemporaryDirectory dir;
  Dataset dataset;
};

struct Grouped {
  Grouped() {
    sml::test::ContainerOptions options;
    options.grouping = sml::Grouping::kStem;
    dir.write("g.sml", sml::test::build_container({{"1.jpg", ""},
                                                   {"1.cls", ""},
                                                   {"2.jpg", ""},
                                                   {"2.cls", ""},
                                                   {"2.seg.png", ""},
                                                   {"3.jpg", ""}},
                                                  options));
    dataset = Dataset::open(sml::Location{dir.path()});
  }
  std::set<std::string> keys(const SelectionOptions& options) const {
    return keys_of(dataset, select(dataset, options));
  }

  sml::test::TemporaryDirectory dir;
  Dataset dataset;
};

}  // namespace

TEST_CASE("without keys or globs all samples are selected") {
  const Plain plain;
  const Selection all = select(plain.dataset, {});
  CHECK(all.samples.size() == 30);
  CHECK(all.samples.front() == 0);
  CHECK(all.samples.back() == 29);
}

TEST_CASE("listed keys are selected, in any order, once") {
  const Plain plain;
  SelectionOptions options;
  options.next_key = listed({"b/3", "a/7", "b/3"});
  CHECK(plain.keys(options) == std::set<std::string>{"a/7", "b/3"});
  options.next_key = listed({});
  CHECK(plain.keys(options).empty());
}

TEST_CASE("an unknown key fails, named") {
  const Plain plain;
  SelectionOptions options;
  options.next_key = listed({"b/3", "no\nsuch"});
  try {
    select(plain.dataset, options);
    FAIL("selected");
  } catch (const sml::Error& e) {
    CHECK(e.code() == sml::ErrorCode::kNotFound);
    CHECK(std::string(e.what()) == "no record has the key 'no\\nsuch'");
  }
}

TEST_CASE("globs select and exclude through all containers") {
  const Plain plain;
  SelectionOptions options;
  options.match = {Glob("?/[12]"), Glob("b/9")};
  CHECK(plain.keys(options) == std::set<std::string>{"a/1", "a/2", "b/1", "b/2", "b/9"});
  options.exclude = {Glob("a/**")};
  CHECK(plain.keys(options) == std::set<std::string>{"b/1", "b/2", "b/9"});
  options.next_key = listed({"b/5", "a/5"});
  CHECK(plain.keys(options) == std::set<std::string>{"b/1", "b/2", "b/5", "b/9"});
  options = {};
  options.exclude = {Glob("a/*"), Glob("b/[0-7]")};
  CHECK(plain.keys(options) == std::set<std::string>{"b/8", "b/9"});
}

TEST_CASE("globs without wildcards select the same as others") {
  const Plain plain;
  SelectionOptions options;
  options.match = {Glob("a/3"), Glob("b/4"), Glob("absent")};
  options.exclude = {Glob("b/4")};
  CHECK(plain.keys(options) == std::set<std::string>{"a/3"});
  options.match.emplace_back("x*");
  CHECK(plain.keys(options) == std::set<std::string>{"a/3"});
}

TEST_CASE("a sample is in if any of its records is selected, and out if any is excluded") {
  const Grouped grouped;
  SelectionOptions options;
  options.match = {Glob("*.cls")};
  CHECK(grouped.keys(options) ==
        std::set<std::string>{"1.cls", "1.jpg", "2.cls", "2.jpg", "2.seg.png"});
  options.exclude = {Glob("*.seg.png")};
  CHECK(grouped.keys(options) == std::set<std::string>{"1.cls", "1.jpg"});
  options = {};
  options.next_key = listed({"3.jpg", "1.jpg"});
  CHECK(grouped.keys(options) == std::set<std::string>{"1.cls", "1.jpg", "3.jpg"});
}

TEST_CASE("the digest is the XXH3-128 of the record numbers of the selected samples") {
  const auto digest = [](const std::vector<std::uint64_t>& numbers) {
    sml::Bytes bytes(numbers.size() * 8);
    if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return sml::xxh3_128(bytes);
  };
  const Plain plain;
  SelectionOptions options;
  options.match = {Glob("b/*")};
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 20; i < 30; ++i) numbers.push_back(i);
  CHECK(select(plain.dataset, options).digest == digest(numbers));
  options.next_key = listed({"b/0"});
  CHECK(select(plain.dataset, options).digest == digest(numbers));  // however it was said
  options = {};
  options.exclude = {Glob("**")};
  CHECK(select(plain.dataset, options).digest == digest({}));

  // The example of format-spec/order.md.
  std::string key;
  std::vector<std::string> chosen;
  for (const std::uint64_t number : {1U, 2U, 3U, 8U, 12U, 15U}) {
    plain.dataset.key_of(number, key);
    chosen.push_back(key);
  }
  options = {};
  options.next_key = listed(chosen);
  CHECK(select(plain.dataset, options).digest.hex() == "c47e7e5af64e7fc76f51d8bb20bfdf26");

  const Grouped grouped;
  options = {};
  options.match = {Glob("2.jpg")};
  std::uint64_t first = grouped.dataset.find("2.cls").value();  // records of a sample go by key
  CHECK(select(grouped.dataset, options).digest == digest({first, first + 1, first + 2}));
}

TEST_CASE("a key in two containers: ambiguous where it is listed, both where a glob matches") {
  const sml::test::TemporaryDirectory dir;
  dir.write("a.sml", sml::test::build_container({{"k", ""}}));
  dir.write("b.sml", sml::test::build_container({{"k", ""}}));
  const Dataset dataset = Dataset::open(sml::Location{dir.path()});
  SelectionOptions options;
  options.match = {Glob("k")};
  CHECK(select(dataset, options).samples.size() == 2);
  options.match = {Glob("k*")};
  CHECK(select(dataset, options).samples.size() == 2);
  options.next_key = listed({"k"});
  CHECK_THROWS_AS(select(dataset, options), sml::Error);
}
