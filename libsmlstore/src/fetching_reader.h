// Reads containers that are not mapped: every read is an operation of a store that is far away.
// Looks far ahead, and reads with one operation all that it will need of a block.
#pragma once

#include <memory>

#include "reader_state.h"

namespace sml {

std::unique_ptr<ReaderState> make_fetching_reader(const Dataset& dataset,
                                                  const ReaderOptions& options, bool with_keys);

}  // namespace sml
