// What pack is given: directories and files, lists of paths, archives, framed streams.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smlstore/record_source.h"

namespace sml {

struct PackInputOptions {
  enum class Kind { kFiles, kArchive, kFrames };
  Kind kind = Kind::kFiles;
  std::vector<std::string> sources;
  std::optional<std::string> files_from;  // kFiles: paths to pack, instead of sources
  bool nul = false;                       // separates those paths

  bool from_standard_input() const;
};

// One of the two is set.
struct PackInput {
  std::unique_ptr<RecordList> list;
  std::unique_ptr<RecordStream> stream;
};

// Whether the input can be read only once: standard input, or a source that is no regular file.
bool is_stream(const PackInputOptions& input);
// Throws what the sources throw: kNotFound, kIo, kCorrupt, kTruncated, kInvalidArgument.
PackInput open_input(const PackInputOptions& input, const SourceOptions& options);

}  // namespace sml
