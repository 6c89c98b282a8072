// sml verify DATASET
#include "smlstore/verify.h"

#include <charconv>
#include <optional>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "interrupt.h"
#include "json_text.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "terminal.h"

namespace sml {
namespace {

double parse_percent(const std::string& text) {
  double percent = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, percent);
  if (parsed.ec != std::errc{} || parsed.ptr != end || !(percent > 0 && percent <= 100))
    throw UsageError("'" + text + "' is no percentage above 0 and up to 100");
  return percent;
}

class VerifyCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe(
        "DATASET",
        "Reads a data set whole and checks every checksum, and every key against the index.\n"
        "Each finding is a line on standard error.");
    line.positional("DATASET", dataset_, "a container, or a data set");
    line.flag("--json", json_, "the report as a JSON document");
    add_partial_option(line, partial_);
    line.group("How much");
    line.flag("--quick", quick_, "only whether everything is there and has its size");
    line.value(
        "--sample", "PERCENT",
        [this](const std::string& text) { options_.sample_percent = parse_percent(text); },
        "of the blocks, drawn at random; default 100");
    line.flag("--remote", remote_,
              "let the store compute the checksums of whole blocks:\nno data is moved; for Ceph");
    line.group("Speed");
    add_threads_option(line, threads_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Example:\n"
        "  sml verify photos.sml && rm -r photos\n"
        "\n"
        "Exit codes: 0 all is well; 1 failed, or damage found; 2 wrong usage.");
  }

  void resolve() override {
    location_ = parse_dataset(dataset_);
    if (quick_ && remote_) throw UsageError("--quick and --remote exclude each other");
    if (quick_ && options_.sample_percent < 100)
      throw UsageError("--quick and --sample exclude each other");
    if (remote_ && !location_.is_rados())
      throw UsageError("--remote is for data sets in Ceph: " + one_line(location_.path) +
                       " is local");
    if (quick_) options_.depth = VerifyDepth::kQuick;
    if (remote_) options_.depth = VerifyDepth::kChecksums;
    options_.threads = resolve_threads(threads_);
  }

  Outcome run(Console& console) override {
    console.configure(report_);
    const Interrupt interrupt;
    nlohmann::ordered_json findings = nlohmann::ordered_json::array();
    const auto tell = [&](const Error& error) {
      if (json_) {
        put_json_text(findings.emplace_back(), "message", error.what());
        findings.back()["code"] = error_code_name(error.code());
      }
      console.error(located(error, location_));
    };
    // A container that cannot even be opened is a finding like others.
    std::uint64_t unusable = 0;
    DatasetOptions opening(resolve_store(store_));
    // Of files the footer is checked that is there, not one that is kept here.
    if (!location_.is_rados()) opening.index_directory.clear();
    opening.partial = partial_;
    opening.on_unusable = [&](const Error& error) {
      if (error.code() == ErrorCode::kUnavailable) throw Error(error);
      ++unusable;
      tell(error);
    };
    const Dataset dataset = open_dataset(location_, std::move(opening), console);
    options_.on_damage = tell;
    options_.sample_seed = std::random_device()();
    options_.stop = interrupt.token();
    if (Progress* progress = console.progress()) {
      options_.on_progress = [progress](std::uint64_t done, std::uint64_t total) {
        progress->update_bytes("verified", done, total);
      };
    }
    VerifyReport report = verify(dataset, options_);
    report.containers += unusable;
    report.damaged += unusable;

    Output out = Output::standard();
    out.write(json_ ? json_of(report, findings) : text_of(report));
    out.finish();
    return report.damaged == 0 ? Outcome::kDone : Outcome::kFailed;
  }

 private:
  static std::string text_of(const VerifyReport& report) {
    const std::string what =
        shown_count(report.containers, "container") + ", " + shown_count(report.blocks, "block") +
        ", " + shown_count(report.records, "record") + ", " + shown_size(report.bytes) + "\n";
    if (report.damaged == 0) return "ok: " + what;
    return "damaged: " + shown_count(report.damaged, "finding") + " in " + what;
  }

  std::string json_of(const VerifyReport& report, const nlohmann::ordered_json& findings) const {
    nlohmann::ordered_json document;
    put_json_text(document, "location", location_.path);
    document["ok"] = report.damaged == 0;
    document["containers"] = report.containers;
    document["blocks"] = report.blocks;
    document["records"] = report.records;
    document["container_bytes"] = report.bytes;
    document["damaged"] = report.damaged;
    document["findings"] = findings;
    return document.dump(2) + "\n";
  }

  std::optional<std::string> dataset_;
  bool json_ = false;
  bool partial_ = false;
  bool quick_ = false;
  bool remote_ = false;
  std::optional<unsigned> threads_;
  ReportOptions report_;
  StoreArguments store_;
  Location location_;
  VerifyOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace sml
