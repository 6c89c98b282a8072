#include "smlformat/key.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"

namespace sml {
namespace {

bool contains(std::string_view text, char wanted) noexcept {
  return !text.empty() && std::memchr(text.data(), wanted, text.size()) != nullptr;
}

// The length of the longest common prefix.
std::size_t mismatch(std::string_view a, std::string_view b) noexcept {
  const std::size_t size = std::min(a.size(), b.size());
  if (size < 8) {
    std::size_t i = 0;
    while (i < size && a[i] == b[i]) ++i;
    return i;
  }
  const auto difference = [&](std::size_t at) {
    return load<std::uint64_t>(a.data() + at) ^ load<std::uint64_t>(b.data() + at);
  };
  const auto equal_bytes = [](std::uint64_t bits) {
    return static_cast<std::size_t>(std::countr_zero(bits)) / 8;
  };
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    if (const auto bits = difference(at); bits != 0) return at + equal_bytes(bits);
  }
  // The last word overlaps the one before it; of equal words, countr_zero makes 8 bytes.
  return size - 8 + equal_bytes(difference(size - 8));
}

bool is_continuation(unsigned char byte) noexcept { return (byte & 0xc0) == 0x80; }

// Length of the UTF-8 sequence at the front of `text`, as in RFC 3629; 0 where there is none.
std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(static_cast<unsigned char>(at(i)))) return 0;
  }
  const unsigned second = at(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool out_of_range = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || out_of_range ? 0 : length;
}

}  // namespace

bool is_valid_key(std::string_view key) noexcept {
  return !key.empty() && key.size() <= kMaxKeyBytes && !contains(key, '\0');
}

void check_key(std::string_view key) {
  if (key.empty()) throw Error(ErrorCode::kInvalidArgument, "a key of no bytes");
  if (key.size() > kMaxKeyBytes) {
    throw Error(ErrorCode::kInvalidArgument, "a key of " + std::to_string(key.size()) +
                                                 " bytes; the limit is " +
                                                 std::to_string(kMaxKeyBytes));
  }
  if (contains(key, '\0')) throw Error(ErrorCode::kInvalidArgument, "a key with a NUL byte");
}

std::string_view key_stem(std::string_view key) noexcept {
  if (key.empty()) return key;
  const char* const end = key.data() + key.size();
  const auto* slash = static_cast<const char*>(memrchr(key.data(), '/', key.size()));
  const char* at = slash == nullptr ? key.data() : slash + 1;
  while (at != end && *at == '.') ++at;
  const auto left = static_cast<std::size_t>(end - at);
  const auto* dot = left == 0 ? nullptr : static_cast<const char*>(std::memchr(at, '.', left));
  return dot == nullptr ? key : key.substr(0, static_cast<std::size_t>(dot - key.data()));
}

std::strong_ordering compare_names(std::string_view a, std::string_view b) noexcept {
  // Everything is settled by the first byte that differs, save where the stems end differently;
  // those cases are rare, and only they need the stems.
  const std::size_t at = mismatch(a, b);
  // A key sorts before every longer key that begins with it: so does its stem.
  if (at == a.size() || at == b.size()) return a.size() <=> b.size();
  const auto byte_a = static_cast<unsigned char>(a[at]);
  const auto byte_b = static_cast<unsigned char>(b[at]);
  const auto by_bytes = byte_a <=> byte_b;
  // A dot at the first difference may end a stem, which then sorts before bytes below the dot.
  const bool dot_above = std::max(byte_a, byte_b) == '.';
  if (!dot_above) {
    // A dot before the first difference ends the stem unless a slash follows it.
    if (!contains(a.substr(0, at), '.')) return by_bytes;
    if (contains(a.substr(at), '/') == contains(b.substr(at), '/')) return by_bytes;
  }
  const std::string_view stem_a = key_stem(a);
  const std::string_view stem_b = key_stem(b);
  if (at < std::min(stem_a.size(), stem_b.size())) return by_bytes;
  if (stem_a.size() != stem_b.size()) return stem_a.size() <=> stem_b.size();
  return by_bytes;
}

std::uint64_t key_hash(std::string_view key) noexcept { return xxh3_64(as_bytes(key)); }

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace sml
