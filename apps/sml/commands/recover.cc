// sml recover FILE -o OUT
#include "smlstore/recover.h"

#include <memory>
#include <optional>
#include <string>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "interrupt.h"
#include "lists.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "smlstore/directory_store.h"
#include "terminal.h"

namespace sml {
namespace {

class RecoverCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe("FILE -o OUT",
                  "Writes a sound container of all that is intact in a damaged one, which is only "
                  "read. Each loss is a line on\n"
                  "standard error. Where nothing is lost the container is what it was, bit by bit; "
                  "else it is "
                  "another one, in input\n"
                  "order.");
    line.positional("FILE", file_, "a damaged container: a file, or one in Ceph");
    line.text("-o,--output", "OUT", output_, "the file to write");
    line.flag("--overwrite", overwrite_, "replace an existing file");
    line.flag("--json", json_, "the report as a JSON document");
    line.group("Speed");
    add_threads_option(line, threads_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Example:\n"
        "  sml recover damaged.sml -o photos.sml\n"
        "\n"
        "Exit codes: 0 nothing was lost; 1 failed; 2 wrong usage; 3 done, but something is lost or "
        "may be.");
  }

  void resolve() override {
    if (!file_) throw UsageError("no FILE given");
    location_ = parse_location(*file_);
    if (!output_) throw UsageError("no output given", "-o FILE");
    if (*output_ == "-") throw UsageError("a container cannot be written to standard output");
    destination_ = parse_location(*output_);
    if (location_.is_rados() && location_.container.empty())
      throw UsageError(one_line(location_.path) + " is a data set", "name one of its containers");
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
