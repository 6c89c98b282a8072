#include "json_text.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "smlformat/key.h"

namespace sml {
namespace {

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void append_base64(std::string& out, std::string_view text) {
  for (std::size_t i = 0; i < text.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, text.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < count ? static_cast<unsigned char>(text[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      out += j <= count ? kBase64[bits >> (18 - 6 * j) & 63] : '=';
  }
}

void append_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

void append_json_bytes(std::string& out, std::string_view bytes) {
  if (is_utf8(bytes)) return append_json_string(out, bytes);
  out += "{\"base64\":\"";
  append_base64(out, bytes);
  out += "\"}";
}

void append_json_text(std::string& out, std::string_view name, std::string_view text) {
  out += '"';
  out += name;
  if (is_utf8(text)) {
    out += "\": \"";
    append_escaped(out, text);
  } else {
    out += "_base64\": \"";
    append_base64(out, text);
  }
  out += '"';
}

void put_json_text(nlohmann::ordered_json& object, std::string_view name, std::string_view text) {
  std::string pair = "{";
  append_json_text(pair, name, text);
  object.update(nlohmann::ordered_json::parse(pair + "}"));
}

bool parse_base64(std::string_view text, std::string& out) {
  out.clear();
  if (text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const std::string_view digits(kBase64);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t value = i + padding < text.size() ? digits.find(text[i]) : 0;
    if (value == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 3) continue;
    out += {static_cast<char>(bits >> 16 & 255), static_cast<char>(bits >> 8 & 255),
            static_cast<char>(bits & 255)};
  }
  out.resize(out.size() - padding);
  return true;
}

}  // namespace sml
