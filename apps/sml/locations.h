// Data sets and containers that the arguments name.
#pragma once

#include <optional>
#include <string>

#include "smlformat/error.h"
#include "smlstore/dataset.h"
#include "smlstore/location.h"

namespace sml {

// The required DATASET argument. Throws UsageError: missing, empty, or of a kind that this version
// does not have.
Location parse_dataset(const std::optional<std::string>& argument);
Location parse_location(const std::string& text);

// Throws what Dataset::open throws, and UsageError for NAME@REVISION, which this version does not
// have.
Dataset open_dataset(const Location& location, const DatasetOptions& options);
Dataset open_dataset(const Location& location, bool partial);

// The error with the location before its message, unless it begins with it.
Error located(const Error& error, const Location& location);

}  // namespace sml
