#include "locations.h"

#include "command.h"
#include "interrupt.h"
#include "smlformat/error.h"

namespace sml {
namespace {

bool has_revision(const std::string& path) {
  const std::size_t at = path.rfind('@');
  return at != std::string::npos && at + 1 < path.size() &&
         path.find_first_not_of("0123456789", at + 1) == std::string::npos;
}

}  // namespace

Location parse_location(const std::string& text) {
  try {
    return Location::parse(text);
  } catch (const Error& error) {
    throw UsageError(error.what(), error.hint());
  }
}

Location parse_dataset(const std::optional<std::string>& argument) {
  if (!argument) throw UsageError("no DATASET given");
  return parse_location(*argument);
}

Dataset open_dataset(const Location& location, bool partial) {
  DatasetOptions options;
  options.partial = partial;
  return open_dataset(location, options);
}

Dataset open_dataset(const Location& location, const DatasetOptions& options) {
  set_fault_place(location.path);
  try {
    return Dataset::open(location, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound && has_revision(location.path)) {
      throw UsageError(location.path + ": this version of sml knows no revisions");
    }
    throw;
  }
}

Error located(const Error& error, const Location& location) {
  return std::string_view(error.what()).starts_with(location.path) ? error
                                                                   : error.within(location.path);
}

}  // namespace sml
