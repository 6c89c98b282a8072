// sml serve-stdio DATASET
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "commands/commands.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "serve_session.h"
#include "terminal.h"

namespace sml {
namespace {

constexpr int kMaxConnections = 256;
constexpr std::size_t kReadBytes = 64U << 10;

// The requests of one client, one line each.
class RequestInput {
 public:
  enum class Got { kRequest, kEnd, kTooLong };

  RequestInput(int fd, Output& out) : fd_(fd), out_(out) {}

  // The next request, valid until the next call; one without its newline at the end is none. Before
  // it waits for one, answers are flushed.
  Got next(std::string_view& request) {
    for (;;) {
      const std::size_t at = buffer_.find('\n', searched_);
      if (at != std::string::npos) {
        if (at - begin_ > ServeSession::kMaxRequestBytes) return Got::kTooLong;
        request = std::string_view(buffer_).substr(begin_, at - begin_);
        begin_ = searched_ = at + 1;
        return Got::kRequest;
      }
      searched_ = buffer_.size();
      if (buffer_.size() - begin_ > ServeSession::kMaxRequestBytes) return Got::kTooLong;
      if (!fill()) return Got::kEnd;
    }
  }

 private:
  bool fill() {
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    const std::size_t held = buffer_.size();
    buffer_.resize(held + kReadBytes);
    ssize_t count = 0;
    do {
      if (!is_readable(0)) out_.flush();
      is_readable(-1);
      count = ::read(fd_, buffer_.data() + held, kReadBytes);
    } while (count < 0 && (errno == EINTR || errno == EAGAIN));
    buffer_.resize(held + static_cast<std::size_t>(std::max<ssize_t>(0, count)));
    return count > 0;  // whoever has gone asks for nothing more
  }

  bool is_readable(int timeout_ms) const {
    pollfd waiting{fd_, POLLIN, 0};
    return ::poll(&waiting, 1, timeout_ms) > 0;
  }

  int fd_;
  Output& out_;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t searched_ = 0;  // no newline before it
};

// Until the client has no more to ask, or has gone.
void serve(ServedDataset& served, int in, Output& out) try {
  ServeSession session(served, out);
  RequestInput input(in, out);
  std::string_view request;
  for (;;) {
    const RequestInput::Got got = input.next(request);
    if (got == RequestInput::Got::kTooLong) session.refuse_long_request();
    if (got != RequestInput::Got::kRequest || !session.answer(request)) break;
  }
  out.flush();
} catch (const ClosedPipe&) {
}

// A socket that only this user may open, and a thread for each of its connections. All of it ends
// with the object.
class SocketServer {
 public:
  SocketServer(ServedDataset& served, const std::string& path) : served_(served), path_(path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
      throw UsageError("option --socket: '" + one_line(path) + "' is longer than " +
                       std::to_string(sizeof address.sun_path - 1) + " bytes");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    remove_dead(name, sizeof address);
    listening_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // Nobody else may connect, not even before the mode is set.
    const mode_t mask = ::umask(0177);
    const bool bound = listening_ >= 0 && ::bind(listening_, name, sizeof address) == 0;
    ::umask(mask);
    if (!bound || ::listen(listening_, kMaxConnections) != 0) {
      const int error = errno;
      ::close(listening_);
      throw Error(ErrorCode::kIo, one_line(path) + ": " + std::strerror(error));
    }
    thread_ = std::thread([this] { accept_all(); });
  }

  ~SocketServer() {
    ::unlink(path_.c_str());
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      ::shutdown(listening_, SHUT_RDWR);
      for (const Connection& one : connections_) ::shutdown(one.fd, SHUT_RDWR);
    }
    thread_.join();
    for (Connection& one : connections_) end(one);
    ::close(listening_);
  }
  SocketServer(const SocketServer&) = delete;
  SocketServer& operator=(const SocketServer&) = delete;

