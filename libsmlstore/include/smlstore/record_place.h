// Where records lie in files of this machine, for processes that map them themselves.
#pragma once

#include <cstdint>
#include <string>

#include "smlformat/frames.h"
#include "smlstore/dataset.h"

namespace sml {

// Of a record that was given as immutable. Safe for threads.
struct RecordPlace {
  std::uint64_t container = 0;      // in Dataset::containers()
  std::uint64_t block = kNoNumber;  // of the container, in a file of the block cache; kNoNumber: in
                                    // the file of the container
  std::uint64_t offset = 0;         // of the record's first byte in the file

  // Throws kCorrupt where the index contradicts itself.
  static RecordPlace of(const Dataset& dataset, std::uint64_t number);
  // The file, by an absolute path. A cached one may be unlinked at any time; neither ever changes.
  std::string path(const Dataset& dataset) const;
};

}  // namespace sml
