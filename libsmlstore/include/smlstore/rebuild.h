// Makes the catalog of a data set in Ceph anew, where it is damaged or missing, from the objects
// that are there.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "smlformat/error.h"
#include "smlstore/catalog.h"
#include "smlstore/location.h"
#include "smlstore/store.h"

namespace sml {

struct RebuildOptions {
  bool dry_run = false;  // write nothing
  std::stop_token stop;
};

struct RebuildReport {
  std::optional<Error> damage;           // nothing: the catalog was sound
  std::vector<CatalogEntry> containers;  // that it did not name, and now does
  std::vector<std::string> unsealed;     // likewise: for recover() of each, or to be removed
  std::vector<Error> problems;           // what is lost, may be, or contradicts itself
  std::uint64_t foreign = 0;             // objects that are none of SML's: left alone
};

// Lists the data set's objects, which goes through the whole pool. Containers that the catalog does
// not name become part of it: all where it is damaged or missing; where it is sound, those that may
// join. What is no sealed container, or may not join, is announced, as what a packer that died has
// left. Deletes nothing. Blocks are not read. Throws kNotFound where there are neither catalog nor
// containers; kUnavailable where a packer is at work on what the catalog does not name, or the
// catalog is changed meanwhile; kUnsupported for a newer catalog; kInvalidArgument for a location
// that is no data set in Ceph; kCancelled; what Store::open throws.
RebuildReport rebuild_catalog(const Location& dataset, const StoreOptions& store,
                              const RebuildOptions& options);

}  // namespace sml
