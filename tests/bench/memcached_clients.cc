#include "memcached_clients.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <libmemcached/memcached.h>

namespace {

constexpr int kSocketBytes = 4 << 20;

bool is_path(const std::string& server) { return server.starts_with('/'); }

in_port_t port(const std::string& server) {
  return static_cast<in_port_t>(std::strtoul(server.c_str(), nullptr, 10));
}

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

int connected(const std::string& server) {
  union {
    sockaddr any;
    sockaddr_un path;
    sockaddr_in loopback;
  } address{};
  if (is_path(server)) {
    address.path.sun_family = AF_UNIX;
    if (server.size() >= sizeof address.path.sun_path) fail(server + ": too long for a socket");
    server.copy(address.path.sun_path, server.size());
  } else {
    address.loopback.sin_family = AF_INET;
    address.loopback.sin_port = htons(port(server));
    address.loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  const int socket = ::socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) fail(std::strerror(errno));
  set(socket, SOL_SOCKET, SO_RCVBUF, kSocketBytes);
  if (!is_path(server)) set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  const std::size_t bytes = is_path(server) ? sizeof address.path : sizeof address.loopback;
  if (connect(socket, &address.any, static_cast<socklen_t>(bytes)) != 0)
    fail(server + ": " + std::strerror(errno));
  return socket;
}

// The words of a line, one after another.
std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

std::size_t number_in(std::string_view text) {
  std::size_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string memcached_name(std::uint64_t number) {
  char name[24];
  std::snprintf(name, sizeof name, "%08lx", number);
  return name;
}

MemcachedConnection::MemcachedConnection(const std::string& server)
    : socket_(connected(server)), input_(std::make_unique<DescriptorInput>(socket_)) {}

MemcachedConnection::~MemcachedConnection() { close(socket_); }

void MemcachedConnection::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) fail(std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void RawMemcached::ask(std::span<const std::string_view> names) {
  request_.clear();
  if (!meta_) request_ += "get";
  for (const std::string_view name : names) {
    request_ += meta_ ? "mg " : " ";
    request_ += name;
    if (meta_) request_ += " v\r\n";
  }
  request_ += meta_ ? "mn\r\n" : "\r\n";
  connection_.send(request_);
}

// "VALUE name flags bytes", the value, ..., "END"; or "VA bytes", the value, ..., "MN".
std::uint64_t RawMemcached::receive(std::span<const std::string_view> names, Look look) {
  DescriptorInput& input = connection_.input();
  std::uint64_t sum = 0;
  for (const std::string_view name : names) {
    std::string_view line = input.take_line();
    const std::string_view answer = take_word(line);
    if (answer != (meta_ ? "VA" : "VALUE")) fail("memcached lacks a record");
    if (!meta_) {
      if (take_word(line) != name) fail("memcached lacks a record");
      take_word(line);
    }
    const std::size_t bytes = number_in(line);
    sum += look_at(sml::as_bytes(input.take(bytes + 2).substr(0, bytes)), look);
  }
  if (input.take_line() != (meta_ ? "MN" : "END")) fail("memcached gives too much");
  return sum;
}

namespace {

class Libmemcached final : public Side {
 public:
  Libmemcached(const std::string& server, bool binary) : memcached_(memcached_create(nullptr)) {
    for (const auto behavior : {MEMCACHED_BEHAVIOR_NO_BLOCK, MEMCACHED_BEHAVIOR_TCP_NODELAY})
      must(memcached_behavior_set(memcached_, behavior, 1));
    must(memcached_behavior_set(memcached_, MEMCACHED_BEHAVIOR_SOCKET_RECV_SIZE, kSocketBytes));
    must(memcached_behavior_set(memcached_, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary ? 1 : 0));
    must(is_path(server) ? memcached_server_add_unix_socket(memcached_, server.c_str())
                         : memcached_server_add(memcached_, "127.0.0.1", port(server)));
    memcached_result_create(memcached_, &result_);
  }
  ~Libmemcached() override {
    memcached_result_free(&result_);
    memcached_free(memcached_);
  }
  Libmemcached(const Libmemcached&) = delete;
  Libmemcached& operator=(const Libmemcached&) = delete;

  std::uint64_t read(const Batch& batch, Look look) override {
    keys_.clear();
    sizes_.clear();
    for (const std::string_view name : batch.names) {
      keys_.push_back(name.data());
      sizes_.push_back(name.size());
    }
    must(memcached_mget(memcached_, keys_.data(), sizes_.data(), keys_.size()));
    std::uint64_t sum = 0;
    std::size_t received = 0;
    memcached_return_t outcome = MEMCACHED_SUCCESS;
    for (; memcached_fetch_result(memcached_, &result_, &outcome) != nullptr; ++received) {
      const std::string_view value(memcached_result_value(&result_),
                                   memcached_result_length(&result_));
      sum += look_at(sml::as_bytes(value), look);
    }
    if (received != keys_.size()) fail("memcached lacks a record");
    return sum;
  }

 private:
  void must(memcached_return_t outcome) const {
    if (memcached_failed(outcome)) fail(memcached_strerror(memcached_, outcome));
  }

  memcached_st* memcached_;
  memcached_result_st result_{};
  std::vector<const char*> keys_;
  std::vector<std::size_t> sizes_;
};

}  // namespace

std::unique_ptr<Side> libmemcached_side(const std::string& server, bool binary) {
  return std::make_unique<Libmemcached>(server, binary);
}
