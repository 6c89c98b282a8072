// Views of a data set: the samples that lists of keys and globs select.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "smlstore/dataset.h"
#include "smlstore/glob.h"
#include "smlstore/order.h"

namespace sml {

struct SelectionOptions {
  // Keys that are selected, one at a time until false; none given: all. An unknown key throws
  // kNotFound.
  std::function<bool(std::string& key)> next_key;
  std::vector<Glob>
      match;  // a record is selected where any matches (and, with next_key, also those listed)
  std::vector<Glob> exclude;  // a sample is out where any of its records matches
};

// A sample is in if any of its records is selected, out if any is excluded. With neither keys nor
// match all records are selected. The digest runs over the numbers of all records of the samples
// that are in. A key that is in two containers throws kAmbiguous where it is listed; globs take
// both records. Walks over all names where a glob has wildcards. Memory: 8 bytes per selected
// sample, where samples have several records 8 more per record for the digest, 2 bits per sample of
// the data set.
Selection select(const Dataset& dataset, const SelectionOptions& options);

}  // namespace sml
