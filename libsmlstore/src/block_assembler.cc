#include "block_assembler.h"

#include <algorithm>
#include <utility>

namespace sml {

BlockAssembler::BlockAssembler(ContainerWriter& writer, Workers& workers,
                               std::size_t blocks_in_flight, std::function<void()> appended)
    : writer_(writer),
      blocks_(workers),
      blocks_in_flight_(std::max<std::size_t>(1, blocks_in_flight)),
      appended_(std::move(appended)),
      cutter_(writer.header().block_bytes, writer.header().align) {}

void BlockAssembler::add_dictionary(Bytes dictionary) {
  const Header& header = writer_.header();
  blocks_.submit([&header, number = next_block_++, dictionary = std::move(dictionary)] {
    return build_dictionary_block(header, number, dictionary);
  });
}

void BlockAssembler::add(const EncodedRecord& record, std::shared_ptr<const void> owner,
                         bool starts_sample) {
  if (starts_sample) end_sample();
  sample_.push_back({record, std::move(owner)});
  sample_cost_ += record.cost(writer_.header().align);
  if (large_sample_ || sample_cost_ > writer_.header().block_bytes) {
    // It fits no block any more, so nothing is gained by waiting for its end.
    place(false);
    large_sample_ = true;
  }
}

void BlockAssembler::end_sample() {
  place(false);
  sample_cost_ = 0;
  large_sample_ = false;
}

void BlockAssembler::place(bool pieces_follow) {
  std::vector<std::uint64_t> costs;
  costs.reserve(sample_.size() + 1);
  for (const Held& held : sample_) costs.push_back(held.record.cost(writer_.header().align));
  if (pieces_follow) costs.push_back(BlockCutter::kOwnBlocks);
  std::vector<bool> starts_block;
  cutter_.place(costs, starts_block);
  for (std::size_t i = 0; i < sample_.size(); ++i) {
    if (starts_block[i]) cut();
    block_.push_back(std::move(sample_[i]));
  }
  sample_.clear();
}

void BlockAssembler::cut() {
  if (block_.empty()) return;
  make_room();
  const Header& header = writer_.header();
  const std::uint64_t first_record = placed_records_;
  placed_records_ += block_.size();
  blocks_.submit([&header, number = next_block_++, first_record, held = std::exchange(block_, {})] {
    std::vector<EncodedRecord> records;
    records.reserve(held.size());
    for (const Held& h : held) records.push_back(h.record);
    return build_block(header, number, first_record, records);
  });
}

void BlockAssembler::add_in_pieces(std::uint64_t record_bytes, const PieceFunction& piece,
                                   bool in_order, bool starts_sample) {
  if (starts_sample) end_sample();
  place(true);
  large_sample_ = true;
  cut();
  const Header& header = writer_.header();
  const std::uint64_t pieces = (record_bytes + header.piece_bytes - 1) / header.piece_bytes;
  for (std::uint32_t k = 0; k < pieces; ++k) {
    make_room();
    const std::uint64_t records_before = placed_records_ + (k == 0 ? 0 : 1);
    const auto build = [&header, number = next_block_++, records_before, record_bytes,
                        k](const Piece& p) {
      return build_piece(header, number, records_before, p.record, record_bytes, k);
    };
    if (in_order) {
      blocks_.submit([build, ready = piece(k)] { return build(ready); });
    } else {
      blocks_.submit([build, piece, k] { return build(piece(k)); });
    }
  }
  ++placed_records_;
}

void BlockAssembler::make_room() {
  while (blocks_.size() >= blocks_in_flight_) append_oldest();
}

void BlockAssembler::append_oldest() {
  writer_.append(blocks_.take());
  if (appended_) appended_();
}

void BlockAssembler::finish() {
  end_sample();
  cut();
  while (!blocks_.empty()) append_oldest();
}

}  // namespace sml
