#include "interrupt.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "smlformat/error.h"
#include "smlstore/directory_store.h"
#include "terminal.h"

namespace sml {
namespace {

std::atomic<int> received_signal{0};
std::atomic<bool> counters_asked{false};

// Names are short (temporary ones): a fixed place that a signal handler may read.
std::array<char, 64> unfinished_name{};
std::atomic<int> unfinished_directory{-1};

std::array<char, 64> fault_command{};
std::array<char, 1024> fault_place{};

template <std::size_t N>
void keep(std::array<char, N>& to, const std::string& text) {
  const std::size_t count = std::min(text.size(), N - 1);
  std::copy_n(text.begin(), count, to.begin());
  to[count] = '\0';
}

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&set, number);
  return set;
}

void remove_unfinished() noexcept {
  FileSink::remove_unpublished();
  const int directory = unfinished_directory.load();
  if (directory >= 0) ::unlinkat(directory, unfinished_name.data(), 0);
}

void put(const char* text) noexcept {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

extern "C" void on_fault(int /*number*/) {
  remove_unfinished();
  put(fault_command.data());
  put(fault_place.data());
  put("a mapped file became shorter, or its disk failed, while it was read\n");
  ::_exit(1);
}

extern "C" void on_counters_asked(int /*number*/) { counters_asked.store(true); }

}  // namespace

CountersSignal::CountersSignal() {
  struct sigaction action {};
  action.sa_handler = on_counters_asked;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

CountersSignal::~CountersSignal() { ::signal(SIGUSR1, SIG_IGN); }

bool CountersSignal::take() const noexcept {
  return counters_asked.load(std::memory_order_relaxed) && counters_asked.exchange(false);
}

Interrupt::Interrupt(int grace_ms) : grace_ms_(grace_ms) {
  const sigset_t set = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  ending_ = ::eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || ending_ < 0)
    throw Error(ErrorCode::kIo, std::string("signalfd: ") + std::strerror(errno));
  watcher_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  ::eventfd_write(ending_, 1);
  watcher_.join();
  ::close(signals_);
  ::close(ending_);
  const sigset_t set = watched_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

int Interrupt::received() noexcept { return received_signal.load(); }

void Interrupt::watch() {
  std::array<pollfd, 2> waiting{{{signals_, POLLIN, 0}, {ending_, POLLIN, 0}}};
  for (;;) {
    const int first = received_signal.load();
    const int ready = ::poll(waiting.data(), waiting.size(), first == 0 ? -1 : grace_ms_);
    if (ready < 0) continue;
    if (waiting[1].revents != 0) return;
    if (first != 0) {
      remove_unfinished();
      ::_exit(128 + first);
    }
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    received_signal.store(static_cast<int>(info.ssi_signo));
    stop_.request_stop();
  }
}

void handle_faults(const std::string& command) {
  keep(fault_command, command + ": ");
  struct sigaction action {};
  action.sa_handler = on_fault;
  ::sigaction(SIGBUS, &action, nullptr);
}

void set_fault_place(const std::string& place) { keep(fault_place, one_line(place) + ": "); }

void set_unfinished_file(int directory, const std::string& name) {
  keep(unfinished_name, name);
  unfinished_directory.store(directory);
}

void clear_unfinished_file() { unfinished_directory.store(-1); }

}  // namespace sml
