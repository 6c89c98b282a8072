#include "smlstore/glob.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "quote.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {
namespace {

// A key has at most kMaxKeyBytes bytes, and between two tokens that consume one there is at most a
// star or a pair of directory tokens: longer patterns match nothing.
constexpr std::size_t kMaxWords = (3 * kMaxKeyBytes + 3) / 64 + 1;

using ByteSet = std::array<std::uint64_t, 4>;

void insert(ByteSet& set, unsigned char byte) noexcept {
  set[byte >> 6U] |= std::uint64_t{1} << (byte & 63U);
}
bool contains(const ByteSet& set, unsigned char byte) noexcept {
  return (set[byte >> 6U] >> (byte & 63U) & 1U) != 0;
}

[[noreturn]] void refuse(std::string_view pattern, const char* why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("glob {}: {}", quote(pattern), why));
}

// Parses a set whose [ is at pattern[at]; leaves `at` behind its ].
ByteSet parse_set(std::string_view pattern, std::size_t& at) {
  ByteSet set{};
  ++at;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  const auto next = [&] {
    if (at >= pattern.size()) refuse(pattern, "[ is not closed");
    if (pattern[at] == '\\' && ++at >= pattern.size()) refuse(pattern, "[ is not closed");
    return static_cast<unsigned char>(pattern[at++]);
  };
  for (bool first = true;; first = false) {
    if (at >= pattern.size()) refuse(pattern, "[ is not closed");
    if (pattern[at] == ']' && !first) break;
    const unsigned char low = next();
    unsigned char high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
      ++at;
      high = next();
      if (high < low) refuse(pattern, "a range in [] is out of order");
    }
    for (unsigned byte = low; byte <= high; ++byte) insert(set, static_cast<unsigned char>(byte));
  }
  ++at;
  if (negated) {
    for (std::uint64_t& word : set) word = ~word;
  }
  set['/' >> 6U] &= ~(std::uint64_t{1} << ('/' & 63U));
  return set;
}

}  // namespace

std::vector<Glob::Token> Glob::parse(std::string_view pattern) {
  using Kind = Token::Kind;
  std::vector<Token> tokens;
  bool component_start = true;
  for (std::size_t at = 0; at < pattern.size();) {
    Token token;
    const char c = pattern[at];
    if (c == '*') {
      const std::size_t stars = std::min(pattern.find_first_not_of('*', at), pattern.size()) - at;
      at += stars;
      if (stars == 2 && component_start && (at == pattern.size() || pattern[at] == '/')) {
        if (at == pattern.size()) {
          token.kind = Kind::kRest;
          tokens.push_back(token);
        } else {
          ++at;
          if (tokens.empty() || tokens.back().kind != Kind::kInside) {
            token.kind = Kind::kEnter;
            tokens.push_back(token);
            token.kind = Kind::kInside;
            tokens.push_back(token);
          }
        }
        continue;  // still at the start of a component
      }
      token.kind = Kind::kStar;
    } else if (c == '[') {
      token.bytes = parse_set(pattern, at);
    } else if (c == '?') {
      ++at;
      token.bytes = {~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}};
      token.bytes['/' >> 6U] &= ~(std::uint64_t{1} << ('/' & 63U));
    } else {
      if (c == '\\' && ++at == pattern.size()) refuse(pattern, "a lone backslash at the end");
      token.single = true;
      token.byte = static_cast<unsigned char>(pattern[at++]);
      insert(token.bytes, token.byte);
    }
    component_start = token.single && token.byte == '/';
    tokens.push_back(token);
  }
  return tokens;
}

Glob::Glob(std::string_view pattern) {
  using Kind = Token::Kind;
  std::vector<Token> tokens = parse(pattern);
  const auto is_literal = [](const Token& token) { return token.single; };
  std::size_t begin = 0;
  while (begin < tokens.size() && is_literal(tokens[begin])) {
    prefix_.push_back(static_cast<char>(tokens[begin++].byte));
  }
  std::size_t end = tokens.size();
  while (end > begin && is_literal(tokens[end - 1])) --end;
  for (std::size_t i = end; i < tokens.size(); ++i)
    suffix_.push_back(static_cast<char>(tokens[i].byte));
  tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(end), tokens.end());
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(begin));

  if (tokens.empty()) {
    shape_ = Shape::kLiteral;
  } else if (tokens.size() == 1 && tokens[0].kind == Kind::kStar) {
    shape_ = Shape::kStar;
  } else if (tokens.size() == 1 && tokens[0].kind == Kind::kRest) {
    shape_ = Shape::kRest;
  } else if (tokens.size() == 2 && tokens[0].kind == Kind::kEnter) {
    shape_ = Shape::kDirectories;
  } else if (tokens.size() / 64 + 1 > kMaxWords) {
    shape_ = Shape::kNever;
  } else {
    shape_ = Shape::kMachine;
    build_machine(tokens);
  }
}

