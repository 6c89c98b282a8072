// sml info DATASET
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "json_text.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "terminal.h"

namespace sml {
namespace {

using Json = nlohmann::ordered_json;

// What was done to the bytes, as far as the index tells.
std::string codec_of(const Index& index) {
  if (!index.dictionary().empty()) return "zstd-dictionary";
  return index.counts().stored_bytes == index.counts().raw_bytes ? "stored" : "zstd";
}

double per_record(std::uint64_t bytes, std::uint64_t records) {
  return records == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(records);
}

Json describe(const Dataset::Container& container) {
  const ContainerReader& reader = *container.reader;
  const FooterHeader& counts = reader.index().counts();
  const Header& header = reader.header();
  Json one;
  put_json_text(one, "name", container.name);
  put_json_text(one, "path", container.path);
  one["id"] = reader.id().hex();
  one["format"] = header.version;
  one["records"] = counts.records;
  one["samples"] = counts.samples;
  one["bytes"] = counts.raw_bytes;
  one["stored_bytes"] = counts.stored_bytes;
  one["container_bytes"] = reader.tail().container_bytes;
  one["blocks"] = counts.blocks;
  one["block_bytes"] = header.block_bytes;
  one["align"] = header.align;
  one["order"] = pack_order_name(header.order);
  one["seed"] = header.seed;
  one["grouping"] = grouping_name(header.grouping);
  one["codec"] = codec_of(reader.index());
  one["part"] = header.part;
  one["parts"] = header.parts;
  return one;
}

Json report_of(const std::string& location, const Dataset& dataset) {
  std::uint64_t bytes = 0, stored = 0, container_bytes = 0, blocks = 0, key_bytes = 0;
  IndexBytes index;
  Json containers = Json::array();
  for (const Dataset::Container& container : dataset.containers()) {
    const FooterHeader& counts = container.reader->index().counts();
    bytes += counts.raw_bytes;
    stored += counts.stored_bytes;
    blocks += counts.blocks;
    key_bytes += counts.key_bytes;
    container_bytes += container.reader->tail().container_bytes;
    const IndexBytes part = container.reader->index().bytes();
    index.places += part.places;
    index.raw_sizes += part.raw_sizes;
    index.names += part.names;
    index.key_table += part.key_table;
    index.ranks += part.ranks;
    index.samples += part.samples;
    index.blocks += part.blocks;
    index.dictionary += part.dictionary;
    index.total += part.total;
    containers.push_back(describe(container));
  }
  Json report;
  put_json_text(report, "location", location);
  report["revision"] = dataset.revision();
  report["digest"] = dataset.digest().hex();
  report["records"] = dataset.records();
  report["samples"] = dataset.samples();
  report["grouping"] = grouping_name(dataset.grouping());
  report["bytes"] = bytes;
  report["stored_bytes"] = stored;
  report["container_bytes"] = container_bytes;
  report["key_bytes"] = key_bytes;
  report["blocks"] = blocks;
  report["index"] = {
      {"bytes", index.total},   {"bytes_per_record", per_record(index.total, dataset.records())},
      {"places", index.places}, {"raw_sizes", index.raw_sizes},
      {"names", index.names},   {"key_table", index.key_table},
      {"ranks", index.ranks},   {"samples", index.samples},
      {"blocks", index.blocks}, {"dictionary", index.dictionary}};
  report["containers"] = std::move(containers);
  return report;
}

std::string with_unit(std::uint64_t bytes) {
  return bytes < 1024 ? shown_size(bytes) : fmt::format("{} ({} bytes)", shown_size(bytes), bytes);
}

std::string text_of(const std::string& location, const Dataset& dataset, const Json& report) {
  const auto number = [&](const char* name) { return report[name].get<std::uint64_t>(); };
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<12}{}\n", name, value);
  };
  line("location", one_line(location));
  line("revision", std::to_string(number("revision")));
  line("records", std::to_string(number("records")));
  line("samples",
       fmt::format("{} (grouping {})", number("samples"), report["grouping"].get<std::string>()));
  line("bytes", with_unit(number("bytes")));
  line("stored",
       fmt::format("{}{}", with_unit(number("stored_bytes")),
                   number("bytes") == 0
                       ? ""
                       : fmt::format(", {:.1f} %",
                                     100 * per_record(number("stored_bytes"), number("bytes")))));
  line("on disk", with_unit(number("container_bytes")));
  line("blocks", std::to_string(number("blocks")));
  line("index",
       fmt::format("{:.2f} bytes per record, {}", report["index"]["bytes_per_record"].get<double>(),
                   shown_size(report["index"]["bytes"].get<std::uint64_t>())));
  line("containers", std::to_string(dataset.containers().size()));
  for (const Dataset::Container& container : dataset.containers()) {
    const Header& header = container.reader->header();
    const FooterHeader& counts = container.reader->index().counts();
    text += fmt::format("  {}  {}  {}, {}, {} order", one_line(container.name),
                        container.reader->id().hex(), shown_count(counts.records, "record"),
                        shown_size(counts.raw_bytes), pack_order_name(header.order));
    if (header.order == PackOrder::kRandom) text += fmt::format(" seed {}", header.seed);
    text += ", " + codec_of(container.reader->index());
    if (header.parts > 0) text += fmt::format(", part {} of {}", header.part, header.parts);
    text += "\n";
  }
  return text;
}

class InfoCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe("DATASET",
                  "Tells what a data set holds: counts, sizes, its index, its containers.");
    line.positional("DATASET", dataset_, "a container, or a data set");
    line.flag("--json", json_, "as a JSON document; sizes in bytes");
    add_partial_option(line, partial_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Example:\n"
        "  sml info photos.sml --json | jq .index.bytes_per_record\n"
        "\n"
        "Exit codes: 0 done; 1 failed; 2 wrong usage.");
  }

  void resolve() override { location_ = parse_dataset(dataset_); }

  Outcome run(Console& console) override {
    console.configure(report_);
    const Dataset dataset = open_dataset(location_, store_, partial_, console);
    const Json report = report_of(location_.path, dataset);
    Output out = Output::standard();
    out.write(json_ ? report.dump(2) + "\n" : text_of(location_.path, dataset, report));
    out.finish();
    return Outcome::kDone;
  }

 private:
  std::optional<std::string> dataset_;
  bool json_ = false;
  bool partial_ = false;
  ReportOptions report_;
  StoreArguments store_;
  Location location_;
};

}  // namespace

std::unique_ptr<Command> make_info_command() { return std::make_unique<InfoCommand>(); }

}  // namespace sml
