// Text that need not be UTF-8, in JSON.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace sml {

// Appends a JSON string; `text` is UTF-8.
void append_json_string(std::string& out, std::string_view text);
// Appends a JSON string, or {"base64":"..."} where the bytes are not UTF-8.
void append_json_bytes(std::string& out, std::string_view bytes);
// Appends `"name": "text"` in JSON; `"name_base64": "..."` where the text is not UTF-8.
void append_json_text(std::string& out, std::string_view name, std::string_view text);
// The same, put into an object.
void put_json_text(nlohmann::ordered_json& object, std::string_view name, std::string_view text);
// The bytes of base64 with its padding; false where the text is none.
bool parse_base64(std::string_view text, std::string& out);

}  // namespace sml