void Glob::build_machine(const std::vector<Token>& tokens) {
  using Kind = Token::Kind;
  accept_ = tokens.size();
  words_ = accept_ / 64 + 1;
  advance_.assign(256 * words_, 0);
  stay_.assign(2 * words_, 0);
  skip_one_.assign(words_, 0);
  skip_two_.assign(words_, 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const std::size_t word = i / 64;
    const std::uint64_t bit = std::uint64_t{1} << (i % 64);
    switch (token.kind) {
      case Kind::kBytes:
        for (unsigned byte = 0; byte < 256; ++byte) {
          if (contains(token.bytes, static_cast<unsigned char>(byte)))
            advance_[byte * words_ + word] |= bit;
        }
        break;
      case Kind::kStar:
        stay_[word] |= bit;
        skip_one_[word] |= bit;
        break;
      case Kind::kRest:
        stay_[word] |= bit;
        stay_[words_ + word] |= bit;
        skip_one_[word] |= bit;
        break;
      case Kind::kEnter:
        skip_one_[word] |= bit;
        skip_two_[word] |= bit;
        break;
      case Kind::kInside:
        stay_[word] |= bit;
        stay_[words_ + word] |= bit;
        advance_['/' * words_ + word] |= bit;
        break;
    }
  }
}

// `words` is words_, as a constant where it is 1. `states` comes cleared.
template <class Words>
bool Glob::run(std::string_view key, Words words, std::uint64_t* states,
               std::uint64_t* next) const noexcept {
  const std::size_t n = words;
  // Directory tokens lead at most to a star, and a star to neither: two rounds reach everything.
  const auto skip = [&](std::uint64_t* s) {
    std::uint64_t carry_one = 0;
    std::uint64_t carry_two = 0;
    for (std::size_t w = 0; w < n; ++w) {
      const std::uint64_t two = s[w] & skip_two_[w];
      s[w] |= two << 2U | carry_two;
      carry_two = two >> 62U;
    }
    for (std::size_t w = 0; w < n; ++w) {
      const std::uint64_t one = s[w] & skip_one_[w];
      s[w] |= one << 1U | carry_one;
      carry_one = one >> 63U;
    }
  };
  states[0] = 1;
  skip(states);
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const std::uint64_t* advance = advance_.data() + byte * n;
    const std::uint64_t* stay = stay_.data() + (byte == '/' ? n : 0);
    std::uint64_t carry = 0;
    std::uint64_t any = 0;
    for (std::size_t w = 0; w < n; ++w) {
      const std::uint64_t left = states[w] & advance[w];
      next[w] = left << 1U | carry | (states[w] & stay[w]);
      carry = left >> 63U;
      any |= next[w];
    }
    if (any == 0) return false;
    skip(next);
    std::swap(states, next);
  }
  return (states[accept_ / 64] >> (accept_ % 64) & 1U) != 0;
}

bool Glob::run_machine(std::string_view key) const noexcept {
  if (words_ == 1) {
    std::uint64_t states = 0;
    std::uint64_t next = 0;
    return run(key, std::integral_constant<std::size_t, 1>{}, &states, &next);
  }
  std::uint64_t states[kMaxWords] = {};
  std::uint64_t next[kMaxWords] = {};
  return run(key, words_, states, next);
}

bool Glob::matches(std::string_view key) const noexcept {
  if (shape_ == Shape::kLiteral) return key == prefix_;
  if (key.size() < prefix_.size() + suffix_.size() || !key.starts_with(prefix_) ||
      !key.ends_with(suffix_)) {
    return false;
  }
  const std::string_view middle =
      key.substr(prefix_.size(), key.size() - prefix_.size() - suffix_.size());
  switch (shape_) {
    case Shape::kLiteral:
    case Shape::kNever:
      return false;
    case Shape::kStar:
      return middle.find('/') == std::string_view::npos;
    case Shape::kRest:
      return true;
    case Shape::kDirectories:
      return middle.empty() || middle.back() == '/';
    case Shape::kMachine:
      return run_machine(middle);
  }
  return false;
}

}  // namespace sml
