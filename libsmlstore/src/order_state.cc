#include <array>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "quote.h"
#include "smlformat/error.h"
#include "smlstore/order.h"

namespace sml {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kStateVersion = 1;
constexpr std::uint32_t kAlgorithm = 1;
constexpr std::size_t kMaxStateBytes = 64U << 10;

constexpr std::array kFields{"sml_state", "revision", "containers", "algorithm", "seed",    "epoch",
                             "mode",      "lanes",    "even",       "selection", "position"};

std::string_view name(OrderMode mode) noexcept {
  return mode == OrderMode::kFull ? "full" : "block";
}

std::string_view name(Even even) noexcept {
  switch (even) {
    case Even::kNone:
      return "none";
    case Even::kDrop:
      return "drop";
    case Even::kWrap:
      return "wrap";
  }
  return "?";
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "order state: " + why);
}

[[noreturn]] void refuse_field(std::string_view field, std::string_view why) {
  refuse(fmt::format("field '{}' {}", field, why));
}

const Json& get(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) refuse_field(field, "is missing");
  return *found;
}

std::uint64_t get_number(const Json& object, const char* field,
                         std::uint64_t most = std::numeric_limits<std::uint64_t>::max(),
                         std::uint64_t least = 0) {
  const Json& value = get(object, field);
  if (!value.is_number()) refuse_field(field, "is not a number");
  // A number above 2^64 - 1 is parsed as a floating-point one.
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most ||
      value.get<std::uint64_t>() < least) {
    refuse_field(field, fmt::format("is not a whole number from {} to {}", least, most));
  }
  return value.get<std::uint64_t>();
}

const std::string& get_text(const Json& object, const char* field) {
  const Json& value = get(object, field);
  if (!value.is_string()) refuse_field(field, "is not a string");
  return value.get_ref<const std::string&>();
}

Hash128 get_hash(const Json& object, const char* field) {
  const std::string& hex = get_text(object, field);
  if (hex.size() != 32 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse_field(field, "is not 32 lower-case hex digits");
  }
  const auto half = [&](std::size_t at) { return std::stoull(hex.substr(at, 16), nullptr, 16); };
  return {.low = half(16), .high = half(0)};
}

template <class T, std::size_t N>
T get_choice(const Json& object, const char* field, const std::array<T, N>& choices) {
  const std::string& text = get_text(object, field);
  std::string known;
  for (const T choice : choices) {
    if (text == name(choice)) return choice;
    if (!known.empty()) known += ", ";
    known += name(choice);
  }
  refuse_field(field, fmt::format("is {}, which is none of {}", quote(text), known));
}

Json parse_object(std::string_view text) {
  if (text.size() > kMaxStateBytes) refuse("too long to be one");
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 &&
        !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  Json object;
  try {
    object = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception&) {
    refuse("not JSON");
  }
  if (!object.is_object()) refuse("not a JSON object");
  if (!twice.empty()) refuse(fmt::format("field {} is there twice", quote(twice)));
  return object;
}

void compare(std::string_view field, const std::string& saved, const std::string& current) {
  if (saved != current)
    refuse_field(field, fmt::format("differs: {} in the state, {} here", saved, current));
}

std::string show(const std::optional<Hash128>& hash) { return hash ? hash->hex() : "none"; }

}  // namespace

std::string OrderState::to_json() const {
  return fmt::format(
      R"({{"sml_state":{},"revision":{},"containers":"{}","algorithm":{},"seed":{},"epoch":{},"mode":"{}","lanes":{},)"
      R"("even":"{}","selection":{},"position":{}}})",
      kStateVersion, revision, containers.hex(), algorithm, order.seed, order.epoch,
      name(order.mode), order.lanes, name(even), selection ? '"' + selection->hex() + '"' : "null",
      position);
}

OrderState OrderState::parse(std::string_view json) {
  constexpr std::uint32_t kMost32 = std::numeric_limits<std::uint32_t>::max();
  const Json object = parse_object(json);
  // The version comes first: another version may have other fields.
  const std::uint64_t version = get_number(object, "sml_state");
  if (version != kStateVersion) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("order state: field 'sml_state' is {}, this program knows {}", version,
                            kStateVersion));
  }
  for (const auto& [field, value] : object.items()) {
    bool known = false;
    for (const char* const k : kFields) known = known || field == k;
    if (!known) refuse(fmt::format("field {} is unknown", quote(field)));
  }
  OrderState state;
  state.revision = get_number(object, "revision");
  state.containers = get_hash(object, "containers");
  state.algorithm = static_cast<std::uint32_t>(get_number(object, "algorithm", kMost32));
  state.order.seed = get_number(object, "seed");
  state.order.epoch = get_number(object, "epoch");
  state.order.mode = get_choice(object, "mode", std::array{OrderMode::kBlock, OrderMode::kFull});
  state.order.lanes = static_cast<std::uint32_t>(get_number(object, "lanes", kMost32, 1));
  state.even = get_choice(object, "even", std::array{Even::kNone, Even::kDrop, Even::kWrap});
  if (!get(object, "selection").is_null()) state.selection = get_hash(object, "selection");
  state.position = get_number(object, "position");
  return state;
}

void OrderState::check_same(const OrderState& current) const {
  const auto text = [](auto number) { return std::to_string(number); };
  compare("revision", text(revision), text(current.revision));
  compare("containers", containers.hex(), current.containers.hex());
  compare("algorithm", text(algorithm), text(current.algorithm));
  compare("seed", text(order.seed), text(current.order.seed));
  compare("epoch", text(order.epoch), text(current.order.epoch));
  compare("mode", std::string(name(order.mode)), std::string(name(current.order.mode)));
  if (order.mode == OrderMode::kBlock)
    compare("lanes", text(order.lanes), text(current.order.lanes));
  compare("even", std::string(name(even)), std::string(name(current.even)));
  compare("selection", show(selection), show(current.selection));
}

OrderState make_state(const Dataset& dataset, const OrderOptions& order, Even even,
                      const Selection* selection, std::uint64_t position) {
  OrderState state;
  state.revision = dataset.revision();
  state.containers = dataset.digest();
  state.algorithm = kAlgorithm;
  state.order = order;
  state.even = even;
  if (selection != nullptr) state.selection = selection->digest;
  state.position = position;
  return state;
}

}  // namespace sml
