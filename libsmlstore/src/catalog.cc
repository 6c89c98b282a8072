#include "smlstore/catalog.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "quote.h"
#include "smlformat/error.h"
#include "smlstore/location.h"

namespace sml {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "SML catalog 1 ";
constexpr std::size_t kHashDigits = 32;

[[noreturn]] void corrupt(const std::string& what) {
  throw Error(ErrorCode::kCorrupt, "catalog: " + what);
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// A field of a JSON object, looked at with its name at hand.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {
    if (!object.is_object()) corrupt("not an object where one is expected");
  }

  std::uint64_t number(const char* name,
                       std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const {
    const Json& value = field(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) bad(name);
    return value.get<std::uint64_t>();
  }
  const std::string& text(const char* name) const {
    const Json& value = field(name);
    if (!value.is_string()) bad(name);
    return value.get_ref<const std::string&>();
  }
  std::uint64_t hex(const char* name) const { return from_hex(name, text(name)); }
  Hash128 hash(const char* name) const {
    const std::string& digits = text(name);
    if (digits.size() != kHashDigits) bad(name);
    Hash128 hash;
    hash.high = from_hex(name, std::string_view(digits).substr(0, 16));
    hash.low = from_hex(name, std::string_view(digits).substr(16));
    return hash;
  }
  const Json& array(const char* name) const {
    const Json& value = field(name);
    if (!value.is_array()) bad(name);
    return value;
  }

 private:
  const Json& field(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) corrupt(fmt::format("field '{}' is missing", name));
    return *found;
  }
  [[noreturn]] static void bad(const char* name) {
    corrupt(fmt::format("field '{}' makes no sense", name));
  }
  static std::uint64_t from_hex(const char* name, std::string_view digits) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, value, 16);
    if (digits.size() != 16 || parsed.ec != std::errc{} || parsed.ptr != end) bad(name);
    return value;
  }

  const Json& object_;
};

void put(Json& object, const Membership& membership) {
  object["grouping"] = grouping_name(membership.grouping);
  object["part"] = membership.part;
  object["parts"] = membership.parts;
}

Membership membership_of(const Fields& fields) {
  Membership membership;
  const std::string& grouping = fields.text("grouping");
  if (grouping == grouping_name(Grouping::kStem)) {
    membership.grouping = Grouping::kStem;
  } else if (grouping != grouping_name(Grouping::kNone)) {
    throw Error(ErrorCode::kUnsupported, "catalog: unknown grouping " + quote(grouping));
  }
  membership.parts = static_cast<std::uint32_t>(fields.number("parts", kMaxParts));
  membership.part = static_cast<std::uint32_t>(fields.number("part", membership.parts));
  if ((membership.part == 0) != (membership.parts == 0)) corrupt("a part that is none");
  return membership;
}

std::string name_of(const Fields& fields) {
  const std::string& name = fields.text("name");
  if (!is_container_name(name)) corrupt(quote(name) + " is no name of a container");
  return name;
}

Json encode_entry(const CatalogEntry& entry) {
  Json object;
  object["name"] = entry.name;
  object["id"] = entry.id.hex();
  object["since"] = entry.since;
  put(object, entry.membership);
  object["records"] = entry.records;
  object["bytes"] = entry.container_bytes;
  object["header_bytes"] = entry.header_bytes;
  object["blocks"] = entry.blocks;
  object["blocks_end"] = entry.blocks_end;
  object["incarnation"] = hex(entry.incarnation);
  return object;
}

