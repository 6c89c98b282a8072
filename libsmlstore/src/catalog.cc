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

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kMagic = "SML catalog 1 ";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kMaxDepth = 16;  // of arrays and objects in each other
// Each takes some 100 bytes of memory. No catalog of 64 MiB that sml writes has so many.
constexpr std::size_t kMaxValues = 5000000;
constexpr std::size_t kMaxLine = 64;
constexpr std::uint64_t kMaxContainerBytes = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void corrupt(const std::string& what) {
  throw Error(ErrorCode::kCorrupt, "catalog: " + what);
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// In quotes; what is longer than `most` bytes, by its beginning.
std::string shown(std::string_view text, std::size_t most = 64) {
  if (text.size() <= most) return quote(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0U) == 0x80) --most;  // UTF-8
  return quote(text.substr(0, most)) + "...";
}

// Builds a value, and is stricter than nlohmann's own parser: arrays and objects do not nest deep,
// so that recursion over them is safe, there are not too many values for the memory, and no object
// has a field twice.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*fields*/) override { return open(Json::object()); }
  bool key(std::string& name) override {
    auto [at, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(std::move(name), nullptr);
    if (!is_new) corrupt("field " + shown(at->first) + " is there twice");
    field_ = &at->second;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*values*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  Json& place(Json value) {
    if (++values_ > kMaxValues) corrupt(fmt::format("it has more than {} values", kMaxValues));
    if (open_.empty()) return root_ = std::move(value);
    if (!open_.back()->is_array()) return *field_ = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kMaxDepth)
      corrupt(fmt::format("it nests more than {} levels deep", kMaxDepth));
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // each in the one before
  Json* field_ = nullptr;    // of the innermost, where that is an object
  std::size_t values_ = 0;
};

Json parse(std::string_view text) {
  // For nlohmann's parser a byte order mark is white space, and NUL the end.
  const bool odd = text.starts_with("\xef\xbb\xbf") || text.find('\0') != std::string_view::npos;
  Builder builder;
  if (odd || !Json::sax_parse(text, &builder)) corrupt("it is no JSON");
  return builder.take();
}

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
  // Printed as it is.
  const std::string& line(const char* name) const {
    const std::string& value = text(name);
    const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
    if (value.size() > kMaxLine || !std::all_of(value.begin(), value.end(), is_printable))
      bad(name);
    return value;
  }
  std::uint64_t hex(const char* name) const { return from_hex(name, text(name)); }
  std::uint64_t hex_but_0(const char* name) const {
    const std::uint64_t value = hex(name);
    if (value == 0) bad(name);
    return value;
  }
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
    if (digits.size() != 16 ||
        digits.find_first_not_of("0123456789abcdef") != std::string_view::npos)
      bad(name);
    std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    return value;
  }

  const Json& object_;
};

void put(OrderedJson& object, const Membership& membership) {
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
    throw Error(ErrorCode::kUnsupported, "catalog: unknown grouping " + shown(grouping));
  }
  membership.parts = static_cast<std::uint32_t>(fields.number("parts", kMaxParts));
  membership.part = static_cast<std::uint32_t>(fields.number("part", membership.parts));
  if ((membership.part == 0) != (membership.parts == 0)) corrupt("a part that is none");
  return membership;
}

std::string name_of(const Fields& fields) {
  const std::string& name = fields.text("name");
  if (!is_container_name(name)) corrupt(shown(name) + " is no name of a container");
  return name;
}

OrderedJson encode_entry(const CatalogEntry& entry) {
  OrderedJson object;
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
  entry.container_bytes = fields.number("bytes", kMaxContainerBytes);
  entry.blocks_end = fields.number("blocks_end", entry.container_bytes);
  entry.header_bytes = static_cast<std::uint32_t>(
      fields.number("header_bytes", std::min<std::uint64_t>(kMaxAlign, entry.blocks_end)));
  entry.blocks = fields.number("blocks", entry.blocks_end / BlockHeader::kBytes);
  entry.incarnation = fields.hex("incarnation");
  if (entry.header_bytes < Header::kBytes ||
      entry.container_bytes < round_up(entry.blocks_end, kFooterAlign) + Tail::kBytes)
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

// Of all objects that are there or may be: two containers must not share any.
void check_incarnations(const Catalog& catalog) {
  std::vector<std::uint64_t> all;
  for (const CatalogEntry& one : catalog.containers) {
    if (one.incarnation != 0) all.push_back(one.incarnation);
  }
  for (const Announcement& one : catalog.announced) all.push_back(one.incarnation);
  for (const Removal& one : catalog.removed) all.push_back(one.incarnation);
  std::sort(all.begin(), all.end());
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end())
    corrupt("incarnation " + hex(*twice) + " is there twice");
}

