// What SML asks of an object store: flat, named objects of one data set. Behind it is librados, in
// a module of its own that is loaded when the first rados:// location is opened, so that the
// library runs where Ceph is not installed.
//
// The interface knows no exceptions: results are 0 or a negative errno, as librados gives them, and
// whoever calls gives them a meaning (-ETIMEDOUT: no answer; a change may be made all the same).
// Functions with a callback return at once and call it exactly once, from a thread of the client,
// which must not be held up, and in which no Objects or ObjectWatch may end (what cannot even be
// begun is told before they return). Callbacks must not throw. All functions are safe for threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "smlformat/bytes.h"

namespace sml {

struct ObjectsOptions {
  std::string pool;
  std::string name_space;
  std::string conf;       // file; empty: CEPH_CONF, else librados' defaults
  std::string user;       // "NAME" or "client.NAME"; empty: CEPH_ARGS, else client.admin
  double timeout_s = 30;  // of every operation, and of connecting; rounded up to seconds
};

// Held while a job lives: others can ask for it (Objects::is_watched). It keeps the connection, so
// it may outlive the Objects that gave it. Ending it waits for the store.
class ObjectWatch {
 public:
  virtual ~ObjectWatch() = default;
  // Whether the store may have given it up: a client that was cut off too long.
  virtual bool lost() const noexcept = 0;
};

class Objects {
 public:
  using Done = std::function<void(int result)>;
  using StatDone =
      std::function<void(int result, std::uint64_t bytes, std::optional<std::uint32_t>)>;
  using ChecksumDone = std::function<void(int result, std::uint32_t crc32c)>;

  // Waits for what is under way.
  virtual ~Objects() = default;

  // Creates an object that must not exist (-EEXIST): hint of its size and that it will not change,
  // bytes, and their CRC32C as an attribute. The bytes are taken over before the call returns.
  // -ENOSPC, -EDQUOT: the pool is full, told at once instead of waiting for room.
  virtual void create(const std::string& name, ByteView bytes, std::uint32_t crc32c, Done done) = 0;
  // Fills ranges (ReadRange::offset counts from the object's start) in one operation, straight into
  // their memory. -ENOENT; -ENODATA where the object ends before a range does; -E2BIG for more than
  // 4096 ranges.
  virtual void read(const std::string& name, std::span<const ReadRange> ranges, Done done) = 0;
  // Size, and the checksum that create() gave it, if any. -ENOENT.
  virtual void stat(const std::string& name, StatDone done) = 0;
  // CRC32C of an object of `bytes` bytes, computed where it is stored. -ENOENT; -ENODATA where it
  // has another size.
  virtual void checksum(const std::string& name, std::uint64_t bytes, ChecksumDone done) = 0;
  virtual void remove(const std::string& name, Done done) = 0;  // -ENOENT

  // A small object that changes as a whole, with a version that is another one after each change.
  struct Versioned {
    Bytes bytes;
    std::string version;
  };
  virtual int get(const std::string& name, Versioned& out) = 0;  // -ENOENT
  // Replaces it where its version is `expected` (empty: where it is there and has none); nothing:
  // where it does not exist. -ECANCELED where it was changed meanwhile. A change that timed out and
  // was made all the same counts as made.
  virtual int put(const std::string& name, ByteView bytes,
                  const std::optional<std::string>& expected) = 0;
  // Removes it where its version is `expected`. -ECANCELED, -ENOENT.
  virtual int remove_version(const std::string& name, const std::string& expected) = 0;

  // Watches an object, which is created empty where it does not exist.
  virtual int watch(const std::string& name, std::unique_ptr<ObjectWatch>& out) = 0;
  // Whether some client watches it, in this process or another. A client that died counts for as
  // long as the store waits for it (10 s), and the answer then takes 3 s. -ENOENT.
  virtual int is_watched(const std::string& name, bool& out) = 0;

  // Names of the data set's objects: for recovery only, since it goes through the whole pool.
  virtual int list(const std::function<void(const std::string& name)>& found) = 0;
};

// Connects. Throws kUnsupported (a build without Ceph, or librados is not installed: says what to
// install), kNotFound (no such pool), kUnavailable (no answer in time), kIo (permission, settings).
std::unique_ptr<Objects> open_objects(const ObjectsOptions& options);

}  // namespace sml
