#include "lists.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "smlformat/error.h"
#include "smlformat/key.h"
#include "terminal.h"

namespace sml {
namespace {

constexpr std::size_t kReadBytes = 256U << 10;

void append_base64(std::string& out, std::string_view text) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < text.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, text.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < count ? static_cast<unsigned char>(text[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      out += j <= count ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
}

void append_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
}

}  // namespace

ListInput::ListInput(const std::string& path, bool nul, std::size_t most_bytes)
    : fd_(STDIN_FILENO),
      name_(path == "-" ? "standard input" : path),
      separator_(nul ? '\0' : '\n'),
      most_bytes_(most_bytes) {
  if (path == "-") return;
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) {
    throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                name_ + ": " + std::strerror(errno));
  }
}

ListInput::~ListInput() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

bool ListInput::next(std::string_view& line) {
  while (!take(line)) {
    if (ended()) return false;
    fill();
  }
  return true;
}

bool ListInput::next_ready(std::string_view& line) {
  for (;;) {
    if (take(line)) return true;
    if (ended_) return false;
    pollfd waiting{fd_, POLLIN, 0};
    if (::poll(&waiting, 1, 0) <= 0) return false;
    fill();
  }
}

bool ListInput::take(std::string_view& line) {
  const char* const from = buffer_.data() + scanned_;
  const void* const found =
      end_ > scanned_ ? std::memchr(from, separator_, end_ - scanned_) : nullptr;
  if (found == nullptr && (!ended_ || begin_ == end_)) {
    scanned_ = end_;
    return false;
  }
  const std::size_t at =
      found == nullptr ? end_
                       : static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
  line = {buffer_.data() + begin_, at - begin_};
  begin_ = scanned_ = found == nullptr ? end_ : at + 1;
  ++lines_;
  return true;
}

void ListInput::fill() {
  if (ended_) return;
  if (end_ - begin_ > most_bytes_) {
    throw Error(ErrorCode::kInvalidArgument,
                name_ + ": line " + std::to_string(lines_ + 1) + " is longer than " +
                    std::to_string(most_bytes_) + " bytes: no key or path is",
                separator_ == '\n' ? "-0 reads lists that are separated by NUL" : "");
  }
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    scanned_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < kReadBytes / 2)
    buffer_.resize(buffer_.size() + std::max(kReadBytes, buffer_.size()));
  ssize_t count = 0;
  do {
    count = ::read(fd_, buffer_.data() + end_, buffer_.size() - end_);
    if (count < 0 && errno == EAGAIN) {
      pollfd waiting{fd_, POLLIN, 0};
      ::poll(&waiting, 1, -1);
    }
  } while (count < 0 && (errno == EINTR || errno == EAGAIN));
  if (count < 0) throw Error(ErrorCode::kIo, name_ + ": " + std::strerror(errno));
  ended_ = count == 0;
  end_ += static_cast<std::size_t>(count);
}

void ListOutput::refuse(std::string_view key) const {
  throw Error(ErrorCode::kInvalidArgument,
              "record '" + std::string(key) + "': the key holds a newline",
              "-0 separates keys by NUL");
}

void append_json_text(std::string& out, std::string_view name, std::string_view text) {
  out += '"';
  out += name;
  if (is_utf8(text)) {
    out += "\": \"";
    append_escaped(out, text);
  } else {
    out += "_base64\": \"";
    append_base64(out, text);
  }
  out += '"';
}

void put_json_text(nlohmann::ordered_json& object, std::string_view name, std::string_view text) {
  std::string pair = "{";
  append_json_text(pair, name, text);
  object.update(nlohmann::ordered_json::parse(pair + "}"));
}

}  // namespace sml
