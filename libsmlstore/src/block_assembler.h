// Takes encoded records in pack order, cuts them into blocks, builds the blocks in parallel and
// appends them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "ordered_tasks.h"
#include "smlformat/block.h"
#include "smlformat/container_writer.h"

namespace sml {

// For one thread. Which block a record comes into depends on the records alone, not on how they are
// handed over.
class BlockAssembler {
 public:
  // `blocks_in_flight`: built or being built, not yet appended. `appended` is called after each
  // block.
  BlockAssembler(ContainerWriter& writer, Workers& workers, std::size_t blocks_in_flight,
                 std::function<void()> appended);

  void add_dictionary(Bytes dictionary);

  // `owner` keeps the record's key and stored bytes alive. starts_sample: the record begins a
  // sample.
  void add(const EncodedRecord& record, std::shared_ptr<const void> owner, bool starts_sample);

  // A record larger than header.piece_bytes. piece(k, out) encodes piece k; it is called from any
  // worker, or from this thread in order where `in_order` is set; its result is kept alive by the
  // shared_ptr.
  struct Piece {
    EncodedRecord record;
    std::shared_ptr<const void> owner;
  };
  using PieceFunction = std::function<Piece(std::uint32_t piece)>;
  void add_in_pieces(std::uint64_t record_bytes, const PieceFunction& piece, bool in_order,
                     bool starts_sample);

  // Everything added is in the container when it returns.
  void finish();

 private:
  struct Held {
    EncodedRecord record;
    std::shared_ptr<const void> owner;
  };
  void end_sample();
  void place(bool pieces_follow);
  void cut();
  void append_oldest();
  void make_room();

  ContainerWriter& writer_;
  OrderedTasks<SealedBlock> blocks_;
  std::size_t blocks_in_flight_;
  std::function<void()> appended_;
  BlockCutter cutter_;
  std::vector<Held> sample_;  // of the sample under way, while it may still fit a block
  std::uint64_t sample_cost_ = 0;
  bool large_sample_ =
      false;  // the sample under way does not fit a block: its records are placed as they come
  std::vector<Held> block_;  // of the block under way
  std::uint64_t next_block_ = 0;
  std::uint64_t placed_records_ = 0;  // in blocks that are cut
};

}  // namespace sml
