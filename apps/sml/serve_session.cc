#include "serve_session.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "json_text.h"
#include "smlformat/error.h"
#include "smlformat/frames.h"
#include "smlformat/key.h"
#include "smlstore/batch_reader.h"
#include "smlstore/epoch_reader.h"
#include "smlstore/order.h"
#include "smlstore/record_place.h"
#include "smlstore/selection.h"
#include "terminal.h"

namespace sml {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kProtocol = 1;
constexpr std::uint64_t kMaxKeys = 65536;
constexpr std::uint64_t kMaxBatch = 65536;
constexpr std::uint64_t kMaxPayload = 1U << 30;
constexpr std::size_t kMaxEpochs = 16;
constexpr std::uint64_t kDefaultCount = 1000;
// No request is nested deeper.
constexpr int kMaxDepth = 8;
// Memory of a batch that is used again; more is given back.
constexpr std::uint64_t kKeptBytes = 64U << 20;
// What a reader gets at least.
constexpr std::uint64_t kLeastMemory = 8U << 20;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); }

// ---- fields of requests

const Json* field(const Json& request, const char* name) {
  const auto found = request.find(name);
  return found == request.end() || found->is_null() ? nullptr : &*found;
}

std::uint64_t to_number(const Json& value, const char* name) {
  if (!value.is_number_unsigned())
    refuse(fmt::format("field '{}' is no number from 0 to 2^64 - 1", name));
  return value.get<std::uint64_t>();
}

std::optional<std::uint64_t> number(const Json& request, const char* name) {
  const Json* const value = field(request, name);
  if (value == nullptr) return std::nullopt;
  return to_number(*value, name);
}

std::uint64_t needed_number(const Json& request, const char* name) {
  const auto value = number(request, name);
  if (!value) refuse(fmt::format("field '{}' is missing", name));
  return *value;
}

std::uint64_t number_in(const Json& request, const char* name, std::uint64_t otherwise,
                        std::uint64_t least, std::uint64_t most) {
  const std::uint64_t value = number(request, name).value_or(otherwise);
  if (value < least || value > most)
    refuse(fmt::format("field '{}' is {}, not {} to {}", name, value, least, most));
  return value;
}

