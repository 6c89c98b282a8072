// One line on a terminal that tells how far a command is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace sml {

struct ProgressCounts {
  std::uint64_t records = 0;
  std::uint64_t total_records = 0;  // 0: unknown
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;  // 0: unknown
  // Of those, what an earlier run had done; rates and time left are of the others.
  std::uint64_t resumed_records = 0;
  std::uint64_t resumed_bytes = 0;
};

// For one thread. Draws at most five times a second; calls in between cost some 30 ns.
class Progress {
 public:
  explicit Progress(int fd) : fd_(fd), start_(Clock::now()) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A new phase: rates and time left count from here.
  void restart() { start_ = Clock::now(); }
  // verb: "packed", "read".
  void update(std::string_view verb, const ProgressCounts& counts);
  void update_bytes(std::string_view verb, std::uint64_t bytes, std::uint64_t total_bytes);
  // Takes the line away, so that something else can be written.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool due();
  double seconds() const { return std::chrono::duration<double>(last_ - start_).count(); }
  void draw(const std::string& text);

  int fd_;
  Clock::time_point start_;
  Clock::time_point last_{};
  std::size_t drawn_ = 0;
};

// The line itself, without I/O. seconds: since the phase began.
std::string progress_text(std::string_view verb, const ProgressCounts& counts, double seconds);
std::string progress_text(std::string_view verb, std::uint64_t bytes, std::uint64_t total_bytes,
                          double seconds);

}  // namespace sml
