// sml recover FILE -o OUT, sml recover rados://POOL/DATASET
#include "smlstore/recover.h"

#include <memory>
#include <optional>
#include <string>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "interrupt.h"
#include "json_text.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "smlstore/directory_store.h"
#include "smlstore/rebuild.h"
#include "terminal.h"

namespace sml {
namespace {

class RecoverCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe(
        "FILE -o OUT | rados://POOL/DATASET",
        "Writes a sound container of all that is intact in a damaged one, which is only "
        "read. Each loss is a line on\n"
        "standard error. Where nothing is lost the container is what it was, bit by bit; "
        "else it is "
        "another one, in input\n"
        "order.\n"
        "\n"
        "Of a data set in Ceph: makes its catalog anew, where that is damaged or missing, "
        "from the objects\n"
        "that are there; one that is sound gets the containers that it does not name. "
        "Nothing is deleted.\n"
        "Names that cannot be known are part-I-of-N, recovered-DIGITS, and "
        "unsealed-DIGITS for what is no\n"
        "sealed container.");
    line.positional("FILE", file_,
                    "a damaged container: a file, or one in Ceph; or a data set in Ceph");
    line.text("-o,--output", "OUT", output_, "the file to write");
    line.flag("--overwrite", overwrite_, "replace an existing file");
    line.flag("-n,--dry-run", dry_run_, "of a data set: say what would be done");
    line.flag("--json", json_, "the report as a JSON document");
    line.group("Speed");
    add_threads_option(line, threads_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Example:\n"
        "  sml recover damaged.sml -o photos.sml\n"
        "  sml recover -n rados://pool/photos\n"
        "\n"
        "Exit codes: 0 nothing was lost; 1 failed; 2 wrong usage; 3 done, but something is lost or "
        "may be.");
  }

  void resolve() override {
    if (!file_) throw UsageError("no FILE given");
    location_ = parse_location(*file_);
    if (location_.is_rados() && location_.container.empty()) return resolve_dataset();
    if (dry_run_) throw UsageError("-n is for data sets in Ceph");
    if (!output_) throw UsageError("no output given", "-o FILE");
    if (*output_ == "-") throw UsageError("a container cannot be written to standard output");
    destination_ = parse_location(*output_);
    if (destination_.is_dataset() || destination_.is_rados()) {
      throw UsageError(one_line(destination_.path) + " is no file",
                       "name the file to write, and look at what is recovered before 'sml cp' "
                       "takes it into a data set");
    }
    struct stat in {};
    struct stat out {};
    if (::stat(location_.path.c_str(), &in) == 0 && ::stat(destination_.path.c_str(), &out) == 0 &&
        in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
      throw UsageError(one_line(location_.path) + " is both input and output");
    }
    options_.threads = resolve_threads(threads_);
  }

  Outcome run(Console& console) override {
    console.configure(report_);
    const Interrupt interrupt;
    if (location_.is_rados() && location_.container.empty())
      return rebuild(console, interrupt.token());
    nlohmann::ordered_json losses = nlohmann::ordered_json::array();
    options_.on_loss = [&](const Error& error) {
      if (json_) put_json_text(losses.emplace_back(), "message", error.what());
      console.error(located(error, location_));
    };
    options_.stop = interrupt.token();
    if (Progress* progress = console.progress()) {
      options_.on_progress = [progress](std::uint64_t done, std::uint64_t total) {
        progress->update_bytes("recovered", done, total);
      };
    }
    const std::shared_ptr<const ByteSource> source = open_damaged();
    FileSink sink(destination_.path, overwrite_);
    RecoverReport report;
    try {
      report = recover(source, sink, options_);
    } catch (const Error& error) {
      throw located(error, location_);
    }
    sink.publish();

    Output out = Output::standard();
    out.write(json_ ? json_of(report, losses) : text_of(report));
    out.finish();
    return report.losses == 0 ? Outcome::kDone : Outcome::kSkipped;
  }

 private:
  void resolve_dataset() const {
    if (output_ || overwrite_) {
      throw UsageError(one_line(location_.path) + " is a data set",
                       "name one of its containers; or leave out -o, to make its catalog anew");
    }
    if (location_.revision) throw UsageError("a revision cannot be recovered");
  }

