// Reads containers that are mapped: all bytes are there at once, so that what costs is to verify
// and to decode. Workers take batches of requests.
#pragma once

#include <memory>

#include "reader_state.h"

namespace sml {

std::unique_ptr<ReaderState> make_mapped_reader(const Dataset& dataset,
                                                const ReaderOptions& options, bool with_keys);

}  // namespace sml
