// A container in a store from which some of it is gone, for recovery.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "far_source.h"
#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"

namespace sml {

// Objects that are missing, cut or unreadable have zeros in place of their bytes.
class MissingAsZeros final : public ByteSource {
 public:
  // `source` is that of the reader, whose index tells where the objects are.
  MissingAsZeros(std::shared_ptr<const ContainerReader> reader, const FarSource& source)
      : reader_(std::move(reader)), source_(source) {}

  std::uint64_t size() const override { return source_.size(); }
  void read(std::uint64_t offset, MutableBytes out) const override;
  // Why the object that holds a byte cannot be read; empty where it can.
  std::string why_missing(std::uint64_t offset) const;

 private:
  std::shared_ptr<const ContainerReader> reader_;
  const FarSource& source_;
};

}  // namespace sml
