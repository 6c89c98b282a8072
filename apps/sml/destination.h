// Where pack puts its container: a file, or a data set's directory in which it must agree with what
// is there.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "smlformat/container_reader.h"
#include "smlformat/layout.h"
#include "smlstore/directory_store.h"
#include "smlstore/location.h"

namespace sml {

struct DestinationOptions {
  Location location;
  std::optional<std::string> name;  // of the container in a data set
  std::uint32_t part = 0;
  std::uint32_t parts = 0;
  Grouping grouping = Grouping::kNone;
  bool overwrite = false;
  bool resume = false;  // a container that exists already is what is wanted: see is_complete()
};

// For one thread.
class Destination {
 public:
  // Looks at what is there, writes nothing. Throws UsageError for a name where the destination is a
  // file; Error where the container cannot be added: exists already, part taken, grouping or number
  // of parts differ.
  explicit Destination(DestinationOptions options);
  // Removes the directories that it made, where nothing was published.
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  const std::string& path() const noexcept { return path_; }
  // With `resume`: whether the container was published before.
  bool is_complete() const noexcept { return complete_; }

  // Makes the data set's directory where there is none.
  void prepare();
  // Files of the destination itself that are there: the container to replace, in a data set its
  // other containers and its lock.
  std::vector<std::string> own_files() const;
  // Publishes the sealed container in `sink`, which writes to path(). In a data set under its lock,
  // after a check that no key of it is there already. Throws kAlreadyExists, kInvalidArgument, kIo,
  // kCancelled.
  void publish(FileSink& sink, const std::stop_token& stop);

 private:
  // Container files of the data set, without the one that is replaced.
  std::vector<std::string> others() const;
  void check_agreement() const;
  void check_keys(const std::string& unpublished) const;

  DestinationOptions options_;
  std::string directory_;  // of a data set, with a slash at the end; empty for a file
  std::string path_;
  std::vector<std::string> made_;
  bool complete_ = false;
  bool published_ = false;
};

// "20261130T040500Z-1a2b3c4d"
std::string default_container_name();

}  // namespace sml
