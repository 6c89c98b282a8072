#include "smlstore/location.h"

#include <algorithm>
#include <charconv>

#include <sys/stat.h>

#include "quote.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {
namespace {

[[noreturn]] void refuse(const std::string& message, std::string hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, message, std::move(hint));
}

// Removes "@DIGITS" at the end of `text` and returns their value.
std::optional<std::uint64_t> take_revision(std::string& text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at + 1 == text.size()) return std::nullopt;
  std::uint64_t revision = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + at + 1, end, revision);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  text.resize(at);
  return revision;
}

// "conf=FILE&user=NAME"
void take_settings(std::string_view settings, Location& location) {
  while (!settings.empty()) {
    const std::string_view setting = settings.substr(0, settings.find('&'));
    settings.remove_prefix(std::min(settings.size(), setting.size() + 1));
    const std::size_t equals = setting.find('=');
    const std::string_view name = setting.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : setting.substr(equals + 1);
    std::string* const target = name == "conf"   ? &location.ceph_conf
                                : name == "user" ? &location.ceph_user
                                                 : nullptr;
    if (target == nullptr || value.empty() || !target->empty()) {
      refuse(location.path + ": " + quote(setting) + " is no setting of a location",
             "settings are ?conf=FILE&user=NAME");
    }
    *target = value;
  }
}

bool is_component(std::string_view text) noexcept {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

Location parse_rados(std::string_view text) {
  Location location;
  location.path = text.substr(0, text.find('?'));
  const std::string_view settings = text.substr(location.path.size());
  if (settings.size() == 1) refuse(quote(text) + ": no settings behind '?'");
  if (!settings.empty()) take_settings(settings.substr(1), location);
  location.revision = take_revision(location.path);
  std::string_view rest(location.path);
  rest.remove_prefix(kRadosScheme.size());
  for (std::string* const part : {&location.pool, &location.dataset, &location.container}) {
    const std::size_t slash = rest.find('/');
    *part = rest.substr(0, slash);
    if (!is_component(*part)) break;
    if (slash == std::string_view::npos) {
      if (location.dataset.empty()) break;
      return location;
    }
    rest.remove_prefix(slash + 1);
  }
  refuse(quote(text) + " is no location", "rados://POOL/DATASET or rados://POOL/DATASET/CONTAINER");
}

}  // namespace

bool is_container_name(std::string_view name) noexcept {
  return name.size() <= kMaxContainerName && is_component(name) && !name.starts_with('.') &&
         name.find('/') == std::string_view::npos && is_utf8(name);
}

bool can_be_located(std::string_view name) {
  std::string rest(name);
  return rest.find('?') == std::string::npos && !take_revision(rest);
}

Location Location::parse(std::string_view text) {
  if (text.empty()) refuse("empty location");
  if (text.find('\0') != std::string_view::npos) refuse("a location cannot hold a NUL byte");
  if (text.starts_with(kRadosScheme)) return parse_rados(text);
  Location location;
  location.path = text;
  return location;
}

Location Location::settled() const {
  Location location = *this;
  struct stat status {};
  if (is_rados() || revision || ::lstat(path.c_str(), &status) == 0) return location;
  location.revision = take_revision(location.path);
  return location.path.empty() ? *this : location;
}

bool Location::is_dataset() const {
  if (is_rados()) return container.empty();
  if (path.ends_with('/')) return true;
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace sml
