// Statements about errors: the code, and what the message names.
#pragma once

#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "smlformat/error.h"

namespace sml::test {

// The sml::Error that `call` throws; nothing where it throws none.
template <class Call>
std::optional<Error> error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

template <class Call>
void check_error(ErrorCode code, const std::string& part, Call call) {
  const std::optional<Error> error = error_of(call);
  REQUIRE(error.has_value());
  const std::string message = error->what();
  CAPTURE(message);
  CHECK(error->code() == code);
  CHECK(message.find(part) != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

}  // namespace sml::test
