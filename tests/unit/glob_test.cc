#include "smlstore/glob.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "smlformat/error.h"

namespace {

using sml::Glob;

bool matches(std::string_view pattern, std::string_view key) { return Glob(pattern).matches(key); }

std::string refusal(std::string_view pattern) {
  try {
    const Glob glob(pattern);
  } catch (const sml::Error& e) {
    CHECK(e.code() == sml::ErrorCode::kInvalidArgument);
    return e.what();
  }
  return "accepted";
}

// The rules once more, as plain backtracking over the text of a pattern of literals, ?, *, ** and /
// only.
bool slow_match(std::string_view pattern, std::string_view key, bool component_start) {
  if (pattern.empty()) return key.empty();
  if (pattern.starts_with("**") && component_start && (pattern.size() == 2 || pattern[2] == '/')) {
    if (pattern.size() == 2) return true;
    const std::string_view rest = pattern.substr(3);
    if (slow_match(rest, key, true)) return true;
    for (std::size_t i = 0; i < key.size(); ++i) {
      if (key[i] == '/' && slow_match(rest, key.substr(i + 1), true)) return true;
    }
    return false;
  }
  if (pattern[0] == '*') {
    const std::string_view rest =
        pattern.substr(std::min(pattern.find_first_not_of('*'), pattern.size()));
    for (std::size_t i = 0;; ++i) {
      if (slow_match(rest, key.substr(i), false)) return true;
      if (i == key.size() || key[i] == '/') return false;
    }
  }
  if (key.empty() || (pattern[0] == '?' ? key[0] == '/' : key[0] != pattern[0])) return false;
  return slow_match(pattern.substr(1), key.substr(1), pattern[0] == '/');
}

}  // namespace

TEST_CASE("a glob without wildcards matches one key, as a whole") {
  CHECK(matches("a/b.png", "a/b.png"));
  CHECK_FALSE(matches("a/b.png", "a/b.pn"));
  CHECK_FALSE(matches("a/b.png", "a/b.png2"));
  CHECK_FALSE(matches("b.png", "a/b.png"));
  CHECK(*Glob("a/b.png").literal() == "a/b.png");
  CHECK(*Glob("a\\*b").literal() == "a*b");
  CHECK(Glob("a*").literal() == nullptr);
  CHECK_FALSE(matches("", "a"));
}

TEST_CASE("* and ? stay within a directory; dots and other bytes are ordinary") {
  CHECK(matches("*.png", "a.png"));
  CHECK(matches("*.png", ".png"));
  CHECK(matches("*", ".hidden"));
  CHECK_FALSE(matches("*.png", "d/a.png"));
  CHECK_FALSE(matches("*", "a/b"));
  CHECK(matches("*/*", "a/b"));
  CHECK(matches("a*c*e", "abcde"));
  CHECK(matches("a*c*e", "ace"));
  CHECK(matches("a*c*e", "acce"));
  CHECK_FALSE(matches("a*c*e", "acd"));
  CHECK(matches("a?c", "abc"));
  CHECK(matches("a?c", "a\xff\x63"));
  CHECK(matches("a?c", "a\nc"));
  CHECK_FALSE(matches("a?c", "a/c"));
  CHECK_FALSE(matches("a?c", "ac"));
  CHECK_FALSE(matches("??", "\xc3\xa4x"));  // bytes, not characters
  CHECK(matches("???", "\xc3\xa4x"));
  CHECK(matches("{a,b}", "{a,b}"));
  CHECK(matches("n*/n*_1?.JPEG", "n01440764/n01440764_18.JPEG"));
  CHECK_FALSE(matches("n*/n*_1?.JPEG", "n01440764/n01440764_188.JPEG"));
}

TEST_CASE("**/ is zero or more directories") {
  CHECK(matches("**/x", "x"));
  CHECK(matches("**/x", "a/x"));
  CHECK(matches("**/x", "a/b/x"));
  CHECK_FALSE(matches("**/x", "ax"));
  CHECK_FALSE(matches("**/x", "a/bx"));
  CHECK(matches("a/**/b", "a/b"));
  CHECK(matches("a/**/b", "a/x/y/b"));
  CHECK_FALSE(matches("a/**/b", "ab"));
  CHECK_FALSE(matches("a/**/b", "a/xb"));
  CHECK(matches("**/*.png", "x.png"));
  CHECK(matches("**/*.png", "a/b/.png"));
  CHECK_FALSE(matches("**/*.png", "a/b/c.jpg"));
  CHECK(matches("**/a/**/b/*", "a/b/c"));
  CHECK(matches("**/a/**/b/*", "1/a/2/3/b/c"));
  CHECK_FALSE(matches("**/a/**/b/*", "1/a/2/3/b/c/d"));
  CHECK(matches("**/**/x", "x"));
  CHECK(matches("**/**/x", "a/x"));
}

