#include "name_pages.h"

#include <algorithm>

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

void decode_name_page(ByteView page, std::uint32_t count, std::string& keys, std::uint32_t* ends) {
  const auto corrupt = [] {
    throw Error(ErrorCode::kCorrupt, "a name page of the index is damaged");
  };
  std::uint64_t lengths[3][kNamePageKeys];
  for (auto& row : lengths) {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!get_varint(page, row[i]) || row[i] > kMaxKeyBytes) corrupt();
    }
  }
  std::uint64_t total = 0;
  std::uint64_t text = 0;
  std::uint64_t previous = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = lengths[0][i] + lengths[1][i] + lengths[2][i];
    if (lengths[0][i] + lengths[1][i] > previous || bytes == 0 || bytes > kMaxKeyBytes) corrupt();
    previous = bytes;
    total += bytes;
    text += lengths[2][i];
    ends[i] = static_cast<std::uint32_t>(total);
  }
  if (text != page.size() || as_text(page).find('\0') != std::string_view::npos) corrupt();
  keys.resize(total);
  char* out = keys.data();
  const char* middle = as_text(page).data();
  const char* before = out;  // the key before
  std::uint64_t before_bytes = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    char* key = out;
    out = std::copy_n(before, lengths[0][i], out);
    out = std::copy_n(middle, lengths[2][i], out);
    middle += lengths[2][i];
    out = std::copy_n(before + before_bytes - lengths[1][i], lengths[1][i], out);
    before = key;
    before_bytes = static_cast<std::uint64_t>(out - key);
  }
}

}  // namespace sml
