// Lays out again what is intact of a damaged container.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "block_assembler.h"
#include "damaged_container.h"
#include "recover_progress.h"
#include "seen_keys.h"

namespace sml {

// For one thread, and one run().
class Salvage {
 public:
  Salvage(const DamagedContainer& container, ByteSink& sink, Workers& workers,
          std::pmr::memory_resource* memory, RecoverProgress& progress);

  // The records that are left, in their order, as input order.
  ContainerSummary run();

 private:
  // A record of which all pieces up to now are intact.
  struct Pending {
    std::string key;
    std::uint64_t record_bytes = 0;
    struct Piece {
      std::uint64_t offset;  // of the slot, in the source
      std::uint64_t bytes;
    };
    std::vector<Piece> pieces;
  };

  void account_for_gap(const FoundBlock& block);
  void add_block(const std::shared_ptr<const FoundBlock>& block);
  void add_piece(const FoundBlock& block);
  void drop_pending();
  void give_pending();
  bool accept(std::string_view key, bool& starts_sample);

  const DamagedContainer& container_;
  RecoverProgress& progress_;
  ContainerWriter writer_;
  const Header& header_;  // of the new container
  BlockAssembler assembler_;
  SeenKeys keys_;
  SeenKeys stems_;
  std::vector<bool> sample_starts_;
  std::string open_stem_;
  bool sample_open_ = false;
  std::optional<Pending> pending_;
  std::optional<std::uint64_t>
      lost_pieces_of_;  // number of the record whose pieces are passed over
};

}  // namespace sml