bool truth(const Json& request, const char* name, bool otherwise) {
  const Json* const value = field(request, name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(fmt::format("field '{}' is neither true nor false", name));
  return value->get<bool>();
}

std::string to_key(const Json& value, const char* name) {
  if (value.is_string()) return value.get<std::string>();
  const auto base64 = value.is_object() ? value.find("base64") : value.end();
  std::string key;
  if (base64 == value.end() || !base64->is_string() ||
      !parse_base64(base64->get_ref<const std::string&>(), key)) {
    refuse(fmt::format("field '{}': a key is a string, or an object with base64", name));
  }
  return key;
}

const Json& to_array(const Json& value, const char* name) {
  if (!value.is_array()) refuse(fmt::format("field '{}' is no array", name));
  if (value.size() > kMaxKeys)
    refuse(fmt::format("field '{}' has {} elements: at most {}", name, value.size(), kMaxKeys));
  return value;
}

std::vector<std::string> to_keys(const Json& value, const char* name) {
  std::vector<std::string> keys;
  for (const Json& key : to_array(value, name)) keys.push_back(to_key(key, name));
  return keys;
}

template <class T, std::size_t kCount>
T choice(const Json& request, const char* name, T otherwise,
         const std::array<std::pair<std::string_view, T>, kCount>& choices) {
  const Json* const value = field(request, name);
  if (value == nullptr) return otherwise;
  std::string names;
  for (const auto& [text, meaning] : choices) {
    if (value->is_string() && value->get_ref<const std::string&>() == text) return meaning;
    names += (names.empty() ? "" : ", ") + std::string(text);
  }
  refuse(fmt::format("field '{}' is none of {}", name, names));
}

// ---- answers

// Text of any kind as a JSON string: what is not UTF-8 is replaced.
std::string json_message(std::string_view text) {
  return Json(one_line(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_error(const Error& error) {
  std::string out = fmt::format(R"({{"code":"{}","message":{})", error_code_name(error.code()),
                                json_message(error.what()));
  if (!error.hint().empty()) out += ",\"hint\":" + json_message(error.hint());
  return out + "}";
}

// Appends `,"name":[...]`; `put` appends an element.
template <class Range, class Put>
void append_array(std::string& out, std::string_view name, const Range& range, Put put) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":[", name);
  bool first = true;
  for (const auto& element : range) {
    if (!std::exchange(first, false)) out += ',';
    put(element);
  }
  out += ']';
}

void append_number(std::string& out, std::uint64_t value) {
  fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_number_or_null(std::string& out, std::optional<std::uint64_t> value) {
  value ? append_number(out, *value) : void(out += "null");
}

// Numbers, sizes and errors of records (BatchRecord, EpochRecord).
template <class Records>
void append_outcomes(std::string& out, const Records& records) {
  append_array(out, "numbers", records, [&](const auto& record) {
    append_number_or_null(out,
                          record.number == kNoNumber ? std::nullopt : std::optional(record.number));
  });
  append_array(out, "sizes", records, [&](const auto& record) {
    append_number_or_null(
        out, record.error != nullptr ? std::nullopt : std::optional(record.bytes.size()));
  });
  std::string errors;
  std::size_t index = 0;
  for (const auto& record : records) {
    if (record.error != nullptr) {
      errors +=
          fmt::format("{}[{},{}]", errors.empty() ? "" : ",", index, json_error(*record.error));
    }
    ++index;
  }
  if (!errors.empty()) out += ",\"errors\":[" + errors + "]";
}

}  // namespace

// ---- what sessions share

ReaderOptions ServedDataset::begin(std::uint64_t workers) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t left = options_.memory_bytes - std::min(options_.memory_bytes, taken_);
  ReaderOptions share = options_;
  share.memory_bytes =
      std::max(kLeastMemory, std::min(options_.memory_bytes / workers, left - left / 4));
  if (workers > 1) {
    const std::uint64_t threads = options_.threads;
    share.threads = static_cast<unsigned>(std::max<std::uint64_t>(1, threads / workers));
  }
  taken_ += share.memory_bytes;
  return share;
}

void ServedDataset::end(const ReaderOptions& share, const ReaderStats& stats) {
  const std::lock_guard lock(mutex_);
  taken_ -= share.memory_bytes;
  stats_ += stats;
}

ReaderStats ServedDataset::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// ---- a session

class ServeSession::State {
 public:
  State(ServedDataset& served, Output& out)
      : served_(served), dataset_(served.dataset()), out_(out) {}
  ~State() {
    if (batches_) served_.end(batch_share_, batches_->stats());
    if (ranges_) served_.end(range_share_, ranges_->stats());
    for (auto& [name, epoch] : epochs_) close(epoch);
  }

  bool answer(std::string_view text);
  void refuse_long_request() {
    id_ = "null";
    answer_error(Error(ErrorCode::kInvalidArgument,
                       fmt::format("a request is longer than {} bytes", kMaxRequestBytes)));
  }

 private:
  struct Epoch {
    ReaderOptions share;
    OrderOptions order;
    Even even = Even::kNone;
    std::shared_ptr<const Selection> selection;
    std::uint64_t start = 0;
    std::uint64_t end = 0;  // for all ranks
    std::uint64_t samples = 0;
    std::unique_ptr<EpochReader> reader;
  };

  void answer_error(const Error& error) {
    out_.write(fmt::format("{{\"id\":{},\"ok\":false,\"error\":{}}}\n", id_, json_error(error)));
  }
  // The answer to the request, from `fields`, each with a comma before it.
  void answer_ok(std::string_view fields) {
    out_.write(fmt::format("{{\"id\":{},\"ok\":true{}}}\n", id_, fields));
  }
  // The answer with records, from `fields`, and the bytes of those that have no place in a file.
  template <class Records>
  void answer_records(std::string fields, const Records& records, bool with_places);
  std::uint64_t number_of_file(const RecordPlace& place, std::string& files);

  void dispatch(const std::string& name, const Json& request);
  void hello(const Json& request);
  void info();
  void list(const Json& request);
  void lookup(const Json& request);
  void get(const Json& request);
  void range(const Json& request);
  void open_epoch(const Json& request);
  void next(const Json& request);
  void state(const Json& request);
  void close_epoch(const Json& request);
  void statistics();

  std::uint64_t number_of(const std::string& key) const;
  std::vector<std::uint64_t> wanted_numbers(const Json& request,
                                            std::map<std::size_t, Error>& unknown) const;
  std::shared_ptr<const Selection> selection(const Json& request) const;
  Epoch& epoch_of(const Json& request);
  void close(Epoch& epoch) { served_.end(epoch.share, epoch.reader->stats()); }

  ServedDataset& served_;
  const Dataset& dataset_;
  Output& out_;
  std::string id_ = "null";  // of the request, as JSON
  bool greeted_ = false;
  bool places_ = false;  // agreed: the client maps files itself
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> files_;  // that were named
  bool ended_ = false;
  std::string answer_;  // its memory is used again

  ReaderOptions batch_share_;
  std::optional<BatchReader> batches_;
  RecordBatch batch_;
  ReaderOptions range_share_;
  std::optional<Reader> ranges_;
  std::map<std::uint64_t, Epoch> epochs_;
  std::uint64_t last_epoch_ = 0;
};

bool ServeSession::State::answer(std::string_view text) {
  id_ = "null";
  try {
    const auto check_depth = [](int depth, Json::parse_event_t, const Json&) {
      if (depth > kMaxDepth) refuse("a request is nested too deeply");
      return true;
    };
    Json request;
    try {
      request = Json::parse(text, check_depth);
    } catch (const Json::exception&) {
      refuse("a request is one object of JSON in a line");
    }
    if (!request.is_object()) refuse("a request is one object of JSON in a line");
    const Json* const id = field(request, "id");
    if (id == nullptr || !(id->is_number() || id->is_string()))
      refuse("field 'id' is missing, or neither a number nor a string");
    id_ = id->dump(-1, ' ', false, Json::error_handler_t::replace);
    const Json* const name = field(request, "request");
    if (name == nullptr || !name->is_string()) refuse("field 'request' is missing, or no string");
    dispatch(name->get_ref<const std::string&>(), request);
  } catch (const Error& error) {
    answer_error(error);
    if (!greeted_) ended_ = true;
  }
  return !ended_;
}

void ServeSession::State::dispatch(const std::string& name, const Json& request) {
  if (name == "hello") return hello(request);
  if (!greeted_) refuse("the first request is hello");
  if (name == "info") return info();
  if (name == "list") return list(request);
  if (name == "lookup") return lookup(request);
  if (name == "get") return get(request);
  if (name == "range") return range(request);
  if (name == "epoch") return open_epoch(request);
  if (name == "next") return next(request);
  if (name == "state") return state(request);
  if (name == "close") return close_epoch(request);
  if (name == "statistics") return statistics();
  if (name != "bye") refuse(fmt::format("there is no request {}", json_message(name)));
  answer_ok("");
  ended_ = true;
}

void ServeSession::State::hello(const Json& request) {
  const std::uint64_t newest = needed_number(request, "protocol");
  if (newest < kProtocol)
    refuse(fmt::format("protocol {}: this server speaks {}", newest, kProtocol));
  places_ = truth(request, "places", false);
  greeted_ = true;
  answer_ok(fmt::format(
      R"(,"protocol":{},"server":"sml {}","places":{},"limits":{{"request_bytes":{},"keys":{},"payload":{},"epochs":{}}})",
      kProtocol, SML_VERSION, places_, kMaxRequestBytes, kMaxKeys, kMaxPayload, kMaxEpochs));
}

void ServeSession::State::info() {
  std::string fields = ",\"location\":";
  append_json_bytes(fields, served_.location());
  fields +=
      fmt::format(R"(,"revision":{},"containers":"{}","records":{},"samples":{},"grouped":{})",
                  dataset_.revision(), dataset_.digest().hex(), dataset_.records(),
                  dataset_.samples(), dataset_.grouping() != Grouping::kNone);
  answer_ok(fields);
}

// Keys with a prefix lie, in name order, from the prefix on: those with its stem, later those whose
// stem has the prefix; between them there may be others.
void ServeSession::State::list(const Json& request) {
  const Json* const given_prefix = field(request, "prefix");
  const std::string prefix = given_prefix ? to_key(*given_prefix, "prefix") : std::string();
  const Json* const given_after = field(request, "after");
  const std::string after = given_after ? to_key(*given_after, "after") : std::string();
  const std::uint64_t count = number_in(request, "count", kDefaultCount, 1, kMaxKeys);

  const bool from_prefix = !prefix.empty() && compare_names(after, prefix) < 0;
  std::vector<std::string> keys;
  std::vector<std::uint64_t> numbers;
  bool more = false;
  for (Dataset::NameCursor at(dataset_, from_prefix ? prefix : after); !at.done(); at.advance()) {
    if (!after.empty() && at.key() == after) continue;
    if (!at.key().starts_with(prefix)) {
      if (key_stem(at.key()).substr(0, prefix.size()) > prefix) break;
      continue;
    }
    if (keys.size() == count) {
      more = true;
      break;
    }
    keys.emplace_back(at.key());
    numbers.push_back(at.number());
  }
  answer_.clear();
  append_array(answer_, "keys", keys,
               [&](const std::string& key) { append_json_bytes(answer_, key); });
  append_array(answer_, "numbers", numbers,
               [&](std::uint64_t number) { append_number(answer_, number); });
  append_array(answer_, "sizes", numbers,
               [&](std::uint64_t number) { append_number(answer_, dataset_.raw_bytes(number)); });
  answer_ += more ? ",\"more\":true" : ",\"more\":false";
  answer_ok(answer_);
}

void ServeSession::State::lookup(const Json& request) {
  const Json* const given = field(request, "keys");
  if (given == nullptr) refuse("field 'keys' is missing");
  std::vector<std::optional<std::uint64_t>> numbers;
  for (const std::string& key : to_keys(*given, "keys")) numbers.push_back(dataset_.find(key));
  answer_.clear();
  append_array(answer_, "numbers", numbers,
               [&](const auto& number) { append_number_or_null(answer_, number); });
  append_array(answer_, "sizes", numbers, [&](const auto& number) {
    append_number_or_null(answer_, number ? std::optional(dataset_.raw_bytes(*number)) : number);
  });
  answer_ok(answer_);
}

// Throws kNotFound, kAmbiguous.
std::uint64_t ServeSession::State::number_of(const std::string& key) const {
  if (const auto number = dataset_.find(key)) return *number;
  throw Error(ErrorCode::kNotFound,
              fmt::format("record '{}': there is no such key", one_line(key)));
}

// Keys and numbers of a request as numbers; kNoNumber, and the reason, for what there is not.
std::vector<std::uint64_t> ServeSession::State::wanted_numbers(
    const Json& request, std::map<std::size_t, Error>& unknown) const {
  const Json* const keys = field(request, "keys");
  const Json* const given = field(request, "numbers");
  if ((keys == nullptr) == (given == nullptr)) refuse("either 'keys' or 'numbers' is needed");
  std::vector<std::uint64_t> numbers;
  if (given != nullptr) {
    for (const Json& value : to_array(*given, "numbers"))
      numbers.push_back(to_number(value, "numbers"));
    return numbers;
  }
  for (const std::string& key : to_keys(*keys, "keys")) {
    numbers.push_back(kNoNumber);
    try {
      numbers.back() = number_of(key);
    } catch (const Error& error) {
      unknown.emplace(numbers.size() - 1, error);
    }
  }
  return numbers;
}

void ServeSession::State::get(const Json& request) {
  std::map<std::size_t, Error> unknown;
  const std::vector<std::uint64_t> numbers = wanted_numbers(request, unknown);
  std::uint64_t payload = 0;
  for (const std::uint64_t number : numbers) {
    if (number < dataset_.records()) payload += dataset_.raw_bytes(number);
    if (payload > kMaxPayload) {
      throw Error(ErrorCode::kLimit,
                  fmt::format("the records have more than {} bytes together", kMaxPayload),
                  "ask for fewer, or for ranges of them");
    }
  }
  if (!batches_) {
    batch_share_ = served_.begin(4);
    batches_.emplace(dataset_, batch_share_);
  }
  batches_->read_batch(numbers, batch_);
  std::vector<BatchRecord> records(batch_.begin(), batch_.end());
  for (auto& [index, error] : unknown) records[index].error = &error;
  for (BatchRecord& record : records) {
    if (record.number >= dataset_.records()) record.number = kNoNumber;
  }
  answer_records({}, records, truth(request, "places", places_));
  if (payload > kKeptBytes) batch_ = RecordBatch();
}

void ServeSession::State::range(const Json& request) {
  const Json* const key = field(request, "key");
  if ((key == nullptr) == (field(request, "number") == nullptr))
    refuse("either 'key' or 'number' is needed");
  std::uint64_t number = 0;
  if (key != nullptr) {
    number = number_of(to_key(*key, "key"));
  } else {
    number = needed_number(request, "number");
    if (number >= dataset_.records()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("record {}: there are {} records", number, dataset_.records()));
    }
  }
  const std::uint64_t size = dataset_.raw_bytes(number);
  const std::uint64_t offset = std::min(needed_number(request, "offset"), size);
  const std::uint64_t bytes = std::min(needed_number(request, "bytes"), size - offset);
  if (bytes > kMaxPayload) {
    throw Error(ErrorCode::kLimit, fmt::format("{} bytes: at most {}", bytes, kMaxPayload),
                "ask for a shorter range");
  }
  // Before the answer is begun: what cannot be read makes it an error.
  std::string wanted;
  if (bytes > 0) {
    if (!ranges_) {
      range_share_ = served_.begin(4);
      ranges_.emplace(dataset_, range_share_, false);
    }
    ranges_->request_range(number, offset, bytes);
    std::optional<Error> failure;
    for (RecordPiece piece; ranges_->pending() > 0 && ranges_->next(piece);) {
      if (piece.error != nullptr) {
        failure = *piece.error;
        continue;
      }
      const std::uint64_t begin = std::max(piece.offset, offset);
      const std::uint64_t end = std::min(piece.offset + piece.bytes.size(), offset + bytes);
      if (begin < end) wanted += as_text(piece.bytes.subspan(begin - piece.offset, end - begin));
    }
    if (failure) throw Error(*failure);
  }
  answer_ok(fmt::format(R"(,"number":{},"size":{},"payload":{})", number, size, wanted.size()));
  out_.write(wanted);
}