  Outcome rebuild(Console& console, const std::stop_token& stop) const {
    RebuildOptions options;
    options.dry_run = dry_run_;
    options.stop = stop;
    const RebuildReport report = rebuild_catalog(location_, resolve_store(store_), options);
    for (const Error& problem : report.problems) console.error(problem);
    if (report.foreign > 0) {
      console.note(one_line(location_.path) + ": left alone: " +
                   shown_count(report.foreign, "object") + " that sml did not write");
    }
    Output out = Output::standard();
    out.write(json_ ? json_of(report) : text_of(report));
    out.finish();
    return report.problems.empty() ? Outcome::kDone : Outcome::kSkipped;
  }

  std::string text_of(const RebuildReport& report) const {
    if (!report.damage && report.containers.empty() && report.unsealed.empty())
      return "nothing to do: the catalog is sound, and names all that is there\n";
    std::string text;
    for (const CatalogEntry& entry : report.containers) {
      text += one_line(location_.path + "/" + entry.name) + ": " +
              shown_count(entry.records, "record") + ", " + shown_size(entry.container_bytes) +
              "\n";
    }
    for (const std::string& name : report.unsealed)
      text += one_line(location_.path + "/" + name) + ": unsealed\n";
    text += (dry_run_ ? "would recover: " : "recovered: ") +
            shown_count(report.containers.size(), "container") + ", " +
            std::to_string(report.unsealed.size()) + " unsealed";
    if (report.damage) text += "; " + one_line(report.damage->what());
    return text + "\n";
  }

  std::string json_of(const RebuildReport& report) const {
    nlohmann::ordered_json document;
    put_json_text(document, "location", location_.path);
    document["dry_run"] = dry_run_;
    document["sound"] = !report.damage;
    if (report.damage) put_json_text(document, "damage", report.damage->what());
    nlohmann::ordered_json& containers = document["containers"] = nlohmann::ordered_json::array();
    for (const CatalogEntry& entry : report.containers) {
      nlohmann::ordered_json& one = containers.emplace_back();
      put_json_text(one, "name", entry.name);
      one["id"] = entry.id.hex();
      one["records"] = entry.records;
      one["container_bytes"] = entry.container_bytes;
    }
    document["unsealed"] = report.unsealed;
    nlohmann::ordered_json& losses = document["losses"] = nlohmann::ordered_json::array();
    for (const Error& problem : report.problems) {
      put_json_text(losses.emplace_back(), "message", problem.what());
      losses.back()["code"] = error_code_name(problem.code());
    }
    return document.dump(2) + "\n";
  }

  std::shared_ptr<const ByteSource> open_damaged() const {
    if (location_.is_rados()) {
      return Store::open(location_, resolve_store(store_))->open_damaged(location_.container);
    }
    // Not mapped: a device that fails is to be an error, which recovery passes over.
    return std::make_shared<const FileSource>(location_.path, FileSource::Mapping::kNever);
  }

  static std::string text_of(const RecoverReport& report) {
    std::string text = "recovered: " + shown_count(report.summary.counts.records, "record") + ", " +
                       shown_size(report.summary.counts.raw_bytes);
    if (report.losses == 0) {
      text += report.identical ? "; the container is what it was" : "; nothing is lost";
    } else if (report.records_lost > 0) {
      text += (report.all_known ? "; lost: " : "; lost: at least ") +
              shown_count(report.records_lost, "record");
    } else if (!report.all_known) {
      text += "; more may be lost";
    }
    return text + "\n";
  }

  std::string json_of(const RecoverReport& report, const nlohmann::ordered_json& losses) const {
    nlohmann::ordered_json document;
    put_json_text(document, "file", location_.path);
    put_json_text(document, "output", destination_.path);
    document["id"] = report.summary.id.hex();
    document["records"] = report.summary.counts.records;
    document["bytes"] = report.summary.counts.raw_bytes;
    document["container_bytes"] = report.summary.container_bytes;
    document["index_used"] = report.index_used;
    document["identical"] = report.identical;
    document["records_lost"] = report.records_lost;
    document["all_known"] = report.all_known;
    document["losses"] = losses;
    return document.dump(2) + "\n";
  }

  std::optional<std::string> file_;
  std::optional<std::string> output_;
  bool overwrite_ = false;
  bool dry_run_ = false;
  bool json_ = false;
  std::optional<unsigned> threads_;
  ReportOptions report_;
  StoreArguments store_;
  Location location_;
  Location destination_;
  RecoverOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_recover_command() { return std::make_unique<RecoverCommand>(); }

}  // namespace sml
