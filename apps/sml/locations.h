// Data sets and containers that the arguments name.
#pragma once

#include <optional>
#include <string>

#include "smlstore/dataset.h"
#include "smlstore/location.h"

namespace sml {

// The required DATASET argument. Throws UsageError: missing, empty, or of a kind that this version does not have.
Location parse_dataset(const std::optional<std::string>& argument);
Location parse_location(const std::string& text);

// Throws what Dataset::open throws, and UsageError for NAME@REVISION, which this version does not have.
Dataset open_dataset(const Location& location, bool partial);

}  // namespace sml
