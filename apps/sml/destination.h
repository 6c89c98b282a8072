// Where a command puts a container: a file, or a data set in which it must agree with what is
// there.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "smlformat/bytes.h"
#include "smlstore/directory_store.h"
#include "smlstore/location.h"
#include "smlstore/store.h"

namespace sml {

struct DestinationOptions {
  Location location;
  StoreOptions store;
  std::shared_ptr<Store> dataset;   // that of the location, where it is open already
  std::optional<std::string> name;  // of the container in a data set
  Membership membership;
  bool named_as_is = false;  // a part gets no -I-of-N behind its name
  bool overwrite = false;
  std::uint32_t recipe = 0;  // pack_recipe(): what the bytes depend on besides the input
  bool resume = false;  // continue what an interrupted pack left, and keep what this one leaves
};

// For one thread.
class Destination {
 public:
  // Looks at what is there, writes nothing. Throws UsageError for a name where the destination is a
  // file; Error where the container cannot be added: exists already, part taken, grouping or number
  // of parts differ.
  explicit Destination(DestinationOptions options);

  const std::string& path() const noexcept { return path_; }

  // With `resume` and without `overwrite`: the container, where it was published before; else null.
  std::shared_ptr<const ContainerReader> complete() const;

  // Begins the container (kInvalidArgument for a file beside a catalog, which would not list it):
  // what is written to the sink is not visible before publish(), and gone with the Destination
  // where that does not come.
  ByteSink& begin();
  // From begin() on: what an interrupted pack left of it; null where nothing.
  std::shared_ptr<const ByteSource> interrupted() const;
  // From begin() on: the place of what will be left to be resumed; empty where nothing will.
  std::string kept() const;
  // Files of the destination itself that are there: the container to replace, in a data set its
  // other containers, catalog and lock.
  std::vector<std::string> own_files() const;
  // From begin() on: the file that is being written; empty where it is none.
  std::string unpublished_path() const;
  // Publishes the sealed container; in a data set after a check that no key of it is there already.
  // Throws kAlreadyExists, kInvalidArgument, kIo, kUnavailable, kCancelled.
  void publish(const std::stop_token& stop);

 private:
  DestinationOptions options_;
  std::string path_;
  NewContainer container_;
  std::shared_ptr<Store> store_;  // of a data set
  std::unique_ptr<PendingContainer> pending_;
  std::unique_ptr<FileSink> file_;
  bool complete_ = false;
};

// "20261130T040500Z-1a2b3c4d"
std::string default_container_name();

}  // namespace sml
