// What a subcommand is: options, then a check without input or output, then the work. Only main
// turns the outcome, or an exception, into an exit code.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sml {

class CommandLine;
class Console;

// The exit codes of the contract; 128+n by signal.
enum class Outcome : int { kDone = 0, kFailed = 1, kWrongUsage = 2, kSkipped = 3 };

// Wrong usage: one line, exit code 2.
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

class Command {
 public:
  virtual ~Command() = default;
  // Names the options and ties them to members.
  virtual void define(CommandLine& line) = 0;
  // Settles what the options mean together. Throws UsageError. Reads and writes nothing.
  virtual void resolve() {}
  // Throws UsageError (what only a look at the files can tell), Error, ClosedPipe.
  virtual Outcome run(Console& console) = 0;
};

struct CommandInfo {
  std::string_view name;
  std::string_view summary;  // one line, for the list of commands
  std::unique_ptr<Command> (*make)();
};

// All commands, in the order in which help lists them.
std::span<const CommandInfo> all_commands();
// Null where there is no such command.
const CommandInfo* find_command(std::string_view name);
// Makes the command and has it define its options. Throws nothing but for lack of memory.
std::unique_ptr<Command> make_command(const CommandInfo& info, CommandLine& line);
// "unknown command 'pakc'; did you mean 'pack'?"
UsageError unknown_command(std::string_view name);

}  // namespace sml
