#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"
#include "smlstore/order.h"
#include "support/containers.h"

namespace {

using sml::Even;
using sml::OrderState;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

OrderState example() {
  OrderState state;
  state.revision = 7;
  state.containers = {.low = 0x1122334455667788, .high = 0x0000000000abcdef};
  state.order.seed = kMost;
  state.order.epoch = 9007199254740993;  // not a double
  state.order.lanes = 0xffffffff;
  state.even = Even::kWrap;
  state.selection = sml::Hash128{.low = 1, .high = 0x8000000000000000};
  state.position = kMost;
  return state;
}

const std::string kExample =
    R"({"sml_state":1,"revision":7,"containers":"0000000000abcdef1122334455667788","algorithm":1,)"
    R"("seed":18446744073709551615,"epoch":9007199254740993,"mode":"block","lanes":4294967295,"even":"wrap",)"
    R"("selection":"80000000000000000000000000000001","position":18446744073709551615})";

// What parsing says of the example with `from` replaced by `to`.
std::string refusal(std::string_view from, std::string_view to) {
  std::string json = kExample;
  const std::size_t at = json.find(from);
  REQUIRE(at != std::string::npos);
  json.replace(at, from.size(), to);
  try {
    OrderState::parse(json);
  } catch (const sml::Error& e) {
    return e.what();
  }
  return "accepted";
}

bool mentions(const std::string& message, std::string_view text) {
  return message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a state is one JSON line, exact to 64 bits") {
  CHECK(example().to_json() == kExample);
  CHECK(OrderState::parse(kExample).to_json() == kExample);
  CHECK(OrderState::parse(" " + kExample + "\n").to_json() == kExample);
  CHECK(
      OrderState{}.to_json() ==
      R"({"sml_state":1,"revision":0,"containers":"00000000000000000000000000000000","algorithm":1,"seed":0,"epoch":0,)"
      R"("mode":"block","lanes":64,"even":"none","selection":null,"position":0})");
  OrderState full;
  full.order.mode = sml::OrderMode::kFull;
  full.even = Even::kDrop;
  const OrderState again = OrderState::parse(full.to_json());
  CHECK(again.order.mode == sml::OrderMode::kFull);
  CHECK(again.even == Even::kDrop);
  CHECK_FALSE(again.selection);
}

TEST_CASE("a bad field is named") {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"sml_state", "1"},
      {"revision", "7"},
      {"containers", "\"0000000000abcdef1122334455667788\""},
      {"algorithm", "1"},
      {"seed", "18446744073709551615"},
      {"epoch", "9007199254740993"},
      {"mode", "\"block\""},
      {"lanes", "4294967295"},
      {"even", "\"wrap\""},
      {"selection", "\"80000000000000000000000000000001\""},
  };
  for (const auto& pair : fields) {
    const std::string& field = pair.first;
    const std::string& value = pair.second;
    CAPTURE(field);
    const std::string quoted = "'" + field + "'";
    const std::string whole = "\"" + field + "\":" + value;
    CHECK(refusal(whole + ",", "") == "order state: field " + quoted + " is missing");
    CHECK(mentions(refusal(whole, "\"" + field + "\":true"), quoted));
    CHECK(mentions(refusal(whole, "\"" + field + "\":[]"), quoted));
    CHECK(mentions(refusal(whole, whole + "," + whole), quoted + " is there twice"));
    if (field != "selection") CHECK(mentions(refusal(whole, "\"" + field + "\":null"), quoted));
    if (value[0] == '"') {
      CHECK(mentions(refusal(whole, "\"" + field + "\":\"x\""), quoted));
      CHECK(mentions(refusal(whole, "\"" + field + "\":1"), quoted));
    } else {
      for (const char* bad : {"-1", "1.0", "18446744073709551616", "1e3", "\"1\""}) {
        CHECK(mentions(refusal(whole, "\"" + field + "\":" + bad), quoted));
      }
    }
  }
  CHECK(mentions(refusal("4294967295", "4294967296"),
                 "'lanes' is not a whole number from 1 to 4294967295"));
  CHECK(mentions(refusal("4294967295", "0"), "'lanes'"));
  CHECK(mentions(refusal("\"wrap\"", "\"Wrap\""),
                 "'even' is 'Wrap', which is none of none, drop, wrap"));
  CHECK(mentions(refusal("abcdef", "ABCDEF"), "'containers' is not 32 lower-case hex digits"));
  CHECK(mentions(refusal("\"position\"", "\"extra\":1,\"position\""), "field 'extra' is unknown"));
}

