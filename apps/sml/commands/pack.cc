// sml pack SOURCE... -o DEST
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/stat.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "destination.h"
#include "interrupt.h"
#include "json_text.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "pack_input.h"
#include "progress.h"
#include "smlformat/key.h"
#include "smlstore/packer.h"
#include "smlstore/spill.h"
#include "terminal.h"

namespace sml {
namespace {

using Kind = PackInputOptions::Kind;

struct PackArguments {
  PackInputOptions input;
  bool archive = false;
  bool frames = false;
  SourceOptions source;
  std::optional<std::string> output;
  std::optional<std::string> name;
  std::optional<PackOrder> order;
  PackOptions pack;
  std::uint64_t block_bytes = kDefaultBlockBytes;
  std::uint64_t align = 1;
  std::optional<unsigned> threads;
  bool skip = false;
  bool overwrite = false;
  bool resume = false;
  bool dry_run = false;
  bool json = false;
  StoreArguments store;
  ReportOptions report;
  // resolved
  Location location;
};

CompressionOptions parse_compression(const std::string& text) {
  CompressionOptions options;
  if (text == "none") {
    options.mode = CompressionOptions::Mode::kNone;
  } else if (text == "zstd" || text.starts_with("zstd:")) {
    options.mode = CompressionOptions::Mode::kZstd;
    if (text.size() > 4) options.level = static_cast<int>(parse_number(text.substr(5), 1, 19));
  } else if (text != "auto") {
    throw UsageError("'" + text + "' is none of auto|none|zstd[:LEVEL]");
  }
  return options;
}

// What was left out and why, for the report and the exit code.
struct Losses {
  std::vector<std::string> skipped;
  std::uint64_t duplicates = 0;
  std::string first_duplicate;
  std::set<std::string> passed_over;  // members of archives that are no files
};

class PackCommand final : public Command {
 public:
  void define(CommandLine& line) override;
  void resolve() override;
  Outcome run(Console& console) override;

 private:
  void resolve_input();
  void leave_out(const std::string& path);
  void keep_output_apart(const Destination& destination);
  void watch(Console& console);
  Outcome already_complete(const Destination& destination, const ContainerReader& reader,
                           Console& console);
  Outcome dry_run(const Destination& destination, const PackInput& input, Console& console);
  Outcome report(const Destination& destination, const ContainerSummary& summary, Console& console);
  Outcome finish(nlohmann::ordered_json document, const std::string& text, Console& console);

