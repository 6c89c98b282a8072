// sml cat DATASET [KEY...]
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/commands.h"
#include "interrupt.h"
#include "lists.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "record_writer.h"
#include "smlstore/reader.h"
#include "terminal.h"

namespace sml {
namespace {

// Taken from the reader together.
constexpr std::size_t kMostPieces = 128;

enum class Format { kRaw, kTar, kFrames };

struct CatArguments {
  std::optional<std::string> dataset;
  std::vector<std::string> keys;
  std::optional<std::string> keys_from;
  bool ids = false;
  bool nul = false;
  bool all = false;
  std::optional<Format> format;
  std::optional<std::string> directory;
  bool overwrite = false;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<unsigned> threads;
  bool skip = false;
  bool stats = false;
  bool partial = false;
  StoreArguments store;
  ReportOptions report;
  // resolved
  Location location;
  ReaderOptions reader;
  std::vector<std::uint64_t> numbers;  // of keys, with --ids

  bool from_list() const { return !all && keys.empty(); }
  std::string list() const { return keys_from.value_or("-"); }
  Format shown_format() const { return format.value_or(Format::kRaw); }
};

// What is asked of the reader: all numbers, those named, or a list as it comes.
class Requests {
 public:
  Requests(const CatArguments& args, std::uint64_t records) : args_(args), records_(records) {
    if (args.from_list()) list_ = std::make_unique<ListInput>(args.list(), args.nul);
  }

  // Asks for the next record. False where that would have to wait, or none is left.
  bool request_ready(Reader& reader) {
    return list_ ? request_line(reader, false) : request_named(reader);
  }
  // The same, waiting. False at the end.
  bool request(Reader& reader) {
    return list_ ? request_line(reader, true) : request_named(reader);
  }

 private:
  bool request_named(Reader& reader) {
    if (next_ == (args_.all ? records_ : args_.keys.size())) return false;
    if (args_.all) {
      reader.request(next_);
    } else if (args_.ids) {
      reader.request(args_.numbers[next_]);
    } else {
      reader.request(std::string_view(args_.keys[next_]));
    }
    ++next_;
    return true;
  }

  bool request_line(Reader& reader, bool wait) {
    std::string_view line;
    if (!(wait ? list_->next(line) : list_->next_ready(line))) return false;
    if (!args_.ids) {
      reader.request(line);
      return true;
    }
    try {
      reader.request(parse_number(line));
    } catch (const UsageError& error) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: line {}: {}", list_->name(),
                                                           list_->line_number(), error.what()));
    }
    return true;
  }

  const CatArguments& args_;
  std::uint64_t records_;
  std::uint64_t next_ = 0;
  std::unique_ptr<ListInput> list_;
};

class CatCommand final : public Command {
 public:
  void define(CommandLine& line) override;
  void resolve() override;
  Outcome run(Console& console) override;

 private:
  std::unique_ptr<RecordWriter> make_writer(Output& out) const;
  std::string shown_stats(const ReaderStats& stats,
                          std::chrono::steady_clock::time_point begin) const;
  void copy(Reader& reader, Requests& requests, RecordWriter& writer, Console& console,
            std::stop_token stop);
  void give(const RecordPiece& piece, RecordWriter& writer, Console& console);
  void lose(const RecordPiece& piece, const Error& error, RecordWriter& writer, Console& console);

  CatArguments args_;
  bool passing_ = false;  // pieces of a record that the writer has refused
  std::uint64_t lost_ = 0;
};

