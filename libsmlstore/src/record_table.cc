#include "record_table.h"

#include <algorithm>
#include <string>

#include "posix_file.h"
#include "smlformat/key.h"

namespace sml {
namespace {

constexpr std::uint64_t kRecordsBetweenChecks = 4096;

// Null for a component that a key may have.
const char* component_fault(std::string_view component) noexcept {
  if (component.empty()) return "an empty component";
  if (component == ".") return "the component '.'";
  if (component == "..") return "the component '..'";
  return nullptr;
}

// The first fault among the components of `path`; the part after the last slash counts only where
// `whole`.
const char* path_fault(std::string_view path, bool whole) noexcept {
  while (true) {
    const auto slash = path.find('/');
    if (slash == std::string_view::npos) {
      return whole ? component_fault(path) : nullptr;
    }
    if (const char* fault = component_fault(path.substr(0, slash))) {
      return fault;
    }
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string_view strip_path(std::string_view path) noexcept {
  while (true) {
    if (path.starts_with('/')) {
      path.remove_prefix(1);
    } else if (path.starts_with("./")) {
      path.remove_prefix(2);
    } else {
      return path;
    }
  }
}

void check_path_key(std::string_view prefix, std::string_view path, std::string_view origin) {
  const char* fault = path.empty() ? "no name" : path_fault(path, true);
  if (fault != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                shown_path(origin) + ": cannot be a key: it has " + fault);
  }
  if (path.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                shown_path(origin) + ": cannot be a key: it has a NUL byte");
  }
  if (prefix.size() + path.size() > kMaxKeyBytes) {
    throw Error(ErrorCode::kInvalidArgument, shown_path(origin) + ": the key would have " +
                                                 std::to_string(prefix.size() + path.size()) +
                                                 " bytes; at most " + std::to_string(kMaxKeyBytes) +
                                                 " are possible");
  }
}

bool is_path_key(std::string_view prefix, std::string_view path) noexcept {
  return !path.empty() && path_fault(path, true) == nullptr &&
         path.find('\0') == std::string_view::npos && prefix.size() + path.size() <= kMaxKeyBytes;
}

void check_prefix(std::string_view prefix) {
  // What follows the last slash is only the beginning of a component.
  const char* fault = path_fault(prefix, false);
  if (fault == nullptr && prefix.find('\0') != std::string_view::npos) {
    fault = "a NUL byte";
  }
  if (fault != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "prefix '" + shown_path(prefix) + "': keys cannot begin so: it has " + fault);
  }
}

void report_problem(const SourceOptions& options, const Error& problem) {
  if (!options.on_problem) {
    throw Error(problem);
  }
  options.on_problem(problem);
}

void report_bad_key(const SourceOptions& options, std::string_view path, std::string_view origin) {
  try {
    check_path_key(options.prefix, path, origin);
  } catch (const Error& problem) {
    report_problem(options, problem);
  }
}

void check_stop(const SourceOptions& options) {
  if (options.stop.stop_requested()) {
    throw Error(ErrorCode::kCancelled, "cancelled");
  }
}

RecordTable::RecordTable(const SourceOptions& options)
    : options_(&options),
      prefix_(options.prefix),
      keys_(options.memory),
      starts_(options.memory),
      bytes_(options.memory) {
  check_prefix(prefix_);
  starts_.push_back(0);
}

void RecordTable::add(std::string_view directory, std::string_view name, std::uint64_t bytes,
                      bool flag) {
  const std::size_t start = keys_.size();
  keys_.resize(start + prefix_.size() + directory.size() + name.size());
  char* to = keys_.data() + start;
  to = std::copy(prefix_.begin(), prefix_.end(), to);
  to = std::copy(directory.begin(), directory.end(), to);
  std::copy(name.begin(), name.end(), to);
  starts_.push_back(keys_.size());
  bytes_.push_back(bytes | (flag ? kFlag : 0));
  if (size() % kRecordsBetweenChecks == 0) {
    check_stop(*options_);
    if (options_->on_found) {
      options_->on_found(size());
    }
  }
}

void RecordTable::remove_if(const std::function<bool(std::uint64_t)>& drop) {
  std::uint64_t kept = 0;
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < bytes_.size(); ++i) {
    const std::uint64_t start = starts_[i];
    const std::uint64_t stop = starts_[i + 1];
    if (drop(i)) {
      continue;
    }
    for (std::uint64_t from = start; from < stop; ++from) {
      keys_[end++] = keys_[from];
    }
    bytes_[kept++] = bytes_[i];
    starts_[kept] = end;
  }
  keys_.resize(end);
  starts_.resize(kept + 1);
  bytes_.resize(kept);
}

void RecordTable::finish() {
  if (options_->on_found) {
    options_->on_found(size());
  }
  options_ = nullptr;
}

}  // namespace sml
