#include "smlformat/key.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"

namespace {

// The definition of format-spec/keys.md, letter by letter.
std::string stem_by_definition(const std::string& key) {
  std::size_t base = 0;
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (key[i] == '/') base = i + 1;
  }
  std::size_t at = base;
  while (at < key.size() && key[at] == '.') ++at;
  while (at < key.size() && key[at] != '.') ++at;
  return key.substr(0, at);
}

int compare_bytes(const std::string& a, const std::string& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const int difference = static_cast<unsigned char>(a[i]) - static_cast<unsigned char>(b[i]);
    if (difference != 0) return difference < 0 ? -1 : 1;
  }
  return a.size() < b.size() ? -1 : (a.size() > b.size() ? 1 : 0);
}

int compare_by_definition(const std::string& a, const std::string& b) {
  const int by_stem = compare_bytes(stem_by_definition(a), stem_by_definition(b));
  return by_stem != 0 ? by_stem : compare_bytes(a, b);
}

int sign(std::strong_ordering order) { return order < 0 ? -1 : (order > 0 ? 1 : 0); }

}  // namespace

TEST_CASE("a key has 1 to 4096 bytes, any but NUL") {
  std::string every_byte;
  for (int c = 1; c < 256; ++c) every_byte.push_back(static_cast<char>(c));
  for (const std::string& key :
       {std::string("a"), std::string(4096, 'k'), every_byte, std::string("-\n'\"/../")}) {
    CHECK(sml::is_valid_key(key));
    CHECK_NOTHROW(sml::check_key(key));
  }
  for (const std::string& key :
       {std::string(), std::string(4097, 'k'), std::string("a\0b", 3), std::string(1, '\0')}) {
    CHECK_FALSE(sml::is_valid_key(key));
    try {
      sml::check_key(key);
      FAIL("no error");
    } catch (const sml::Error& error) {
      CHECK(error.code() == sml::ErrorCode::kInvalidArgument);
    }
  }
}

TEST_CASE("the stem ends at the first dot of the base name, leading dots not counted") {
  const std::vector<std::pair<std::string, std::string>> known = {
      {"a/001.seg.png", "a/001"},
      {".hidden", ".hidden"},
      {".x.png", ".x"},
      {"a", "a"},
      {"a.b/c", "a.b/c"},
      {"a.b/c.d", "a.b/c"},
      {"a.b/.c", "a.b/.c"},
      {"a.b/..c.d", "a.b/..c"},
      {"..", ".."},
      {"a/...", "a/..."},
      {"a.", "a"},
      {"a..b", "a"},
      {"dir.d/", "dir.d/"},
      {"/", "/"},
      {"", ""},
  };
  for (const auto& pair : known) {
    CAPTURE(pair.first);
    CHECK(sml::key_stem(pair.first) == pair.second);
  }
}

TEST_CASE("names sort by stem, then by key") {
  // As bytes, '-' sorts before '.', and would part the records of "a" from one another.
  const std::vector<std::string> sorted = {
      ".x.png",    "a",           "a.jpg",      "a.seg.png", "a-b.jpg", "a/001.cls",
      "a/001.jpg", "a/001-x.jpg", "a/0010.jpg", "a0",        "b.c/d",   "\xff.a",
  };
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      CAPTURE(sorted[i]);
      CAPTURE(sorted[j]);
      CHECK(sml::compare_names(sorted[i], sorted[j]) == (i <=> j));
    }
  }
}

TEST_CASE("stem and name order agree with their definition on every short key") {
  const std::string alphabet = "./-z";
  std::vector<std::string> keys = {""};
  for (std::size_t from = 0, length = 1; length <= 5; ++length) {
    const std::size_t to = keys.size();
    for (; from < to; ++from) {
      for (const char c : alphabet) keys.push_back(keys[from] + c);
    }
  }
  std::size_t wrong = 0;
  for (const std::string& a : keys) {
    wrong += sml::key_stem(a) != stem_by_definition(a);
    for (const std::string& b : keys) {
      wrong += sign(sml::compare_names(a, b)) != compare_by_definition(a, b);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("name order agrees with its definition behind long common beginnings") {
  const std::vector<std::string> tails = {"",      ".",     "-",    "z",     "/",
                                          "z.a",   "z-a",   "z/a",  ".a.b",  "a.b/c",
                                          "a-b/c", "a/b.c", "\x80", "\xff.", "a.\xff"};
  for (const std::string& head : {std::string("0123456789abcdef"), std::string("dir.d/0123456"),
                                  std::string("d/name.ext.0123456789"), std::string("x/......")}) {
    for (const std::string& a : tails) {
      for (const std::string& b : tails) {
        CAPTURE(head + a);
        CAPTURE(head + b);
        CHECK(sign(sml::compare_names(head + a, head + b)) ==
              compare_by_definition(head + a, head + b));
      }
    }
  }
}

TEST_CASE("a key's hash is its XXH3-64") {
  CHECK(sml::key_hash("abc") == 0x78af5f94892f3950);
  CHECK(sml::key_hash("a") == 0xe6c632b61e964e1f);
}