CatalogEntry decode_entry(const Fields& fields, std::uint64_t revision) {
  CatalogEntry entry;
  entry.name = name_of(fields);
  entry.id = fields.hash("id");
  entry.since = fields.number("since", revision);
  entry.membership = membership_of(fields);
  entry.records = fields.number("records", kMaxRecords);
  entry.container_bytes = fields.number("bytes");
  entry.blocks_end = fields.number("blocks_end", entry.container_bytes);
  entry.header_bytes = static_cast<std::uint32_t>(
      fields.number("header_bytes", std::min<std::uint64_t>(kMaxAlign, entry.blocks_end)));
  entry.blocks = fields.number("blocks", entry.blocks_end / BlockHeader::kBytes);
  entry.incarnation = fields.hex("incarnation");
  if (entry.header_bytes < Header::kBytes ||
      entry.container_bytes - entry.blocks_end < Tail::kBytes)
    corrupt("container " + quote(entry.name) + ": sizes that make no sense");
  return entry;
}

// Where `name` is in a list sorted by name, or belongs.
template <class List>
auto place_of(List& list, std::string_view name) {
  return std::lower_bound(list.begin(), list.end(), name,
                          [](const auto& one, std::string_view n) { return one.name < n; });
}

template <class List>
auto find_in(List& list, std::string_view name) noexcept {
  const auto found = place_of(list, name);
  return found != list.end() && found->name == name ? &*found : nullptr;
}

template <class List>
void check_sorted(const List& list) {
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (list[i - 1].name >= list[i].name) corrupt("names that are not in order");
  }
}

Catalog decode_document(const Json& document) {
  const Fields fields(document);
  if (const Json& needs = fields.array("needs"); !needs.empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("catalog: needs {}, which this version of sml does not know",
                            needs.front().dump()));
  }
  Catalog catalog;
  catalog.revision = fields.number("revision");
  catalog.oldest = fields.number("oldest", catalog.revision);
  for (const Json& one : fields.array("containers"))
    catalog.containers.push_back(decode_entry(Fields(one), catalog.revision));
  for (const Json& one : fields.array("announced")) {
    const Fields announced(one);
    catalog.announced.push_back(
        {name_of(announced), announced.hex("incarnation"), announced.hex("owner"),
         static_cast<std::uint32_t>(announced.number("recipe", 0xffff'ffff)),
         membership_of(announced), announced.text("since")});
  }
  for (const Json& one : fields.array("removed")) {
    const Fields removed(one);
    catalog.removed.push_back(
        {name_of(removed), removed.hex("incarnation"), removed.number("objects")});
  }
  check_sorted(catalog.containers);
  check_sorted(catalog.announced);
  return catalog;
}

}  // namespace

CatalogEntry CatalogEntry::of(std::string name, const ContainerReader& reader) {
  const Header& header = reader.header();
  CatalogEntry entry;
  entry.name = std::move(name);
  entry.id = reader.id();
  entry.membership = Membership::of(header);
  entry.records = reader.index().records();
  entry.container_bytes = reader.tail().container_bytes;
  entry.header_bytes = header.header_bytes;
  entry.blocks = reader.index().blocks();
  entry.blocks_end = reader.index().block_offset(entry.blocks);
  return entry;
}

std::string Catalog::encode() const {
  Json document;
  document["needs"] = Json::array();
  document["revision"] = revision;
  document["oldest"] = oldest;
  const auto check = [](const std::string& name) {
    if (!is_container_name(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  quote(name) + " is no name of a container in a data set",
                  "1 to 200 bytes of UTF-8, no '/', no control bytes, no dot at the front");
    }
  };
  Json& sealed = document["containers"] = Json::array();
  for (const CatalogEntry& entry : containers) {
    check(entry.name);
    sealed.push_back(encode_entry(entry));
  }
  Json& unsealed = document["announced"] = Json::array();
  for (const Announcement& one : announced) {
    check(one.name);
    Json& object = unsealed.emplace_back();
    object["name"] = one.name;
    object["incarnation"] = hex(one.incarnation);
    object["owner"] = hex(one.owner);
    object["recipe"] = one.recipe;
    put(object, one.membership);
    object["since"] = one.since;
  }
  Json& gone = document["removed"] = Json::array();
  for (const Removal& one : removed) {
    Json& object = gone.emplace_back();
    object["name"] = one.name;
    object["incarnation"] = hex(one.incarnation);
    object["objects"] = one.objects;
  }
  const std::string body = document.dump() + "\n";
  return std::string(kMagic) + xxh3_128(as_bytes(body)).hex() + "\n" + body;
}

