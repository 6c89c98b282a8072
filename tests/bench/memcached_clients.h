// Clients of memcached: libmemcached, and as little as possible between the socket and the values.
// A server is the path of a Unix socket, or a port of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "descriptor_input.h"
#include "side.h"

// Records are stored under short names made of their numbers.
std::string memcached_name(std::uint64_t number);

class MemcachedConnection {
 public:
  explicit MemcachedConnection(const std::string& server);
  ~MemcachedConnection();
  MemcachedConnection(const MemcachedConnection&) = delete;
  MemcachedConnection& operator=(const MemcachedConnection&) = delete;

  void send(std::string_view bytes) const;
  DescriptorInput& input() { return *input_; }

 private:
  int socket_;
  std::unique_ptr<DescriptorInput> input_;
};

// The text protocol: all values with one "get", or each with an "mg" of its own, sent together.
class RawMemcached final : public Side {
 public:
  RawMemcached(const std::string& server, bool meta) : connection_(server), meta_(meta) {}

  void ask(std::span<const std::string_view> names);
  std::uint64_t receive(std::span<const std::string_view> names, Look look);
  std::uint64_t read(const Batch& batch, Look look) override {
    ask(batch.names);
    return receive(batch.names, look);
  }

 private:
  MemcachedConnection connection_;
  bool meta_;
  std::string request_;
};

std::unique_ptr<Side> libmemcached_side(const std::string& server, bool binary);