TEST_CASE("another version of the state is told as such") {
  CHECK(mentions(refusal("\"sml_state\":1", "\"sml_state\":2"),
                 "'sml_state' is 2, this program knows 1"));
  try {
    OrderState::parse(R"({"sml_state":2,"new":"fields"})");
    FAIL("accepted");
  } catch (const sml::Error& e) {
    CHECK(e.code() == sml::ErrorCode::kUnsupported);
  }
}

TEST_CASE("what is no JSON object is refused") {
  const std::string nested(100'000, '[');
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("{"), std::string("[]"), std::string("1"),
        kExample + "x", kExample + kExample, nested, std::string(60'000, '['),
        std::string("{\"\xff\":1}")}) {
    try {
      OrderState::parse(text);
      FAIL("accepted");
    } catch (const sml::Error& e) {
      CHECK(e.code() == sml::ErrorCode::kInvalidArgument);
    }
  }
}

TEST_CASE("continuing with something else is refused, naming the field") {
  const auto difference = [](const std::function<void(OrderState&)>& change) {
    OrderState current = example();
    change(current);
    try {
      example().check_same(current);
    } catch (const sml::Error& e) {
      CHECK(e.code() == sml::ErrorCode::kInvalidArgument);
      return std::string(e.what());
    }
    return std::string("same");
  };
  CHECK(difference([](OrderState&) {}) == "same");
  CHECK(difference([](OrderState& s) { s.position = 3; }) == "same");
  CHECK(mentions(difference([](OrderState& s) { s.revision = 8; }),
                 "'revision' differs: 7 in the state, 8 here"));
  CHECK(mentions(difference([](OrderState& s) { s.containers.low = 0; }), "'containers'"));
  CHECK(mentions(difference([](OrderState& s) { s.algorithm = 2; }), "'algorithm'"));
  CHECK(mentions(difference([](OrderState& s) { s.order.seed = 1; }),
                 "'seed' differs: 18446744073709551615 in the state, 1 here"));
  CHECK(mentions(difference([](OrderState& s) { s.order.epoch = 1; }), "'epoch'"));
  CHECK(mentions(difference([](OrderState& s) { s.order.mode = sml::OrderMode::kFull; }),
                 "'mode' differs: block in the state, full here"));
  CHECK(mentions(difference([](OrderState& s) { s.order.lanes = 1; }), "'lanes'"));
  CHECK(mentions(difference([](OrderState& s) { s.even = Even::kNone; }), "'even'"));
  CHECK(mentions(difference([](OrderState& s) { s.selection.reset(); }), "'selection'"));
  // The first in the order of the fields.
  CHECK(mentions(difference([](OrderState& s) { s.even = Even::kNone, s.order.seed = 1; }),
                 "'seed'"));
  // Lanes mean nothing in full mode.
  OrderState a;
  OrderState b;
  a.order.mode = b.order.mode = sml::OrderMode::kFull;
  b.order.lanes = 3;
  a.check_same(b);
}

TEST_CASE("a state tells the data set and the selection it belongs to") {
  const sml::test::TemporaryDirectory dir;
  const std::string path = dir.write("a.sml", sml::test::build_container({{"k", "v"}}));
  const sml::Dataset dataset = sml::Dataset::open(sml::Location{path});
  sml::OrderOptions options;
  options.seed = 5;
  sml::Selection selection;
  selection.digest = {.low = 3, .high = 4};
  const OrderState state = make_state(dataset, options, Even::kDrop, &selection, 17);
  CHECK(state.containers == dataset.digest());
  CHECK(state.revision == 0);
  CHECK(state.algorithm == 1);
  CHECK(state.order.seed == 5);
  CHECK(state.even == Even::kDrop);
  CHECK(state.selection == selection.digest);
  CHECK(state.position == 17);
  CHECK_FALSE(make_state(dataset, options, Even::kDrop, nullptr, 17).selection);
}
