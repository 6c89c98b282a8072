#include "progress.h"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "terminal.h"

namespace sml {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);

std::string shown_time(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::size_t columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string progress_text(std::string_view verb, const ProgressCounts& counts, double seconds) {
  std::string text = fmt::format("{} {}", verb, counts.records);
  if (counts.total_records > 0) text += fmt::format(" of {}", counts.total_records);
  text += " records";
  if (counts.resumed_records > 0) text += fmt::format(" ({} taken over)", counts.resumed_records);
  if (counts.bytes > 0 || counts.total_bytes > 0) {
    text += ", " + shown_size(counts.bytes);
    if (counts.total_bytes > 0) text += " of " + shown_size(counts.total_bytes);
  }
  if (seconds < 0.1) return text;
  const std::uint64_t records = counts.records - counts.resumed_records;
  const std::uint64_t bytes = counts.bytes - counts.resumed_bytes;
  text += fmt::format(", {:.0f} records/s", static_cast<double>(records) / seconds);
  if (bytes > 0)
    text += fmt::format(", {:.1f} MiB/s", static_cast<double>(bytes) / 1048576 / seconds);
  // By bytes where they are known: large records take longer.
  const bool by_bytes = counts.total_bytes > 0;
  const std::uint64_t before = by_bytes ? counts.resumed_bytes : counts.resumed_records;
  const auto done = static_cast<double>(by_bytes ? bytes : records);
  const auto total = static_cast<double>(by_bytes ? counts.total_bytes : counts.total_records) -
                     static_cast<double>(before);
  if (done > 0 && total >= done)
    text += ", " + shown_time(seconds * (total - done) / done) + " left";
  return text;
}

std::string progress_text(std::string_view verb, std::uint64_t bytes, std::uint64_t total_bytes,
                          double seconds) {
  std::string text = fmt::format("{} {} of {}", verb, shown_size(bytes), shown_size(total_bytes));
  if (seconds < 0.1 || bytes == 0) return text;
  text += fmt::format(", {:.1f} MiB/s", static_cast<double>(bytes) / 1048576 / seconds);
  const auto left = static_cast<double>(total_bytes) - static_cast<double>(bytes);
  return text + ", " + shown_time(seconds * left / static_cast<double>(bytes)) + " left";
}

void Progress::update(std::string_view verb, const ProgressCounts& counts) {
  if (due()) draw(progress_text(verb, counts, seconds()));
}

void Progress::update_bytes(std::string_view verb, std::uint64_t bytes, std::uint64_t total_bytes) {
  if (due()) draw(progress_text(verb, bytes, total_bytes, seconds()));
}

bool Progress::due() {
  const auto now = Clock::now();
  if (now - last_ < kInterval) return false;
  last_ = now;
  return true;
}

void Progress::clear() {
  if (drawn_ == 0) return;
  draw({});
  if (::write(fd_, "\r", 1) < 0) return;
  drawn_ = 0;
}

void Progress::draw(const std::string& text) {
  std::string line = "\r" + text.substr(0, columns(fd_) - 1);
  const std::size_t shown = line.size() - 1;
  // Blanks over what a longer line has left: nothing that only some terminals understand.
  line.append(drawn_ > shown ? drawn_ - shown : 0, ' ');
  drawn_ = shown;
  if (::write(fd_, line.data(), line.size()) < 0) drawn_ = 0;
}

}  // namespace sml