TEST_CASE("** at the end is everything below; elsewhere it is a *") {
  CHECK(matches("**", "a"));
  CHECK(matches("**", "a/b/c"));
  CHECK(matches("a/**", "a/b"));
  CHECK(matches("a/**", "a/b/c"));
  CHECK_FALSE(matches("a/**", "a"));
  CHECK_FALSE(matches("a/**", "ab"));
  CHECK(matches("**/a/**", "x/a/y/z"));
  CHECK_FALSE(matches("**/a/**", "x/b/y/z"));
  CHECK(matches("a**", "abc"));
  CHECK_FALSE(matches("a**", "a/b"));
  CHECK(matches("a**/b", "axx/b"));
  CHECK_FALSE(matches("a**/b", "a/x/b"));
  CHECK_FALSE(matches("***", "a/b"));
  CHECK_FALSE(matches("***/b", "a/c/b"));
}

TEST_CASE("sets") {
  CHECK(matches("[a-c]x", "bx"));
  CHECK_FALSE(matches("[a-c]x", "dx"));
  CHECK(matches("[!a-c]x", "dx"));
  CHECK(matches("[^a-c]x", "dx"));
  CHECK_FALSE(matches("[!a-c]x", "bx"));
  CHECK_FALSE(matches("[!a]b", "/b"));
  CHECK_FALSE(matches("a[/]b", "a/b"));
  CHECK_FALSE(matches("a[+-:]b", "a/b"));
  CHECK(matches("[]]", "]"));
  CHECK(matches("[]a]", "a"));
  CHECK_FALSE(matches("[!]]", "]"));
  CHECK(matches("[!]]", "a"));
  CHECK(matches("[a-]", "-"));
  CHECK(matches("[-a]", "-"));
  CHECK(matches("[[]", "["));
  CHECK(matches("[\\]]", "]"));
  CHECK(matches("[\\!a]", "!"));
  CHECK(matches("[a!]", "!"));
  CHECK(matches("[\xf0-\xff]", "\xf5"));
  CHECK(matches("a]", "a]"));
  CHECK(matches("[0-9][0-9].*", "42.png"));
}

TEST_CASE("a backslash makes the next byte ordinary") {
  CHECK(matches("\\*", "*"));
  CHECK_FALSE(matches("\\*", "a"));
  CHECK(matches("\\[a]", "[a]"));
  CHECK(matches("\\\\", "\\"));
  CHECK(matches("\\a", "a"));
  CHECK(matches("a\\/**", "a/b/c"));
}

TEST_CASE("what is no pattern is refused") {
  CHECK(refusal("a[b") == "glob 'a[b': [ is not closed");
  CHECK(refusal("[") == "glob '[': [ is not closed");
  CHECK(refusal("[]") == "glob '[]': [ is not closed");
  CHECK(refusal("[!]") == "glob '[!]': [ is not closed");
  CHECK(refusal("[a-") == "glob '[a-': [ is not closed");
  CHECK(refusal("[\\") == "glob '[\\\\': [ is not closed");
  CHECK(refusal("[z-a]") == "glob '[z-a]': a range in [] is out of order");
  CHECK(refusal("a\\") == "glob 'a\\\\': a lone backslash at the end");
  CHECK(refusal("x\n[") == "glob 'x\\n[': [ is not closed");
}

TEST_CASE("globs agree with backtracking over random patterns and keys") {
  const unsigned seed = 20240511;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string_view pattern_bytes = "ab/*?*/";
  const std::string_view key_bytes = "ab/";
  int matched = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string pattern;
    for (std::size_t i = random() % 10; i > 0; --i)
      pattern += pattern_bytes[random() % pattern_bytes.size()];
    std::string key;
    for (std::size_t i = 1 + random() % 8; i > 0; --i)
      key += key_bytes[random() % key_bytes.size()];
    const bool expected = slow_match(pattern, key, true);
    if (matches(pattern, key) != expected) {
      CAPTURE(pattern);
      CAPTURE(key);
      CHECK(matches(pattern, key) == expected);
    }
    matched += expected ? 1 : 0;
  }
  CHECK(matched > 5'000);
}

TEST_CASE("patterns of more than 64 parts match across machine words") {
  std::string pattern = "[x]";
  std::string key = "x";
  for (int i = 0; i < 200; ++i) {
    pattern += i % 50 == 0 ? "/**/a*" : "?[bc]";
    key += i % 50 == 0 ? "/d/e/afg" : "yb";
    CHECK(matches(pattern, key));
    CHECK_FALSE(matches(pattern + "[x]", key));
  }
  CHECK(matches(pattern + "**", key));
  CHECK_FALSE(matches(pattern, key + "/"));
}

TEST_CASE("no pattern makes matching explode") {
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "*a**/";
  const std::string key(4096, 'a');
  CHECK_FALSE(matches(pattern + "b", key));
  std::string directories;
  for (int i = 0; i < 60; ++i) directories += "**/a*/";
  std::string deep;
  while (deep.size() < 4000) deep += "ab/";
  CHECK_FALSE(matches(directories + "[c]", deep));
  CHECK(matches(directories + "**", deep));
  // Longer than any key: nothing can match, and nothing overflows.
  std::string endless = "[x]";
  for (int i = 0; i < 10'000; ++i) endless += "?*";
  CHECK_FALSE(matches(endless, "x" + std::string(4095, 'a')));
}