Catalog decode_document(const Json& document) {
  const Fields fields(document);
  if (const Json& needs = fields.array("needs"); !needs.empty()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("catalog: needs {}, which this version of sml does not know",
                    shown(needs.front().is_string() ? needs.front().get_ref<const std::string&>()
                                                    : needs.front().dump())));
  }
  Catalog catalog;
  catalog.revision = fields.number("revision");
  catalog.oldest = fields.number("oldest", catalog.revision);
  for (const Json& one : fields.array("containers"))
    catalog.containers.push_back(decode_entry(Fields(one), catalog.revision));
  for (const Json& one : fields.array("announced")) {
    const Fields announced(one);
    catalog.announced.push_back(
        {name_of(announced), announced.hex_but_0("incarnation"), announced.hex_but_0("owner"),
         static_cast<std::uint32_t>(announced.number("recipe", 0xffff'ffff)),
         membership_of(announced), announced.line("since")});
  }
  for (const Json& one : fields.array("removed")) {
    const Fields removed(one);
    catalog.removed.push_back(
        {name_of(removed), removed.hex_but_0("incarnation"), removed.number("objects")});
  }
  check_sorted(catalog.containers);
  check_sorted(catalog.announced);
  check_incarnations(catalog);
  return catalog;
}

std::uint64_t next(std::uint64_t revision) {
  if (revision == std::numeric_limits<std::uint64_t>::max())
    throw Error(ErrorCode::kLimit, "the data set is at its last revision");
  return revision + 1;
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

bool CatalogEntry::is_same_container(const CatalogEntry& other) const noexcept {
  return name == other.name && id == other.id && membership == other.membership &&
         records == other.records && container_bytes == other.container_bytes &&
         header_bytes == other.header_bytes && blocks == other.blocks &&
         blocks_end == other.blocks_end;
}

std::string Catalog::encode() const {
  OrderedJson document;
  document["needs"] = OrderedJson::array();
  document["revision"] = revision;
  document["oldest"] = oldest;
  const auto check = [](const std::string& name) {
    if (!is_container_name(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  quote(name) + " is no name of a container in a data set",
                  "1 to 200 bytes of UTF-8, no '/', no control bytes, no dot at the front");
    }
  };
  OrderedJson& sealed = document["containers"] = OrderedJson::array();
  for (const CatalogEntry& entry : containers) {
    check(entry.name);
    sealed.push_back(encode_entry(entry));
  }
  OrderedJson& unsealed = document["announced"] = OrderedJson::array();
  for (const Announcement& one : announced) {
    check(one.name);
    OrderedJson& object = unsealed.emplace_back();
    object["name"] = one.name;
    object["incarnation"] = hex(one.incarnation);
    object["owner"] = hex(one.owner);
    object["recipe"] = one.recipe;
    put(object, one.membership);
    object["since"] = one.since;
  }
  OrderedJson& gone = document["removed"] = OrderedJson::array();
  for (const Removal& one : removed) {
    OrderedJson& object = gone.emplace_back();
    object["name"] = one.name;
    object["incarnation"] = hex(one.incarnation);
    object["objects"] = one.objects;
  }
  const std::string body = document.dump() + "\n";
  std::string text = std::string(kMagic) + xxh3_128(as_bytes(body)).hex() + "\n" + body;
  if (text.size() > kMaxCatalogBytes) {
    throw Error(ErrorCode::kLimit,
                fmt::format("the data set has too many containers: its catalog would have {} "
                            "bytes, more than {}",
                            text.size(), kMaxCatalogBytes));
  }
  return text;
}

Catalog Catalog::decode(std::string_view text) {
  constexpr std::string_view kAnyVersion = "SML catalog ";
  if (text.size() > kMaxCatalogBytes) corrupt("it is too large");
  if (!text.starts_with(kAnyVersion)) corrupt("it does not begin as a catalog does");
  const std::string_view rest = text.substr(kAnyVersion.size());
  const std::string_view version = rest.substr(0, rest.find_first_of(" \n"));
  if (version.size() < rest.size() && version != "1") {
    throw Error(ErrorCode::kUnsupported,
                "catalog: version " + shown(version, 20) + " is newer than this version of sml");
  }
  const std::size_t body = kMagic.size() + kHashDigits + 1;
  if (!text.starts_with(kMagic) || text.size() < body || text[body - 1] != '\n')
    corrupt("it was cut short");
  const std::string_view stored = text.substr(kMagic.size(), kHashDigits);
  const std::string computed = xxh3_128(as_bytes(text.substr(body))).hex();
  if (stored != computed)
    corrupt(fmt::format("checksum mismatch (stored {}, computed {})", quote(stored), computed));
  return decode_document(parse(text.substr(body)));
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
  entry.since = revision = next(revision);
  if (find(entry.name) != nullptr) {
    containers.erase(place_of(containers, entry.name));
    oldest = revision;
  }
  containers.insert(place_of(containers, entry.name), std::move(entry));
}

void Catalog::remove(std::string_view name) {
  oldest = revision = next(revision);
  containers.erase(place_of(containers, name));
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
                              sealed ? "" : ", not yet sealed"),
                  sealed ? "" : "'sml rm --unsealed' removes what packers that died left");
    }
  };
  for (const CatalogEntry& entry : containers) check(entry.name, entry.membership, true);
  for (const Announcement& one : announced) check(one.name, one.membership, false);
}

}  // namespace sml
