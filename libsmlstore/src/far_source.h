// A container whose bytes lie in a store that can tell something of them without giving them.
#pragma once

#include <cstdint>

#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"

namespace sml {

// Safe for threads. The objects, laid end to end, are the container: its header, its blocks, the
// rest in pieces.
class FarSource : public ByteSource {
 public:
  struct Extent {
    std::uint64_t begin = 0;  // in the container
    std::uint64_t end = 0;
  };

  virtual std::uint64_t objects() const = 0;
  virtual Extent object(std::uint64_t number) const = 0;
  // The object that holds a byte of the container.
  virtual std::uint64_t object_at(std::uint64_t offset) const = 0;
  // Throws kCorrupt, kTruncated where the object is missing or has another size.
  virtual void check_presence(std::uint64_t number) const = 0;
  // CRC32C of an object, computed by the store.
  virtual std::uint32_t stored_crc32c(std::uint64_t number) const = 0;
  // As read(), and never from what is kept on this machine.
  virtual void read_stored(std::uint64_t offset, MutableBytes out) const = 0;
};

// The source of a container, where it is such a one; else null.
inline const FarSource* far_source(const ContainerReader& reader) noexcept {
  return dynamic_cast<const FarSource*>(&reader.source());
}

}  // namespace sml
