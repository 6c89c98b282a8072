// sml version
#include <string>

#include <archive.h>
#include <boost/version.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>
#include <zstd.h>

#include "commands/commands.h"
#include "options.h"
#include "output.h"
#include "smlformat/layout.h"
#include "smlstore/order.h"

namespace sml {
namespace {

std::string dotted(unsigned number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

class VersionCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe("",
                  "Prints the versions of sml, of the formats it reads and writes, and of the "
                  "libraries it uses.");
    line.flag("--json", json_, "as a JSON document");
    line.epilog("Exit codes: 0 done; 2 wrong usage.");
  }

  Outcome run(Console& /*console*/) override {
    const nlohmann::ordered_json report = {
        {"sml", SML_VERSION},
        {"formats",
         {{"container", kFormatVersion}, {"frames", 1}, {"order", OrderState{}.algorithm}}},
        {"libraries",
         {{"zstd", ZSTD_versionString()},
          {"libarchive", dotted3(archive_version_number())},
          {"xxhash", dotted(XXH_versionNumber())},
          {"boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                                BOOST_VERSION % 100)},
          {"fmt", dotted(FMT_VERSION)}}}};
    std::string text;
    if (json_) {
      text = report.dump(2) + "\n";
    } else {
      text = fmt::format("sml {}\n", SML_VERSION);
      for (const auto& [name, version] : report["formats"].items())
        text += fmt::format("{} format {}\n", name, version.get<unsigned>());
      for (const auto& [name, version] : report["libraries"].items())
        text += fmt::format("{} {}\n", name, version.get<std::string>());
    }
    Output out = Output::standard();
    out.write(text);
    out.finish();
    return Outcome::kDone;
  }

 private:
  // libarchive gives three digits to each of its numbers.
  static std::string dotted3(int number) {
    return fmt::format("{}.{}.{}", number / 1000000, number / 1000 % 1000, number % 1000);
  }

  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_version_command() { return std::make_unique<VersionCommand>(); }

}  // namespace sml
