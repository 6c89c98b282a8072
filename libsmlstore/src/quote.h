// Keys and patterns in messages, which are one line whatever bytes a key has.
#pragma once

#include <string>
#include <string_view>

namespace sml {

// 'text' in quotes; control bytes, quotes and backslashes as \n, \xNN, \', \\.
inline std::string quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  // Longer than any key: shown by its beginning.
  constexpr std::size_t kMostBytes = 4096;
  constexpr std::size_t kShownBytes = 64;
  if (text.size() > kMostBytes) {
    return quote(text.substr(0, kShownBytes)) + "... (" + std::to_string(text.size()) + " bytes)";
  }
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out += '\'';
}

}  // namespace sml
