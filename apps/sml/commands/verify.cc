// sml verify DATASET
#include "smlstore/verify.h"

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "interrupt.h"
#include "lists.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "terminal.h"

namespace sml {
namespace {

class VerifyCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe(
        "DATASET",
        "Reads a data set whole and checks every checksum, and every key against the index.\n"
        "Each finding is a line on standard error.");
    line.positional("DATASET", dataset_, "a container file, or a directory of them");
    line.flag("--json", json_, "the report as a JSON document");
    add_partial_option(line, partial_);
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
    DatasetOptions opening;
    static_cast<StoreOptions&>(opening) = resolve_store(store_);
    opening.partial = partial_;
    opening.on_unusable = [&](const Error& error) {
      ++unusable;
      tell(error);
    };
    const Dataset dataset = open_dataset(location_, std::move(opening), console);
    options_.on_damage = tell;
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
  std::optional<unsigned> threads_;
  ReportOptions report_;
  StoreArguments store_;
  Location location_;
  VerifyOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace sml