void CatCommand::define(CommandLine& line) {
  line.describe(
      "DATASET [KEY...]",
      "Writes records in the order asked for. Keys come from standard input where none are named.");
  line.positional("DATASET", args_.dataset, "a container, or a data set");
  line.positionals("KEY", args_.keys, "the records");
  line.group("Which records");
  line.flag("--all", args_.all, "all, by number");
  line.text("--keys-from", "FILE", args_.keys_from, "keys from a file; - is standard input");
  line.flag("--ids", args_.ids, "keys are record numbers");
  add_nul_option(line, args_.nul);
  add_partial_option(line, args_.partial);
  line.group("Output");
  line.choice(
      "--format", args_.format,
      std::vector<std::pair<std::string, Format>>{
          {"raw", Format::kRaw}, {"tar", Format::kTar}, {"frames", Format::kFrames}},
      "raw (default): the bytes alone; tar: a GNU tar archive;\nframes: with keys and checksums");
  line.text("-C,--directory", "DIR", args_.directory,
            "write files below DIR instead; never outside it");
  line.flag("--overwrite", args_.overwrite, "with -C: replace existing files");
  line.choice("--on-error", args_.skip,
              std::vector<std::pair<std::string, bool>>{{"fail", false}, {"skip", true}},
              "at a record that cannot be given: stop (default), or\ntell, go on and exit 3");
  line.flag("--stats", args_.stats,
            "counts and time on standard error, at the end; SIGUSR1\nprints them meanwhile");
  line.group("Speed and memory");
  line.size("--memory", args_.memory_bytes, "records in flight; default SML_MEMORY, else 384M");
  add_threads_option(line, args_.threads);
  add_cache_options(line, args_.store);
  add_store_options(line, args_.store);
  add_report_options(line, args_.report);
  line.epilog(
      "Examples:\n"
      "  sml cat photos.sml cats/1.jpg > 1.jpg\n"
      "  sml shuffle photos.sml | sml cat photos.sml --format tar | tar t\n"
      "  sml cat photos.sml --all -C copy\n"
      "\n"
      "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but records were skipped.");
}

void CatCommand::resolve() {
  args_.location = parse_dataset(args_.dataset);
  if (args_.all && !args_.keys.empty()) throw UsageError("keys and --all exclude each other");
  if (args_.all && args_.keys_from) throw UsageError("--keys-from and --all exclude each other");
  if (args_.all && args_.ids) throw UsageError("--ids and --all exclude each other");
  if (args_.keys_from && !args_.keys.empty())
    throw UsageError("keys and --keys-from exclude each other");
  if (args_.directory && args_.format) throw UsageError("-C and --format exclude each other");
  if (args_.directory && args_.directory->empty())
    throw UsageError("option -C: '' is no directory");
  if (args_.overwrite && !args_.directory) throw UsageError("--overwrite is for -C");
  args_.reader.threads = resolve_threads(args_.threads);
  args_.reader.memory_bytes = resolve_memory(args_.memory_bytes, args_.reader.memory_bytes);
  // A record that turns out to be damaged half way cannot be taken back from these.
  args_.reader.whole_records =
      args_.skip && !args_.directory && args_.shown_format() != Format::kFrames;
  if (args_.ids) {
    for (const std::string& key : args_.keys) args_.numbers.push_back(parse_number(key));
  }
}

Outcome CatCommand::run(Console& console) try {
  console.configure(args_.report);
  if (!args_.directory) refuse_binary_terminal();
  if (args_.from_list() && args_.list() == "-") refuse_input_terminal("keys");
  const auto begin = std::chrono::steady_clock::now();
  const Interrupt interrupt;
  const CountersSignal asked;
  const Dataset dataset = open_cached_dataset(args_.location, args_.store, args_.partial, console);
  std::optional<Reader> open_reader;
  args_.reader.while_waiting = [&] {
    if (asked.take()) console.print(shown_stats(open_reader->stats(), begin));
  };
  Reader& reader = open_reader.emplace(dataset, args_.reader,
                                       args_.directory || args_.shown_format() != Format::kRaw);
  Requests requests(args_, dataset.records());
  Output out = Output::standard();
  const auto writer = make_writer(out);
  try {
    copy(reader, requests, *writer, console, interrupt.token());
  } catch (const Error&) {
    writer->flush();  // what came before
    throw;
  }
  writer->finish();
  if (args_.stats) {
    console.print(shown_stats(reader.stats(), begin));
  }
  return lost_ == 0 ? Outcome::kDone : Outcome::kSkipped;
} catch (const ClosedPipe&) {
  if (args_.shown_format() != Format::kFrames) throw;
  throw Error(ErrorCode::kIo, "standard output was closed before the end of the frames");
}