  PackArguments args_;
  Losses losses_;
  std::uint64_t resumed_records_ = 0;
};

void PackCommand::define(CommandLine& line) {
  line.describe("SOURCE... -o DEST",
                "Merges files into one container. It appears whole or not at all, and depends "
                "neither on the number of\n"
                "threads nor on the time.");
  line.positionals("SOURCE", args_.input.sources,
                   "directories and files; with --archive or --frames such files");
  line.group("Input");
  line.flag("--archive", args_.archive, "sources are tar or zip archives; - is standard input");
  line.flag("--frames", args_.frames, "sources are framed record streams; - is standard input");
  line.text("--files-from", "FILE", args_.input.files_from,
            "pack the files listed there; - is standard input");
  add_nul_option(line, args_.input.nul);
  line.text("--prefix", "TEXT", args_.source.prefix, "put before every key");
  line.choice(
      "--symlinks", args_.source.symlinks,
      std::vector<std::pair<std::string, Symlinks>>{
          {"follow", Symlinks::kFollow}, {"skip", Symlinks::kSkip}, {"error", Symlinks::kError}},
      "default follow");
  line.choice(
      "--on-duplicate", args_.pack.on_duplicate,
      std::vector<std::pair<std::string, OnDuplicate>>{{"error", OnDuplicate::kError},
                                                       {"skip", OnDuplicate::kSkip},
                                                       {"replace", OnDuplicate::kReplace}},
      "two files with one key: error (default), or the\nfirst (skip) or the last (replace) wins");
  line.choice("--on-error", args_.skip,
              std::vector<std::pair<std::string, bool>>{{"fail", false}, {"skip", true}},
              "what cannot be read: give up (default), or list it,\npack the rest and exit 3");
  line.group("Output");
  line.text("-o,--output", "DEST", args_.output,
            "a file; or a data set: a directory, a name that ends in /,\nor rados://POOL/DATASET");
  line.text("--name", "NAME", args_.name,
            "of the container in a data set; default: time and random\ndigits; with --part: part");
  line.value(
      "--part", "I/N",
      [this](const std::string& text) {
        std::tie(args_.pack.part, args_.pack.parts) = parse_part(text, kMaxParts);
      },
      "pack only the I-th of N parts; named NAME-I-of-N");
  line.flag("--overwrite", args_.overwrite, "replace an existing container");
  line.flag("--resume", args_.resume,
            "continue an interrupted pack from what it left, if anything;\nand keep what this one "
            "leaves. A container that is complete\nstays as it is (with --overwrite it is packed "
            "again)");
  line.flag("-n,--dry-run", args_.dry_run, "say what would be done");
  line.flag("--json", args_.json, "a report as a JSON document on standard output");
  line.group("Container");
  line.choice(
      "--order", args_.order,
      std::vector<std::pair<std::string, PackOrder>>{
          {"random", PackOrder::kRandom}, {"name", PackOrder::kName}, {"input", PackOrder::kInput}},
      "of the records; default random, from streams input");
  line.number("--seed", "N", args_.pack.seed, "of the random order; default 0");
  line.choice("--group-by", args_.pack.grouping,
              std::vector<std::pair<std::string, Grouping>>{{"none", Grouping::kNone},
                                                            {"stem", Grouping::kStem}},
              "stem: records whose keys differ after the base name's\nfirst dot are one sample; "
              "default none");
  line.value(
      "--compress", "auto|none|zstd[:LEVEL]",
      [this](const std::string& text) { args_.pack.compression = parse_compression(text); },
      "auto (default): where it pays; LEVEL 1 to 19, default 3");
  line.size("--block-size", args_.block_bytes, "of a block, 64K to 64M; default 4M");
  line.size("--align", args_.align, "of records, a power of two up to 4K; default 1");
  line.group("Speed");
  add_threads_option(line, args_.threads);
  add_store_options(line, args_.store);
  add_report_options(line, args_.report);
  line.epilog(
      "Examples:\n"
      "  sml pack photos -o photos.sml\n"
      "  tar c photos | sml pack --archive - -o photos.sml\n"
      "  find photos -name '*.jpg' -print0 | sml pack --files-from - -0 -o photos/\n"
      "\n"
      "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but records were skipped.");
}

void PackCommand::resolve_input() {
  PackInputOptions& input = args_.input;
  if (args_.archive && args_.frames) throw UsageError("--archive and --frames exclude each other");
  if (args_.archive) input.kind = Kind::kArchive;
  if (args_.frames) input.kind = Kind::kFrames;
  if (input.files_from) {
    if (input.kind != Kind::kFiles)
      throw UsageError("--files-from excludes --archive and --frames");
    if (!input.sources.empty()) throw UsageError("--files-from and SOURCE exclude each other");
  } else {
    if (input.sources.empty()) throw UsageError("no SOURCE given");
    if (input.nul) throw UsageError("-0 is for --files-from");
  }
  std::size_t standard = 0;
  for (const std::string& source : input.sources) {
    if (source.empty()) throw UsageError("SOURCE '' is no file");
    if (source != "-") continue;
    if (input.kind == Kind::kFiles)
      throw UsageError("SOURCE - needs --archive or --frames", "./- is a file of that name");
    if (++standard > 1) throw UsageError("standard input is given twice");
  }
}

// Keys with such components have no place below a directory.
void check_prefix(const std::string& prefix) {
  const std::string path = "/" + prefix;
  if (path.find("//") != std::string::npos || path.find("/./") != std::string::npos ||
      path.find("/../") != std::string::npos) {
    throw UsageError("option --prefix: '" + prefix + "' has an empty, '.' or '..' component");
  }
}

void PackCommand::resolve() {
  resolve_input();
  check_prefix(args_.source.prefix);
  if (!args_.output) throw UsageError("no output given (-o DEST)");
  if (*args_.output == "-") throw UsageError("a container cannot be written to standard output");
  args_.location = parse_location(*args_.output);
  if (args_.name) check_name_option(*args_.name, args_.location, args_.pack.parts > 0);
  if (args_.block_bytes < kMinBlockBytes || args_.block_bytes > kMaxBlockBytes) {
    throw UsageError("option --block-size: not from 64K to 64M");
  }
  args_.pack.block_bytes = static_cast<std::uint32_t>(args_.block_bytes);
  if (args_.align == 0 || args_.align > kMaxAlign || (args_.align & (args_.align - 1)) != 0) {
    throw UsageError("option --align: not a power of two from 1 to 4K");
  }
  args_.pack.align = static_cast<std::uint32_t>(args_.align);
  args_.pack.order = args_.order.value_or(PackOrder::kRandom);
  args_.source.threads = args_.pack.threads = resolve_threads(args_.threads);
  args_.pack.memory_bytes = resolve_memory(std::nullopt, args_.pack.memory_bytes);
}

void PackCommand::watch(Console& console) {
  args_.source.on_problem = args_.pack.on_unreadable = [this, &console](const Error& error) {
    if (!args_.skip) throw error;
    losses_.skipped.emplace_back(error.what());
    console.error(error.within("skipped"));
  };
  args_.source.on_passed_over = [this](const std::string& origin) {
    losses_.passed_over.insert(origin);
  };
  args_.pack.on_dropped = [this](const std::string& origin) {
    if (losses_.duplicates++ == 0) losses_.first_duplicate = origin;
  };
  Progress* const progress = console.progress();
  if (progress != nullptr) {
    args_.source.on_found = [progress](std::uint64_t found) {
      progress->update("found", {found, 0, 0, 0});
    };
  }
  args_.pack.on_progress = [this, progress](const PackProgress& at) {
    resumed_records_ = at.resumed_records;
    if (progress == nullptr) return;
    progress->update("packed", {at.records, at.total_records, at.bytes, at.total_bytes,
                                at.resumed_records, at.resumed_bytes});
  };
}

void PackCommand::leave_out(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    args_.source.leave_out.push_back({status.st_dev, status.st_ino});
  }
}

// The output may lie below a source, and is then no record; but it is never a source itself.
void PackCommand::keep_output_apart(const Destination& destination) {
  for (const std::string& path : destination.own_files()) leave_out(path);
  struct stat output {};
  if (::stat(destination.path().c_str(), &output) != 0) return;
  std::vector<std::string> inputs = args_.input.sources;
  if (args_.input.files_from) inputs.push_back(*args_.input.files_from);
  for (const std::string& input : inputs) {
    struct stat status {};
    if (::stat(input.c_str(), &status) == 0 && status.st_dev == output.st_dev &&
        status.st_ino == output.st_ino) {
      throw UsageError(one_line(input) + " is both input and output");
    }
  }
}

Outcome PackCommand::run(Console& console) {
  console.configure(args_.report);
  if (args_.input.from_standard_input())
    refuse_input_terminal(args_.input.files_from ? "paths" : "records");
  if (is_stream(args_.input)) {
    if (args_.order && args_.order != PackOrder::kInput) {
      throw UsageError("a stream is read once: its records can only be packed in input order",
                       "put it into a file first, or leave out --order");
    }
    if (args_.pack.on_duplicate == OnDuplicate::kReplace) {
      throw UsageError("a stream is read once: --on-duplicate replace is not possible");
    }
    args_.pack.order = PackOrder::kInput;
  }
  DestinationOptions where;
  where.location = args_.location;
  where.name = args_.name;
  where.store = resolve_store(args_.store);
  where.membership = {args_.pack.grouping, args_.pack.part, args_.pack.parts};
  where.overwrite = args_.overwrite;
  where.resume = args_.resume;
  where.recipe = pack_recipe(args_.pack);
  if (args_.resume && args_.location.is_dataset() && !args_.name && args_.pack.parts == 0) {
    throw UsageError("--resume: which container of the data set?",
                     "name it as before, with --name or --part");
  }

  const Interrupt interrupt(args_.location.is_rados() ? Interrupt::kFarGraceMs
                                                      : Interrupt::kGraceMs);
  SpillMemory memory;
  args_.source.memory = args_.pack.memory = &memory;
  args_.source.stop = args_.pack.stop = interrupt.token();
  watch(console);
  Destination destination(std::move(where));
  keep_output_apart(destination);
  if (const auto complete = destination.complete())
    return already_complete(destination, *complete, console);
  if (args_.dry_run) return dry_run(destination, open_input(args_.input, args_.source), console);

  // First, so that an output that cannot be written is known before anything is read.
  ByteSink& sink = destination.begin();
  leave_out(destination.unpublished_path());
  const std::shared_ptr<const ByteSource> interrupted = destination.interrupted();
  args_.pack.resume = interrupted.get();
  try {
    const PackInput input = open_input(args_.input, args_.source);
    if (console.progress() != nullptr) console.progress()->restart();
    const ContainerSummary summary =
        input.list ? pack(*input.list, args_.pack, sink) : pack(*input.stream, args_.pack, sink);
    destination.publish(args_.pack.stop);
    return report(destination, summary, console);
  } catch (const Error& error) {
    const std::string kept = destination.kept();
    if (kept.empty()) throw;
    throw Error(error.code(), error.what(),
                error.hint().empty()
                    ? fmt::format("sml pack --resume ... continues it; {} is kept for that", kept)
                    : fmt::format("{}; {} is kept", error.hint(), kept));
  }
}

// What --resume finds done. Of a stream only reading it could tell more.
Outcome PackCommand::already_complete(const Destination& destination, const ContainerReader& reader,
                                      Console& console) {
  if (!is_stream(args_.input)) {
    const PackInput input = open_input(args_.input, args_.source);
    if (!is_pack_of(*input.list, args_.pack, reader.header())) {
      throw Error(ErrorCode::kAlreadyExists,
                  destination.path() + ": exists already, from other sources or options",
                  "--overwrite replaces it");
    }
  }
  console.note(destination.path() + ": complete already");
  resumed_records_ = reader.index().records();
  return report(destination, {reader.id(), reader.index().counts(), reader.tail().container_bytes},
                console);
}

Outcome PackCommand::dry_run(const Destination& destination, const PackInput& input,
                             Console& console) {
  nlohmann::ordered_json document;
  put_json_text(document, "path", destination.path());
  document["dry_run"] = true;
  std::string text;
  if (input.list) {
    const PackPlan plan = plan_pack(*input.list, args_.pack);
    document["records"] = plan.records;
    document["samples"] = plan.samples;
    document["bytes"] = plan.bytes;
    text = fmt::format("would pack {}, {} into {}\n", shown_count(plan.records, "record"),
                       shown_size(plan.bytes), one_line(destination.path()));
  } else {  // reading it would be the end of it
    text = fmt::format("would pack a stream into {}\n", one_line(destination.path()));
  }
  return finish(std::move(document), args_.json ? "" : text, console);
}

Outcome PackCommand::report(const Destination& destination, const ContainerSummary& summary,
                            Console& console) {
  nlohmann::ordered_json document;
  put_json_text(document, "path", destination.path());
  document["id"] = summary.id.hex();
  document["records"] = summary.counts.records;
  document["samples"] = summary.counts.samples;
  document["bytes"] = summary.counts.raw_bytes;
  document["stored_bytes"] = summary.counts.stored_bytes;
  document["container_bytes"] = summary.container_bytes;
  document["blocks"] = summary.counts.blocks;
  document["resumed_records"] = resumed_records_;
  document["order"] = pack_order_name(args_.pack.order);
  document["seed"] = args_.pack.seed;
  document["grouping"] = grouping_name(args_.pack.grouping);
  if (console.interactive()) {
    if (resumed_records_ > 0) {
      console.note(shown_count(resumed_records_, "record") +
                   " taken over from an interrupted pack");
    }
    console.note(fmt::format("{}, {} in {}: {}", shown_count(summary.counts.records, "record"),
                             shown_size(summary.counts.raw_bytes),
                             shown_size(summary.container_bytes), destination.path()));
  }
  return finish(std::move(document), "", console);
}

Outcome PackCommand::finish(nlohmann::ordered_json document, const std::string& text,
                            Console& console) {
  if (losses_.duplicates > 0) {
    console.note(fmt::format("{} left out, the first {}",
                             shown_count(losses_.duplicates, "duplicate"),
                             losses_.first_duplicate));
  }
  if (!losses_.passed_over.empty()) {
    console.note(fmt::format("{} passed over that are no files (links, devices), the first {}",
                             shown_count(losses_.passed_over.size(), "archive member"),
                             *losses_.passed_over.begin()));
  }
  if (args_.json) {
    auto skipped = nlohmann::ordered_json::array();
    for (const std::string& message : losses_.skipped)
      put_json_text(skipped.emplace_back(), "message", message);
    document["duplicates"] = losses_.duplicates;
    document["passed_over"] = losses_.passed_over.size();
    document["skipped"] = std::move(skipped);
  }
  if (args_.json || !text.empty()) {
    Output out = Output::standard();
    out.write(args_.json ? document.dump(2) + "\n" : text);
    out.finish();
  }
  return losses_.skipped.empty() ? Outcome::kDone : Outcome::kSkipped;
}

}  // namespace

std::unique_ptr<Command> make_pack_command() { return std::make_unique<PackCommand>(); }

}  // namespace sml