std::shared_ptr<const Selection> ServeSession::State::selection(const Json& request) const {
  const Json* const given = field(request, "select");
  if (given == nullptr) return nullptr;
  if (!given->is_object()) refuse("field 'select' is no object");
  SelectionOptions options;
  const auto globs = [&](const char* name, std::vector<Glob>& out) {
    if (const Json* const patterns = field(*given, name)) {
      for (const std::string& pattern : to_keys(*patterns, name)) out.emplace_back(pattern);
    }
  };
  globs("match", options.match);
  globs("exclude", options.exclude);
  std::vector<std::string> keys;
  std::size_t next = 0;
  if (const Json* const listed = field(*given, "keys")) {
    keys = to_keys(*listed, "keys");
    options.next_key = [&](std::string& key) {
      if (next == keys.size()) return false;
      key = keys[next++];
      return true;
    };
  }
  return std::make_shared<const Selection>(select(dataset_, options));
}

void ServeSession::State::open_epoch(const Json& request) {
  if (epochs_.size() >= kMaxEpochs) {
    throw Error(ErrorCode::kLimit, fmt::format("{} epochs are open", epochs_.size()),
                "close one of them");
  }
  static constexpr std::array<std::pair<std::string_view, OrderMode>, 2> kModes{
      {{"block", OrderMode::kBlock}, {"full", OrderMode::kFull}}};
  static constexpr std::array<std::pair<std::string_view, Even>, 3> kEvens{
      {{"none", Even::kNone}, {"drop", Even::kDrop}, {"wrap", Even::kWrap}}};
  OrderState saved;
  const Json* const from = field(request, "state");
  if (from != nullptr) saved = OrderState::parse(from->dump());
  Epoch epoch;
  epoch.order.seed = number(request, "seed").value_or(saved.order.seed);
  epoch.order.epoch = number(request, "epoch").value_or(saved.order.epoch);
  epoch.order.mode = choice(request, "mode", saved.order.mode, kModes);
  epoch.order.lanes =
      static_cast<std::uint32_t>(number_in(request, "lanes", saved.order.lanes, 1, 0xffff'ffff));
  epoch.even = choice(request, "even", saved.even, kEvens);
  epoch.selection = selection(request);
  if (from != nullptr) {
    saved.check_same(
        make_state(dataset_, epoch.order, epoch.even, epoch.selection.get(), saved.position));
  }
  ShareOptions part;
  part.world = number_in(request, "world", 1, 1, ~std::uint64_t{0});
  part.rank = number_in(request, "rank", 0, 0, part.world - 1);
  part.batch = number_in(request, "batch", 1, 1, kMaxBatch);
  part.even = epoch.even;
  part.start = number(request, "position").value_or(saved.position);
  EpochOptions options;
  options.batch = part.batch;
  options.workers = number_in(request, "workers", 1, 1, kMaxKeys);
  options.worker = number_in(request, "worker", 0, 0, options.workers - 1);

  epoch.start = part.start;
  epoch.samples = epoch.selection ? epoch.selection->samples.size() : dataset_.samples();
  const Share share = share_of(epoch.samples, part);
  epoch.end = share.next_start;
  auto order = std::make_shared<const Order>(dataset_, epoch.order, epoch.selection);
  epoch.share = options.reader = served_.begin(options.workers);
  epoch.reader = std::make_unique<EpochReader>(dataset_, std::move(order), share, options);
  answer_ok(fmt::format(
      R"(,"epoch":{},"samples":{},"batches":{},"dropped":{},"wrapped":{},"position":{})",
      ++last_epoch_, epoch.samples, epoch.reader->batches(), share.dropped, share.wrapped,
      part.start));
  epochs_.emplace(last_epoch_, std::move(epoch));
}

ServeSession::State::Epoch& ServeSession::State::epoch_of(const Json& request) {
  const std::uint64_t name = needed_number(request, "epoch");
  const auto found = epochs_.find(name);
  if (found == epochs_.end()) refuse(fmt::format("epoch {} is not open", name));
  return found->second;
}

void ServeSession::State::next(const Json& request) {
  Epoch& epoch = epoch_of(request);
  const std::unique_ptr<EpochBatch> batch = epoch.reader->next();
  if (!batch) return answer_ok(fmt::format(R"(,"end":true,"position":{})", epoch.end));
  std::uint64_t payload = 0;
  for (const EpochRecord& record : batch->records) payload += record.bytes.size();
  if (payload > kMaxPayload) {
    throw Error(
        ErrorCode::kLimit,
        fmt::format("batch {} has {} bytes: at most {}", batch->number, payload, kMaxPayload),
        "smaller batches");
  }
  answer_.clear();
  fmt::format_to(std::back_inserter(answer_), ",\"batch\":{},\"position\":{}", batch->number,
                 batch->position);
  if (dataset_.grouping() != Grouping::kNone) {
    append_array(answer_, "samples", batch->sample_sizes,
                 [&](std::uint64_t size) { append_number(answer_, size); });
  }
  append_array(answer_, "keys", batch->records,
               [&](const EpochRecord& record) { append_json_bytes(answer_, record.key); });
  answer_records(std::move(answer_), batch->records, places_);
}

// Each file is named once, when it is mentioned first.
std::uint64_t ServeSession::State::number_of_file(const RecordPlace& place, std::string& files) {
  const auto [found, is_new] = files_.try_emplace({place.container, place.block}, files_.size());
  if (is_new) {
    files += fmt::format("{}[{},", files.empty() ? "" : ",", found->second);
    append_json_bytes(files, place.path(dataset_));
    files += ']';
  }
  return found->second;
}

template <class Records>
void ServeSession::State::answer_records(std::string fields, const Records& records,
                                         bool with_places) {
  append_outcomes(fields, records);
  std::vector<bool> in_file(records.size());
  if (with_places) {
    std::string files;
    std::size_t i = 0;
    append_array(fields, "places", records, [&](const auto& record) {
      // An empty one needs no file.
      in_file[i] = record.immutable && record.error == nullptr && !record.bytes.empty();
      if (!in_file[i++]) {
        fields += "null";
        return;
      }
      const RecordPlace place = RecordPlace::of(dataset_, record.number);
      fmt::format_to(std::back_inserter(fields), "[{},{}]", number_of_file(place, files),
                     place.offset);
    });
    if (!files.empty()) fields += ",\"files\":[" + files + "]";
  }
  std::uint64_t payload = 0;
  for (std::size_t i = 0; i < records.size(); ++i)
    payload += in_file[i] ? 0 : records[i].bytes.size();
  fmt::format_to(std::back_inserter(fields), ",\"payload\":{}", payload);
  answer_ok(fields);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!in_file[i]) out_.write_held(records[i].bytes, records[i].immutable);
  }
  out_.release();
}

