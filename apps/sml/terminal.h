// What people read on standard error: errors, hints, notes; and what they may not be given on a
// terminal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "options.h"
#include "smlformat/error.h"

namespace sml {

class Progress;

// `text` on one line and harmless to a terminal: control bytes as \n, \t, \x1b.
std::string one_line(std::string_view text);
// "512 bytes", "1.5 KiB", "2.0 GiB".
std::string shown_size(std::uint64_t bytes);
// "1 record", "3 records": `what` in the singular.
std::string shown_count(std::uint64_t count, std::string_view what);

bool is_terminal(int fd);
bool is_pipe(int fd);
// Throw UsageError with a hint: binary output to a terminal; keys or records from a terminal.
void refuse_binary_terminal();
void refuse_input_terminal(std::string_view what);

// Writes to standard error, one line at a time, never into a line of progress. For one thread,
// apart from what says otherwise.
class Console {
 public:
  // command: "pack", or empty.
  explicit Console(std::string command);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  const std::string& command() const noexcept { return command_; }
  void configure(const ReportOptions& options);
  // People watch: progress is shown, and so may a closing remark be.
  bool interactive() const noexcept { return progress_ != nullptr; }
  // Null where progress is not shown.
  Progress* progress() noexcept { return progress_.get(); }

  // "sml pack: MESSAGE", then "hint: HINT" where there is one.
  void error(std::string_view message, std::string_view hint = {});
  void error(const Error& failure) { error(failure.what(), failure.hint()); }
  // The same, silenced by -q.
  void note(std::string_view message);
  // A note that begins with "warning: ", from any thread.
  void warn_at_once(std::string_view message) const;
  // Asked-for text on standard error (--stats): never silenced.
  void print(std::string_view text);

 private:
  std::string command_;
  bool quiet_ = false;
  std::unique_ptr<Progress> progress_;
};

}  // namespace sml
