// Whether a container may join a data set, as far as its keys tell.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "smlstore/store.h"

namespace sml {

// Looks for keys that a new container shares with those of a catalog, each of which is opened and
// compared once, however often the catalog changes meanwhile.
class KeyCheck {
 public:
  KeyCheck(const Store& store, std::string name, const ContainerReader& added)
      : store_(store), name_(std::move(name)), added_(added) {}

  // Throws kAlreadyExists, naming a key and both containers; what opening a container throws. The
  // container of the same name, which will be replaced, does not count.
  void run(const Catalog& catalog);

 private:
  const Store& store_;
  std::string name_;
  const ContainerReader& added_;
  std::map<std::string, Hash128> checked_;
};

}  // namespace sml