void ServeSession::State::state(const Json& request) {
  const Epoch& epoch = epoch_of(request);
  const std::uint64_t position = number_in(request, "position", epoch.start, 0, epoch.samples);
  answer_ok(
      ",\"state\":" +
      make_state(dataset_, epoch.order, epoch.even, epoch.selection.get(), position).to_json());
}

void ServeSession::State::close_epoch(const Json& request) {
  close(epoch_of(request));
  epochs_.erase(needed_number(request, "epoch"));
  answer_ok("");
}

void ServeSession::State::statistics() {
  ReaderStats sum = served_.stats();
  if (batches_) sum += batches_->stats();
  if (ranges_) sum += ranges_->stats();
  for (const auto& [name, epoch] : epochs_) sum += epoch.reader->stats();
  answer_ok(fmt::format(
      R"(,"statistics":{{"records":{},"bytes":{},"stored_bytes":{},"failed":{},"operations":{},"read_bytes":{},"waited_ns":{},)"
      R"("cache_hits":{},"cache_misses":{},"cache_bytes":{},"blocks_kept":{},"blocks_damaged":{}}})",
      sum.records, sum.bytes, sum.stored_bytes, sum.failed, sum.operations, sum.read_bytes,
      sum.waited_ns, sum.cache_hits, sum.cache_misses, sum.cache_bytes, sum.blocks_kept,
      sum.blocks_damaged));
}

ServeSession::ServeSession(ServedDataset& served, Output& out)
    : state_(std::make_unique<State>(served, out)) {}
ServeSession::~ServeSession() = default;

bool ServeSession::answer(std::string_view request) { return state_->answer(request); }
void ServeSession::refuse_long_request() { state_->refuse_long_request(); }

}  // namespace sml
