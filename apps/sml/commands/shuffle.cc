// sml shuffle DATASET|-
#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/commands.h"
#include "lists.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "smlformat/permutation.h"
#include "smlstore/key_batch.h"
#include "smlstore/order.h"
#include "smlstore/selection.h"
#include "terminal.h"

namespace sml {
namespace {

// Positions asked of the order at once.
constexpr std::size_t kRunPositions = 32768;

struct ShuffleArguments {
  std::optional<std::string> dataset;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> epoch;
  std::optional<OrderMode> mode;
  std::optional<std::uint32_t> lanes;
  std::optional<Even> even;
  std::optional<std::uint64_t> start;
  ShareOptions share;
  std::optional<std::uint64_t> batch;
  std::optional<std::string> select;
  std::vector<std::string> match;
  std::vector<std::string> exclude;
  std::optional<std::string> from_state;
  bool state = false;
  bool ids = false;
  bool nul = false;
  bool partial = false;
  bool stats = false;
  StoreArguments store;
  ReportOptions report;
  // resolved
  Location location;
  std::vector<Glob> match_globs;
  std::vector<Glob> exclude_globs;

  bool lines() const { return dataset == "-"; }
};

std::vector<Glob> parse_globs(const std::vector<std::string>& patterns) {
  std::vector<Glob> globs;
  for (const std::string& pattern : patterns) {
    try {
      globs.emplace_back(pattern);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  return globs;
}

// Calls `use` with the values of this rank's positions, in order and in runs. `at` fills in the
// values from a position on, with a stride; positions at and beyond `samples` (even wrap) begin
// again at 0.
void for_each_run(const Share& share, std::uint64_t samples,
                  const std::function<void(std::uint64_t first, std::uint64_t stride,
                                           std::span<std::uint64_t>)>& at,
                  const std::function<void(std::span<const std::uint64_t>)>& use) {
  std::vector<std::uint64_t> run(
      static_cast<std::size_t>(std::min<std::uint64_t>(kRunPositions, share.size())));
  std::uint64_t left = share.size();
  std::uint64_t first = left > 0 ? share.first % samples : 0;
  while (left > 0) {
    const std::uint64_t to_wrap = (samples - first - 1) / share.world + 1;
    const std::uint64_t count = std::min({left, to_wrap, std::uint64_t{run.size()}});
    const std::span<std::uint64_t> out(run.data(), static_cast<std::size_t>(count));
    at(first, share.world, out);
    use(out);
    left -= count;
    // The next position, modulo samples, by steps that cannot overflow.
    first = (first + (count - 1) * share.world + share.world % samples) % samples;
  }
}

// Writes the keys of records, in order. They are looked up by batches, which begin small, so that
// the first keys come at once.
class KeyWriter {
 public:
  KeyWriter(const Dataset& dataset, ListOutput& out) : keys_(dataset), out_(out) {}

  void add(std::uint64_t number) {
    numbers_.push_back(number);
    if (numbers_.size() >= limit_) flush();
  }
  void flush() {
    keys_.load(numbers_);
    for (std::size_t i = 0; i < numbers_.size(); ++i) out_.write(keys_[i]);
    numbers_.clear();
    limit_ = std::min(keys_.limit(), 4 * limit_);
  }

 private:
  KeyBatch keys_;
  ListOutput& out_;
  std::vector<std::uint64_t> numbers_;
  std::size_t limit_ = 1024;
};

class ShuffleCommand final : public Command {
 public:
  void define(CommandLine& line) override;
  void resolve() override;
  Outcome run(Console& console) override {
    console.configure(args_.report);
    if (args_.from_state == "-" || args_.select == "-" || args_.lines())
      refuse_input_terminal("lists");
    const auto begin = std::chrono::steady_clock::now();
    Output out = Output::standard();
    try {
      args_.lines() ? shuffle_lines(console, out) : shuffle_dataset(console, out);
    } catch (const Error&) {
      out.flush();
      throw;
    }
    out.finish();
    if (args_.stats) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      console.print(fmt::format("samples {}\nrecords {}\nseconds {:.3f}\n", samples_, records_,
                                seconds.count()));
    }
    return Outcome::kDone;
  }

 private:
  void shuffle_lines(Console& console, Output& out);
  void shuffle_dataset(Console& console, Output& out);
  std::shared_ptr<const Selection> selection(const Dataset& dataset) const;
  // The options, and with --from-state what the state says where no option does. Throws where they
  // differ.
  OrderOptions continued(const Dataset& dataset, const Selection* selection);
  Share share(std::uint64_t samples, std::string_view what, Console& console) const;

  ShuffleArguments args_;
  std::uint64_t samples_ = 0;
  std::uint64_t records_ = 0;
};

void ShuffleCommand::define(CommandLine& line) {
  line.describe("DATASET|-",
                "Prints the keys of a data set in the random order of an epoch, the records of a "
                "sample together.\n"
                "With - it shuffles the lines of standard input.");
  line.positional("DATASET", args_.dataset, "a container, a data set, or - for lines");
  line.group("Order");
  line.number("--seed", "N", args_.seed, "seed of the order; default 0");
  line.number("--epoch", "N", args_.epoch, "another epoch, another order; default 0");
  line.choice(
      "--mode", args_.mode,
      std::vector<std::pair<std::string, OrderMode>>{{"block", OrderMode::kBlock},
                                                     {"full", OrderMode::kFull}},
      "block (default): reads stay within --lanes blocks;\nfull: any sample may follow any other");
  line.number("--lanes", "L", args_.lanes, "blocks that a block-mode order mixes; default 64", 1,
              0xffff'ffff);
  line.group("Share of one process");
  line.number("--rank", "R", args_.share.rank, "this process, from 0; default 0");
  line.number("--world", "N", args_.share.world, "processes that share the epoch; default 1", 1);
  line.number("--batch", "N", args_.batch, "samples in a batch of one rank, for --even", 1);
  line.choice("--even", args_.even,
              std::vector<std::pair<std::string, Even>>{
                  {"none", Even::kNone}, {"drop", Even::kDrop}, {"wrap", Even::kWrap}},
              "none (default): ranks may differ by a sample;\ndrop: leave out the rest; wrap: fill "
              "up from the front");
  line.number("--start", "P", args_.start, "first position of the global order; default 0");
  line.number("--count", "N", args_.share.count,
              "positions of the global order, all ranks together");
  line.group("Selection");
  line.text("--select", "FILE", args_.select,
            "only the samples of the keys listed there; - is standard input");
  line.repeated("--match", "GLOB", args_.match,
                "only samples with a record that matches; may be repeated");
  line.repeated("--exclude", "GLOB", args_.exclude,
                "no sample with a record that matches; may be repeated");
  line.group("Continue");
  line.flag("--state", args_.state, "instead of keys, the state after the range, one line");
  line.text("--from-state", "FILE", args_.from_state,
            "continue where that state was left; - is standard input");
  line.group("Output");
  line.flag("--ids", args_.ids, "record numbers instead of keys");
  add_nul_option(line, args_.nul);
  line.flag("--stats", args_.stats, "counts and time on standard error");
  add_partial_option(line, args_.partial);
  add_store_options(line, args_.store);
  add_report_options(line, args_.report);
  line.epilog(
      "Examples:\n"
      "  sml shuffle photos.sml --seed 1 --epoch 3 | sml cat photos.sml --format tar | tar t\n"
      "  sml shuffle photos.sml --rank 0 --world 8 --even drop --batch 32\n"
      "  sml ls photos.sml 'cats/**' | sml shuffle - --seed 1\n"
      "\n"
      "Exit codes: 0 done; 1 failed; 2 wrong usage.");
}

void ShuffleCommand::resolve() {
  if (!args_.dataset) throw UsageError("no DATASET given");
  if (args_.share.rank >= args_.share.world) {
    throw UsageError(fmt::format("rank {} in a world of {} (ranks count from 0)", args_.share.rank,
                                 args_.share.world));
  }
  args_.share.batch = args_.batch.value_or(0);
  if (args_.lines()) {
    const auto refuse = [](bool given, const char* option) {
      if (given)
        throw UsageError(std::string(option) + " has no meaning for lines of standard input");
    };
    refuse(args_.mode == OrderMode::kBlock, "--mode block");
    refuse(args_.lanes.has_value(), "--lanes");
    refuse(args_.ids, "--ids");
    refuse(args_.state, "--state");
    refuse(args_.from_state.has_value(), "--from-state");
    refuse(args_.select.has_value(), "--select");
    refuse(!args_.match.empty(), "--match");
    refuse(!args_.exclude.empty(), "--exclude");
    refuse(args_.partial, "--partial");
    return;
  }
  args_.location = parse_dataset(args_.dataset);
  if (args_.lanes && args_.mode == OrderMode::kFull)
    throw UsageError("--lanes has no meaning with --mode full");
  if (args_.state && (args_.ids || args_.nul)) throw UsageError("--state excludes --ids and -0");
  if (args_.from_state && args_.start)
    throw UsageError("--from-state and --start exclude each other");
  if (args_.from_state == "-" && args_.select == "-") {
    throw UsageError("--from-state and --select cannot both be standard input");
  }
  args_.match_globs = parse_globs(args_.match);
  args_.exclude_globs = parse_globs(args_.exclude);
}

void ShuffleCommand::shuffle_lines(Console& console, Output& out) {
  ListInput input("-", args_.nul, std::numeric_limits<std::size_t>::max());
  std::string text;
  std::vector<std::uint64_t> starts;
  for (std::string_view line; input.next(line);) {
    starts.push_back(text.size());
    text += line;
  }
  const std::uint64_t count = starts.size();
  starts.push_back(text.size());
  const Permutation order(
      count, {PermutationUse::kEpoch, args_.seed.value_or(0), args_.epoch.value_or(0), 0});
  args_.share.start = args_.start.value_or(0);
  args_.share.even = args_.even.value_or(Even::kNone);
  ListOutput lines(out, args_.nul);
  const auto at = [&](std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> values) {
    if (stride == 1) return order.apply(first, values);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = order.apply(first + i * stride);
  };
  for_each_run(share(count, "line", console), count, at, [&](std::span<const std::uint64_t> run) {
    for (const std::uint64_t i : run)
      lines.write(std::string_view(text).substr(starts[i], starts[i + 1] - starts[i]));
    samples_ += run.size();
  });
  records_ = samples_;
}

void ShuffleCommand::shuffle_dataset(Console& console, Output& out) try {
  const Dataset dataset = open_dataset(args_.location, args_.store, args_.partial, console);
  const auto selected = selection(dataset);
  const OrderOptions options = continued(dataset, selected.get());
  const std::uint64_t samples = selected ? selected->samples.size() : dataset.samples();
  const Share part = share(samples, "sample", console);
  if (args_.state) {
    out.write(
        make_state(dataset, options, args_.share.even, selected.get(), part.next_start).to_json() +
        "\n");
    return;
  }
  const Order order(dataset, options, selected);
  ListOutput keys(out, args_.nul);
  KeyWriter writer(dataset, keys);
  const auto write = [&](std::uint64_t number) {
    if (args_.ids) {
      keys.write_number(number);
    } else {
      writer.add(number);
    }
  };
  const auto at = [&](std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> values) {
    order.at(first, stride, values);
  };
  const bool grouped = dataset.grouping() != Grouping::kNone;
  for_each_run(part, samples, at, [&](std::span<const std::uint64_t> run) {
    samples_ += run.size();
    if (!grouped) {  // a sample is a record, with the same number
      for (const std::uint64_t number : run) write(number);
      records_ += run.size();
      return;
    }
    for (const std::uint64_t sample : run) {
      const NumberRange range = dataset.sample(sample);
      for (std::uint64_t number = range.first; number < range.last; ++number) write(number);
      records_ += range.size();
    }
  });
  writer.flush();
} catch (const Error& error) {
  throw located(error, args_.location);
}

std::shared_ptr<const Selection> ShuffleCommand::selection(const Dataset& dataset) const {
  if (!args_.select && args_.match.empty() && args_.exclude.empty()) return nullptr;
  SelectionOptions options;
  options.match = args_.match_globs;
  options.exclude = args_.exclude_globs;
  std::unique_ptr<ListInput> list;
  if (args_.select) {
    list = std::make_unique<ListInput>(*args_.select, args_.nul);
    options.next_key = [&list](std::string& key) {
      std::string_view line;
      if (!list->next(line)) return false;
      key = line;
      return true;
    };
  }
  return std::make_shared<const Selection>(select(dataset, options));
}

OrderOptions ShuffleCommand::continued(const Dataset& dataset, const Selection* selection) {
  OrderState saved;
  if (args_.from_state) {
    ListInput input(*args_.from_state, false);
    std::string_view line;
    if (!input.next(line))
      throw Error(ErrorCode::kInvalidArgument, input.name() + ": no order state");
    saved = OrderState::parse(line);
    args_.share.start = saved.position;
  } else {
    args_.share.start = args_.start.value_or(0);
  }
  OrderOptions options;
  options.seed = args_.seed.value_or(saved.order.seed);
  options.epoch = args_.epoch.value_or(saved.order.epoch);
  options.mode = args_.mode.value_or(saved.order.mode);
  options.lanes = args_.lanes.value_or(saved.order.lanes);
  args_.share.even = args_.even.value_or(saved.even);
  if (args_.from_state)
    saved.check_same(make_state(dataset, options, args_.share.even, selection, 0));
  return options;
}

Share ShuffleCommand::share(std::uint64_t samples, std::string_view what, Console& console) const {
  const Share part = share_of(samples, args_.share);
  if (part.dropped > 0)
    console.note(shown_count(part.dropped, what) + " dropped at the end (--even drop)");
  if (part.wrapped > 0)
    console.note(shown_count(part.wrapped, what) + " repeated from the front (--even wrap)");
  return part;
}

}  // namespace

std::unique_ptr<Command> make_shuffle_command() { return std::make_unique<ShuffleCommand>(); }

}  // namespace sml
