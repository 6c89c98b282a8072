// Where the containers of a data set and its catalog live: a directory, or a namespace of a Ceph
// pool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"
#include "smlstore/catalog.h"
#include "smlstore/location.h"

namespace sml {

struct StoreOptions {
  std::string ceph_conf;  // where the location names none
  std::string ceph_user;
  double ceph_timeout_s = 30;  // of every operation
  // Directory for indexes of containers that are not mapped, made where missing; empty: they are
  // held in memory.
  std::string index_directory;
  bool mapped = true;  // false: read container files also where they could be mapped
};

struct NewContainer {
  std::string name;
  Membership membership;
  bool overwrite = false;  // replace a container of that name
  // What the bytes depend on besides the input: only a pack with the same one can be resumed.
  std::uint32_t recipe = 0;
  // Continue what an interrupted pack of the name left, if anything, and keep what this one leaves.
  bool resume = false;
};

// A container on its way into a data set: announced, written, checked, published. Nothing of it is
// visible before publish() has returned; the destructor removes what was not published, unless it
// is to be resumed. For one thread.
class PendingContainer : public ByteSink {
 public:
  // The bytes must be those of a sealed container. Makes them safe, checks that no key of it is in
  // the data set already, and adds it in one change. Throws kAlreadyExists (key, name or part),
  // kInvalidArgument (it cannot join), kIo, kUnavailable, kCancelled.
  virtual void publish(const std::stop_token& stop) = 0;
  // What an interrupted pack left of it (PackOptions::resume); null where nothing.
  virtual std::shared_ptr<const ByteSource> interrupted() const = 0;
  // Where it will be found when it is resumed; empty where the destructor removes it.
  virtual std::string kept() const = 0;
  // The file that its bytes are in until then; empty where they are in none.
  virtual std::string unpublished_path() const { return {}; }
};

// Safe for threads; changes of the catalog also between processes.
class Store {
 public:
  // Of a data set; connects to Ceph where it is there, and for a directory looks at nothing yet.
  // Throws kUnsupported, kNotFound (no such pool), kUnavailable, kIo.
  static std::shared_ptr<Store> open(const Location& location, const StoreOptions& options = {});
  virtual ~Store() = default;

  // A container's place as messages show it: "photos/a.sml", "rados://pool/photos/a".
  virtual std::string place(std::string_view container) const = 0;

  // Nothing where the data set has none: a directory of container files, or nothing at all. Throws
  // kCorrupt, kUnsupported, kIo, kUnavailable.
  virtual std::optional<Catalog> catalog() const = 0;
  // Throws kCorrupt (missing, damaged, or another one than in the catalog), kIo, kUnavailable.
  virtual std::shared_ptr<const ContainerReader> open_container(
      const CatalogEntry& entry) const = 0;

  // Finishes, or forgets, a publication that was cut off between two of its steps: in directories.
  // To be called before anything is changed. Throws kIo.
  virtual void settle() = 0;
  // Whether a container can join, as far as that is known before its keys are. Throws as publish()
  // does, and kUnavailable where a container of the name is being packed.
  virtual void check(const NewContainer& container) const = 0;
  // The bytes of a container that may be damaged, or not sealed, as far as they are there: for
  // recovery. Throws kNotFound, kIo, kUnavailable.
  virtual std::shared_ptr<const ByteSource> open_damaged(const std::string& name) const = 0;
  // Begins a container, after such a check.
  virtual std::unique_ptr<PendingContainer> create(const NewContainer& container) = 0;

  // The names of its containers, in byte order; none where there is no data set.
  virtual std::vector<std::string> names() const = 0;
  // The names of containers that lie beside a catalog which does not list them: in directories.
  virtual std::vector<std::string> strays() const = 0;
  // Removes containers from the catalog, then their bytes. Readers that have them open may fail.
  // Throws kNotFound, and nothing is removed, where one is not there.
  virtual void remove(const std::vector<std::string>& names) = 0;
  // What crashed packers left: containers that were begun and whose packer lives no more.
  struct Unsealed {
    std::string name;
    std::string since;        // UTC; empty: unknown
    bool alive = false;       // is still being packed
    std::uint64_t owner = 0;  // in Ceph, of what is announced
    std::string file;         // in directories
  };
  virtual std::vector<Unsealed> unsealed() const = 0;
  // Removes one that was not alive; kUnavailable where it is being packed by now.
  virtual void remove_unsealed(const Unsealed& one) = 0;
  // Removes the catalog of a data set without containers, and in a directory what goes with it; the
  // directory itself where nothing else is in it.
  virtual void remove_dataset() = 0;
};

}  // namespace sml
