// Finds the command, has it parse its arguments, runs it, and turns the outcome into an exit code.
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <malloc.h>

#include "command.h"
#include "commands/commands.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "terminal.h"

namespace sml {
namespace {

// Blocks and batches come and go by the thousand: their memory is kept, not given back to the
// system and faulted in again page by page.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

// A file opened later must not become descriptor 0, 1 or 2. The stand-ins fail as closed
// descriptors do.
void fill_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// A directory of containers takes a descriptor for each.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Outcome print(const std::string& text) {
  Output out = Output::standard();
  out.write(text);
  out.finish();
  return Outcome::kDone;
}

Outcome run(const std::vector<std::string>& arguments, Console& console) {
  if (console.command().empty()) return print(overview());
  const CommandInfo* info = find_command(console.command());
  CommandLine line(info->name);
  const auto command = make_command(*info, line);
  try {
    line.parse(arguments);
  } catch (const HelpRequested&) {
    return print(line.help());
  }
  command->resolve();
  return command->run(console);
}

int exit_code(const std::vector<std::string>& arguments, Console& console) {
  try {
    return static_cast<int>(run(arguments, console));
  } catch (const UsageError& error) {
    console.error(error.what(), error.hint());
    return static_cast<int>(Outcome::kWrongUsage);
  } catch (const ClosedPipe&) {
    // Who reads has seen enough.
    return static_cast<int>(Outcome::kDone);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled && Interrupt::received() != 0) {
      console.error("interrupted", error.hint());
      return 128 + Interrupt::received();
    }
    console.error(error);
  } catch (const std::bad_alloc&) {
    console.error("out of memory");
  } catch (const std::exception& error) {
    console.error(error.what());
  }
  return static_cast<int>(Outcome::kFailed);
}

int main_of(std::vector<std::string> arguments) {
  keep_freed_memory();
  fill_standard_descriptors();
  allow_many_files();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGUSR1, SIG_IGN);  // it asks for counters: CountersSignal

  // "-h" and "--version" instead of a command are understood as well.
  if (!arguments.empty() && (arguments[0] == "-h" || arguments[0] == "--help"))
    arguments[0] = "help";
  if (!arguments.empty() && arguments[0] == "--version") arguments[0] = "version";
  if (!arguments.empty() && find_command(arguments[0]) == nullptr) {
    Console console{""};
    const UsageError error =
        arguments[0].starts_with('-')
            ? UsageError("unknown option '" + arguments[0] + "'; 'sml help' lists the commands")
            : unknown_command(arguments[0]);
    console.error(error.what());
    return static_cast<int>(Outcome::kWrongUsage);
  }
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (!arguments.empty()) arguments.erase(arguments.begin());
  Console console(command);
  handle_faults("sml " + command);
  return exit_code(arguments, console);
}

}  // namespace
}  // namespace sml

int main(int argc, char** argv) {
  return sml::main_of(std::vector<std::string>(argv + (argc > 0), argv + argc));
}
