#include "name_pages.h"

#include <algorithm>
#include <cstring>

#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {

void NamePageBuilder::add(std::string_view key) {
  const std::size_t shorter = std::min(previous_.size(), key.size());
  std::size_t prefix = 0;
  while (prefix < shorter && previous_[prefix] == key[prefix]) ++prefix;
  std::size_t suffix = 0;
  while (suffix < shorter - prefix &&
         previous_[previous_.size() - 1 - suffix] == key[key.size() - 1 - suffix]) {
    ++suffix;
  }
  const std::string_view middle = key.substr(prefix, key.size() - prefix - suffix);
  put_varint(prefixes_, prefix);
  put_varint(suffixes_, suffix);
  put_varint(middles_, middle.size());
  const ByteView text = as_bytes(middle);
  text_.insert(text_.end(), text.begin(), text.end());
  previous_.assign(key);
  ++keys_;
}

Bytes NamePageBuilder::take() {
  Bytes page;
  page.reserve(prefixes_.size() + suffixes_.size() + middles_.size() + text_.size());
  for (Bytes* part : {&prefixes_, &suffixes_, &middles_, &text_}) {
    page.insert(page.end(), part->begin(), part->end());
    part->clear();
  }
  previous_.clear();
  keys_ = 0;
  return page;
}

namespace {

constexpr std::size_t kWide = 16;

// Copies `bytes` bytes, and up to kWide - 1 more, from where that many may be read to where that
// many may be written. Keys are short: a call for each of their parts would take longer.
inline char* copy_wide(const char* from, std::size_t bytes, char* to) noexcept {
  for (std::size_t at = 0; at < bytes; at += kWide) {
    char wide[kWide];  // the ranges may overlap
    std::memcpy(wide, from + at, kWide);
    std::memcpy(to + at, wide, kWide);
  }
  return to + bytes;
}

struct PartBytes {
  std::uint16_t prefix[kNamePageKeys];
  std::uint16_t suffix[kNamePageKeys];
  std::uint16_t middle[kNamePageKeys];
};

// Takes the sizes off the front of a page. False where they are damaged.
bool take_sizes(ByteView& page, std::uint32_t count, PartBytes& sizes) noexcept {
  std::uint16_t* const rows[] = {sizes.prefix, sizes.suffix, sizes.middle};
  // Nearly always all of them are below 128, and take one byte.
  if (page.size() >= 3 * std::size_t{count}) {
    std::uint8_t any = 0;
    for (std::uint32_t i = 0; i < 3 * count; ++i) any |= std::to_integer<std::uint8_t>(page[i]);
    if (any < 0x80) {
      for (std::uint32_t row = 0; row < 3; ++row) {
        for (std::uint32_t i = 0; i < count; ++i)
          rows[row][i] = std::to_integer<std::uint16_t>(page[row * count + i]);
      }
      page = page.subspan(3 * std::size_t{count});
      return true;
    }
  }
  for (std::uint16_t* row : rows) {
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint64_t bytes = 0;
      if (!get_varint(page, bytes) || bytes > kMaxKeyBytes) return false;
      row[i] = static_cast<std::uint16_t>(bytes);
    }
  }
  return true;
}

}  // namespace

void decode_name_page(ByteView page, std::uint32_t count, std::uint32_t wanted, std::string& keys,
                      std::uint32_t* ends) {
  const auto corrupt = [] {
    throw Error(ErrorCode::kCorrupt, "a name page of the index is damaged");
  };
  PartBytes sizes;
  if (!take_sizes(page, count, sizes)) corrupt();
  std::uint32_t total = 0;
  std::uint32_t text = 0;
  std::uint32_t previous = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t common = std::uint32_t{sizes.prefix[i]} + sizes.suffix[i];
    const std::uint32_t bytes = common + sizes.middle[i];
    if (common > previous || bytes == 0 || bytes > kMaxKeyBytes) corrupt();
    previous = bytes;
    total += bytes;
    text += sizes.middle[i];
    ends[i] = total;
  }
  if (text != page.size() || as_text(page).find('\0') != std::string_view::npos) corrupt();
  if (keys.size() < total + kWide) keys.resize(total + kWide);
  char* out = keys.data();
  const char* middle = as_text(page).data();
  const char* const last_wide = text >= kWide ? middle + text - kWide : middle - 1;
  const char* before_end = out;  // of the key before
  const char* before = out;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    char* const key = out;
    out = copy_wide(before, sizes.prefix[i], out);
    // Behind the last middle nothing may be read.
    out = sizes.middle[i] <= kWide && middle <= last_wide
              ? copy_wide(middle, sizes.middle[i], out)
              : std::copy_n(middle, sizes.middle[i], out);
    middle += sizes.middle[i];
    out = copy_wide(before_end - sizes.suffix[i], sizes.suffix[i], out);
    before = key;
    before_end = out;
  }
}

}  // namespace sml