 private:
  struct Connection {
    int fd = -1;
    std::thread thread;
    std::atomic<bool> ended = false;
  };

  // One that a killed server left; of a server that lives it stays, and bind() will say so.
  static void remove_dead(const sockaddr* name, socklen_t bytes) {
    const char* const path = reinterpret_cast<const sockaddr_un*>(name)->sun_path;
    struct stat status {};
    if (::lstat(path, &status) != 0 || !S_ISSOCK(status.st_mode)) return;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, name, bytes) != 0 && errno == ECONNREFUSED) ::unlink(path);
    ::close(fd);
  }

  static void end(Connection& one) {
    one.thread.join();
    ::close(one.fd);
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        if (fd >= 0) ::close(fd);
        return;
      }
      if (fd < 0) continue;
      connections_.remove_if([](Connection& one) {
        if (one.ended) end(one);
        return one.ended.load();
      });
      if (connections_.size() >= kMaxConnections) {
        ::close(fd);
        continue;
      }
      Connection& one = connections_.emplace_back();
      one.fd = fd;
      one.thread = std::thread([this, &one] {
        {
          Output out(one.fd, "a connection");
          try {
            serve(served_, one.fd, out);
          } catch (const std::exception&) {  // of this client only
          }
        }
        ::shutdown(one.fd, SHUT_RDWR);
        one.ended = true;
      });
    }
  }

  ServedDataset& served_;
  const std::string path_;
  int listening_ = -1;
  std::mutex mutex_;
  bool stopping_ = false;
  std::list<Connection> connections_;
  std::thread thread_;
};

class ServeStdioCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe("DATASET",
                  "Answers a training process over standard input and output: requests in lines of "
                  "JSON, answers with\nthe bytes of records behind them (serve-stdio.md of the "
                  "format's documents). Ends with standard input.");
    line.positional("DATASET", dataset_, "a container, or a data set");
    line.group("Serving");
    line.text("--socket", "PATH", socket_,
              "a Unix socket beside standard input and output, for\nthe other processes of a rank");
    add_partial_option(line, partial_);
    line.group("Speed and memory");
    line.size("--memory", memory_bytes_,
              "what is read ahead for epochs, of all clients; default\nSML_MEMORY, else 384M");
    add_threads_option(line, threads_);
    add_cache_options(line, store_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Example:\n"
        "  printf '%s\\n' '{\"id\":0,\"request\":\"hello\",\"protocol\":1}' "
        "'{\"id\":1,\"request\":\"info\"}' |\n"
        "    sml serve-stdio photos.sml\n"
        "\n"
        "Exit codes: 0 done; 1 failed; 2 wrong usage.");
  }

  void resolve() override {
    location_ = parse_dataset(dataset_);
    if (socket_ && socket_->empty()) throw UsageError("option --socket: '' is no path");
    reader_.threads = resolve_threads(threads_);
    reader_.memory_bytes = resolve_memory(memory_bytes_, reader_.memory_bytes);
  }

  Outcome run(Console& console) override {
    console.configure(report_);
    refuse_input_terminal("requests");
    // A trainer that is told to stop gets these together with its server, and saves its state.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    const Dataset dataset = open_cached_dataset(location_, store_, partial_, console);
    ServedDataset served(dataset, location_.path, reader_);
    std::optional<SocketServer> others;
    if (socket_) others.emplace(served, *socket_);
    Output out = Output::standard();
    serve(served, STDIN_FILENO, out);
    return Outcome::kDone;
  }

 private:
  std::optional<std::string> dataset_;
  std::optional<std::string> socket_;
  bool partial_ = false;
  std::optional<std::uint64_t> memory_bytes_;
  std::optional<unsigned> threads_;
  StoreArguments store_;
  ReportOptions report_;
  Location location_;
  ReaderOptions reader_;
};

}  // namespace

std::unique_ptr<Command> make_serve_stdio_command() {
  return std::make_unique<ServeStdioCommand>();
}

}  // namespace sml
