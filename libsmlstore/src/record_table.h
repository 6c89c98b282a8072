// The keys and sizes of a record list: what all sources have in common. 16 bytes and the key per
// record.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "smlstore/record_source.h"

namespace sml {

// A listed path or a member's name without its leading "./" and "/".
std::string_view strip_path(std::string_view path) noexcept;

// Throws kInvalidArgument, naming `origin`, for what cannot be the part of a key after the prefix:
// components that are empty, "." or "..", through which unpacking could leave its directory; with
// the prefix too long; NUL.
void check_path_key(std::string_view prefix, std::string_view path, std::string_view origin);

// Whether check_path_key() would not throw.
bool is_path_key(std::string_view prefix, std::string_view path) noexcept;

// Throws kInvalidArgument for a prefix with an empty, "." or ".." component, or NUL.
void check_prefix(std::string_view prefix);

// Gives the problem to options.on_problem, or throws it.
void report_problem(const SourceOptions& options, const Error& problem);

// Reports what check_path_key() throws for a path that is_path_key() refused.
void report_bad_key(const SourceOptions& options, std::string_view path, std::string_view origin);

// Throws kCancelled where a stop was requested.
void check_stop(const SourceOptions& options);

class RecordTable {
 public:
  static constexpr std::uint64_t kMaxRecordBytes = ~std::uint64_t{0} >> 1U;

  // Throws as check_prefix() does. Keeps a reference to the options until finish().
  explicit RecordTable(const SourceOptions& options);

  // Adds a record with the key prefix + directory + name. `flag` is one bit for the source's own
  // use. The key has been checked.
  void add(std::string_view directory, std::string_view name, std::uint64_t bytes,
           bool flag = false);
  // Removes the records for which `drop` is true.
  void remove_if(const std::function<bool(std::uint64_t)>& drop);
  void set_bytes(std::uint64_t i, std::uint64_t bytes) noexcept {
    bytes_[i] = bytes | (bytes_[i] & kFlag);
  }

  std::uint64_t size() const noexcept { return bytes_.size(); }
  std::string_view key(std::uint64_t i) const noexcept {
    return {keys_.data() + starts_[i], starts_[i + 1] - starts_[i]};
  }
  std::string_view key_without_prefix(std::uint64_t i) const noexcept {
    return key(i).substr(prefix_.size());
  }
  std::uint64_t bytes(std::uint64_t i) const noexcept { return bytes_[i] & ~kFlag; }
  bool flag(std::uint64_t i) const noexcept { return (bytes_[i] & kFlag) != 0; }
  const std::string& prefix() const noexcept { return prefix_; }

  // Tells options.on_found the final number.
  void finish();

 private:
  static constexpr std::uint64_t kFlag = std::uint64_t{1} << 63U;

  const SourceOptions* options_;
  std::string prefix_;
  std::pmr::vector<char> keys_;
  std::pmr::vector<std::uint64_t> starts_;  // size() + 1
  std::pmr::vector<std::uint64_t> bytes_;
};

}  // namespace sml