Catalog Catalog::decode(std::string_view text) {
  constexpr std::string_view kAnyVersion = "SML catalog ";
  if (!text.starts_with(kMagic)) {
    if (!text.starts_with(kAnyVersion)) corrupt("it does not begin as a catalog does");
    const std::string_view version =
        text.substr(kAnyVersion.size(), text.find_first_of(" \n") - kAnyVersion.size());
    throw Error(ErrorCode::kUnsupported, "catalog: version " +
                                             quote(version.substr(0, version.find(' '))) +
                                             " is newer than this version of sml");
  }
  const std::size_t body = kMagic.size() + kHashDigits + 1;
  if (text.size() < body || text[body - 1] != '\n') corrupt("it was cut short");
  const std::string_view stored = text.substr(kMagic.size(), kHashDigits);
  const std::string computed = xxh3_128(as_bytes(text.substr(body))).hex();
  if (stored != computed)
    corrupt(fmt::format("checksum mismatch (stored {}, computed {})", quote(stored), computed));
  const Json document = Json::parse(text.substr(body), nullptr, false);
  if (document.is_discarded()) corrupt("it is no JSON");
  return decode_document(document);
}

std::vector<std::string> Catalog::names() const {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : containers) names.push_back(entry.name);
  return names;
}

const CatalogEntry* Catalog::find(std::string_view name) const noexcept {
  return find_in(containers, name);
}

const Announcement* Catalog::find_announced(std::string_view name) const noexcept {
  return find_in(announced, name);
}

void Catalog::add(CatalogEntry entry) {
  entry.since = ++revision;
  if (find(entry.name) != nullptr) {
    containers.erase(place_of(containers, entry.name));
    oldest = revision;
  }
  containers.insert(place_of(containers, entry.name), std::move(entry));
}

void Catalog::remove(std::string_view name) {
  containers.erase(place_of(containers, name));
  oldest = ++revision;
}

void Catalog::announce(Announcement announcement) {
  std::erase_if(announced, [&](const Announcement& one) { return one.name == announcement.name; });
  announced.insert(place_of(announced, announcement.name), std::move(announcement));
}

Catalog Catalog::at(std::uint64_t wanted) const {
  if (wanted > revision) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("there is no revision {} yet: this is revision {}", wanted, revision));
  }
  if (wanted < oldest) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("revision {} is gone: a container that it had was removed in revision "
                            "{}",
                            wanted, oldest));
  }
  Catalog then = *this;
  then.revision = wanted;
  std::erase_if(then.containers, [&](const CatalogEntry& entry) { return entry.since > wanted; });
  return then;
}

void Catalog::check_membership(const Membership& membership, std::string_view replaced) const {
  const auto check = [&](const std::string& name, const Membership& other, bool sealed) {
    if (name == replaced) return;
    if (other.grouping != membership.grouping) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("container {} was packed with --group-by {}, not {}: the containers "
                              "of a data set must agree",
                              quote(name), grouping_name(other.grouping),
                              grouping_name(membership.grouping)));
    }
    if (membership.parts == 0 || other.parts == 0) return;
    if (other.parts != membership.parts) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("container {} is one of {} parts, not {}", quote(name), other.parts,
                              membership.parts));
    }
    if (other.part == membership.part) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("part {} is there already: container {}{}", other.part, quote(name),
                              sealed ? "" : ", not yet sealed"));
    }
  };
  for (const CatalogEntry& entry : containers) check(entry.name, entry.membership, true);
  for (const Announcement& one : announced) check(one.name, one.membership, false);
}

}  // namespace sml
