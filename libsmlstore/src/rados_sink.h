// A container that is written to Ceph.
#pragma once

#include <cstdint>
#include <string>

#include "rados_place.h"
#include "smlformat/bytes.h"
#include "smlstore/catalog.h"

namespace sml {

// For one thread.
class RadosSink final : public ByteSink {
 public:
  // `resumed`: objects may be there already. Those with the bytes that are appended are kept,
  // others are replaced, as long as the watch is not lost: then they may be those of another that
  // has taken over. The watch must outlive the sink.
  RadosSink(RadosPlace place, std::uint64_t incarnation, const ObjectWatch& watch, bool resumed);

  void append(ByteView bytes) override;
  void append_block(ByteView bytes, std::uint32_t crc32c) override;
  void begin_footer() override;
  void restart() override;
  // Everything is written when it returns: the place of a sealed container, without name. Throws
  // kInvalidArgument where what was appended does not end as a container does.
  CatalogEntry finish();
  // Whether a write was given up that may be made all the same. Waits for what is under way.
  bool unanswered();

 private:
  void put(ByteView bytes, std::uint32_t crc);
  void put_again(const std::string& name, ByteView bytes, std::uint32_t crc);
  void create(const std::string& name, ByteView bytes, std::uint32_t crc);
  void settle();
  void forget();
  void check() const;

  RadosPlace place_;
  std::uint64_t incarnation_;
  const ObjectWatch& watch_;
  bool resumed_;
  std::uint64_t objects_ = 0;
  CatalogEntry entry_;
  bool in_footer_ = false;
  Buffer footer_;  // of the object under way
  Bytes tail_;     // the last bytes of the footer, as many as a tail has
  Operations writes_{kMaxWrites};
};

}  // namespace sml
