// The one exception type that crosses library boundaries.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace sml {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,
  kAlreadyExists,
  kAmbiguous,    // a key that is in more than one container of a data set
  kCorrupt,      // bytes that contradict their checksum or the format
  kTruncated,    // bytes that end too early
  kUnsupported,  // a version, feature, codec or file system that this build does not know
  kLimit,        // more than the format or a budget allows
  kIo,           // the operating system or the store refused
  kUnavailable,  // may work later: a busy or unreachable store
  kCancelled,
};

// "corrupt", "not_found", ...: the names used in documents and in JSON.
std::string_view error_code_name(ErrorCode code) noexcept;

// what() is one line: "<context>: <context>: <message>". `hint`, where a remedy is known, is a
// second line.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  ErrorCode code() const noexcept { return code_; }
  const std::string& hint() const noexcept { return hint_; }

  // The same error with "<context>: " put before its message.
  Error within(std::string_view context) const {
    return Error(code_, std::string(context) + ": " + what(), hint_);
  }
  // The same, unless the message begins with the context already.
  Error within_once(std::string_view context) const {
    return std::string_view(what()).starts_with(context) ? *this : within(context);
  }

 private:
  ErrorCode code_;
  std::string hint_;
};

}  // namespace sml
