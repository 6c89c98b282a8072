// Whether a container may join a data set, as far as its keys tell.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "smlstore/store.h"

namespace sml {

// Containers of a store that were opened to compare keys, kept for the next comparison: who brings
// many would open each as often. (Not for files: each takes a descriptor, and opening it is cheap.)
// Safe for threads.
class ComparedContainers {
 public:
  std::shared_ptr<const ContainerReader> open(const Store& store, const CatalogEntry& entry);

 private:
  static constexpr std::uint64_t kMostBytes = 256U << 20;  // of their indexes

  std::mutex mutex_;
  std::map<Hash128, std::shared_ptr<const ContainerReader>> opened_;
  std::uint64_t bytes_ = 0;
};

// Looks for keys that a new container shares with those of a catalog, each of which is opened and
// compared once, however often the catalog changes meanwhile.
class KeyCheck {
 public:
  // compared: where containers are kept that were opened; null: nowhere.
  KeyCheck(const Store& store, std::string name, const ContainerReader& added,
           ComparedContainers* compared = nullptr)
      : store_(store), name_(std::move(name)), added_(added), compared_(compared) {}

  // Throws kAlreadyExists, naming a key and both containers; what opening a container throws. The
  // container of the same name, which will be replaced, does not count.
  void run(const Catalog& catalog);

 private:
  const Store& store_;
  std::string name_;
  const ContainerReader& added_;
  ComparedContainers* compared_;
  std::map<std::string, Hash128> checked_;
};

}  // namespace sml
