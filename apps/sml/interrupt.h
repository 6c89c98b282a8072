// Signals: an orderly end on SIGINT, SIGTERM and SIGHUP, and one line on SIGBUS.
#pragma once

#include <stop_token>
#include <string>
#include <thread>

namespace sml {

// While it lives, the first SIGINT, SIGTERM or SIGHUP requests a stop; a second one, or a command
// that has not stopped after the grace, ends the process at once. Containers that are not published
// and files being written are removed in every case. One at a time, made before other threads are
// started: they inherit its signal mask.
class Interrupt {
 public:
  // What is far away takes longer to be taken back.
  static constexpr int kGraceMs = 1000;
  static constexpr int kFarGraceMs = 10000;
  explicit Interrupt(int grace_ms = kGraceMs);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const noexcept { return stop_.get_token(); }
  // The signal that came, of this process's only Interrupt; 0 for none.
  static int received() noexcept;

 private:
  void watch();

  std::stop_source stop_;
  int grace_ms_;
  int signals_ = -1;
  int ending_ = -1;
  std::thread watcher_;
};

// While it lives, SIGUSR1 asks for counters; otherwise it is ignored.
class CountersSignal {
 public:
  CountersSignal();
  ~CountersSignal();
  CountersSignal(const CountersSignal&) = delete;
  CountersSignal& operator=(const CountersSignal&) = delete;

  // Whether it came since the last call.
  bool take() const noexcept;
};

// Makes SIGBUS (a mapped file that became shorter, a disk that fails) one line and exit 1:
// "<command>: <place>: ...".
void handle_faults(const std::string& command);
void set_fault_place(const std::string& place);

// Removed where the process ends by a signal: at most one file, by directory and name.
// Async-signal-safe to read.
void set_unfinished_file(int directory, const std::string& name);
void clear_unfinished_file();

}  // namespace sml