// What --stats and SIGUSR1 print.
std::string CatCommand::shown_stats(const ReaderStats& stats,
                                    std::chrono::steady_clock::time_point begin) const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::chrono::duration<double> waited = std::chrono::nanoseconds(stats.waited_ns);
  const std::chrono::duration<double> oldest = std::chrono::nanoseconds(stats.oldest_ns);
  return fmt::format("records {}\nbytes {}\nstored_bytes {}\nfailed {}\nseconds {:.3f}\n",
                     stats.records, stats.bytes, stats.stored_bytes, lost_, seconds.count()) +
         fmt::format(
             "operations {}\nranges {}\nread_bytes {}\nmost_in_flight {}\nwaited {:.3f}\n"
             "in_flight {}\noldest {:.3f}\n",
             stats.operations, stats.ranges, stats.read_bytes, stats.most_in_flight, waited.count(),
             stats.in_flight, oldest.count()) +
         fmt::format(
             "cache_hits {}\ncache_misses {}\ncache_bytes {}\nblocks_kept {}\nblocks_damaged {}\n",
             stats.cache_hits, stats.cache_misses, stats.cache_bytes, stats.blocks_kept,
             stats.blocks_damaged);
}

std::unique_ptr<RecordWriter> CatCommand::make_writer(Output& out) const {
  if (args_.directory) return make_directory_writer(*args_.directory, args_.overwrite);
  switch (args_.shown_format()) {
    case Format::kTar:
      return make_tar_writer(out);
    case Format::kFrames:
      return make_frames_writer(out);
    case Format::kRaw:
      break;
  }
  return make_raw_writer(out);
}

// Never waits for keys while a record can be given: whoever writes keys and reads records in turn
// would wait for ever.
void CatCommand::copy(Reader& reader, Requests& requests, RecordWriter& writer, Console& console,
                      std::stop_token stop) {
  Progress* const progress = console.progress();
  std::vector<RecordPiece> pieces(kMostPieces);
  while (!stop.stop_requested()) {
    while (reader.wants_more() && requests.request_ready(reader)) {
    }
    if (const std::size_t count = reader.next(pieces); count > 0) {
      for (const RecordPiece& piece : std::span(pieces).first(count)) give(piece, writer, console);
      writer.release();
      args_.reader.while_waiting();
      if (progress != nullptr) {
        const ReaderStats stats = reader.stats();
        progress->update("read", {stats.records, 0, stats.bytes, 0});
      }
      continue;
    }
    writer.flush();
    if (!requests.request(reader)) break;
  }
  if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, "interrupted");
}

void CatCommand::give(const RecordPiece& piece, RecordWriter& writer, Console& console) {
  if (piece.error != nullptr) {
    lose(piece, *piece.error, writer, console);
  } else if (!passing_) {
    if (const auto error = writer.write(piece)) {
      passing_ = !piece.last;
      lose(piece, error->within(fmt::format("record '{}'", piece.key)), writer, console);
    }
  }
  if (piece.last) passing_ = false;
}

void CatCommand::lose(const RecordPiece& piece, const Error& error, RecordWriter& writer,
                      Console& console) {
  const Error told = located(error, args_.location);
  if (!args_.skip) throw told;
  console.error(told);
  writer.fail(piece, error);
  ++lost_;
}

}  // namespace

std::unique_ptr<Command> make_cat_command() { return std::make_unique<CatCommand>(); }

}  // namespace sml
