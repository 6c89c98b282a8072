// Keys: rules, stem, name order, hash. See format-spec/keys.md.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace sml {

inline constexpr std::size_t kMaxKeyBytes = 4096;

// Throws kInvalidArgument, saying why, unless `key` has 1 to kMaxKeyBytes bytes and no NUL.
void check_key(std::string_view key);
bool is_valid_key(std::string_view key) noexcept;

// The key up to the first dot of its base name, leading dots of the base name not counted:
// "a/001" of "a/001.seg.png", ".hidden" of itself, ".x" of ".x.png".
std::string_view key_stem(std::string_view key) noexcept;

// Name order: by stem, then by key, both as unsigned bytes. Keys of one stem are adjacent in it.
std::strong_ordering compare_names(std::string_view a, std::string_view b) noexcept;

// XXH3-64 of the key's bytes: in the record prefix and in the key table.
std::uint64_t key_hash(std::string_view key) noexcept;

// Whether text is UTF-8 (RFC 3629): keys need not be, names of containers are.
bool is_utf8(std::string_view text) noexcept;

}  // namespace sml
