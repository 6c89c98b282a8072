// sml help [COMMAND]
#include <cstdio>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "commands/commands.h"
#include "options.h"
#include "output.h"

namespace sml {

std::string overview() {
  std::string text =
      "sml: small files merged into large containers, read back in random order.\n"
      "\n"
      "Usage: sml COMMAND [ARGUMENT...]\n"
      "\n"
      "Commands:\n";
  for (const CommandInfo& info : all_commands())
    text += fmt::format("  {:13}{}\n", info.name, info.summary);
  text +=
      "\n"
      "'sml help COMMAND' tells more.\n"
      "\n"
      "Examples:\n"
      "  sml pack photos -o photos.sml\n"
      "  sml shuffle photos.sml --epoch 3 | sml cat photos.sml --format tar | tar t\n"
      "\n"
      "Exit codes: 0 done; 1 failed, or damage found; 2 wrong usage; 3 done, but records were\n"
      "skipped; 128+n ended by signal n.\n"
      "Environment: SML_THREADS, SML_MEMORY, SML_CACHE_DIR and SML_CACHE_SIZE stand for --threads, "
      "--memory,\n"
      "--cache-dir and --cache-size; CEPH_CONF and CEPH_ARGS are Ceph's.\n";
  return text;
}

namespace {

class HelpCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe("[COMMAND]", "Prints what a command does, its options, examples and exit codes.");
    line.positional("COMMAND", command_, "the command; none: a list of all");
    line.epilog("Exit codes: 0 done; 2 wrong usage.");
  }

  void resolve() override {
    if (command_ && find_command(*command_) == nullptr) throw unknown_command(*command_);
  }

  Outcome run(Console& /*console*/) override {
    std::string text = overview();
    if (command_) {
      const CommandInfo* info = find_command(*command_);
      CommandLine line(info->name);
      const auto command = make_command(*info, line);
      text = line.help();
    }
    Output out = Output::standard();
    out.write(text);
    out.finish();
    return Outcome::kDone;
  }

 private:
  std::optional<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> make_help_command() { return std::make_unique<HelpCommand>(); }

}  // namespace sml
