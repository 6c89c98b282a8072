#include "smlstore/order.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "smlformat/error.h"
#include "smlformat/permutation.h"

namespace sml {

// In block mode the order is a sequence of blocks, "the concatenation", cut into lanes. A block's
// samples are neighbours in the data set, and its selected samples are neighbours in the selection,
// so a block is known by where its samples start there.
struct Order::State {
  OrderOptions options;
  std::shared_ptr<const Selection> selection;
  std::uint64_t samples = 0;
  Permutation epoch{0, {}};   // full mode
  Permutation blocks{0, {}};  // block mode: place in the concatenation -> index in block_first
  std::vector<std::uint64_t>
      block_first;  // first sample, or first index in the selection; one more than there are blocks
  std::vector<std::uint64_t>
      block_number;  // in the numbering of all blocks; empty without a selection: the index itself
  std::vector<std::uint64_t>
      starts;  // of the blocks in the concatenation; one more than there are blocks

  State(const OrderOptions& o, std::shared_ptr<const Selection> s)
      : options(o), selection(std::move(s)) {
    if (options.lanes == 0)
      throw Error(ErrorCode::kInvalidArgument, "an order needs at least one lane");
  }

  // After block_first holds all blocks of the data set (block mode), of which `total` samples are
  // known.
  void finish(std::uint64_t total) {
    samples = selection ? selection->samples.size() : total;
    assert(!selection || std::is_sorted(selection->samples.begin(), selection->samples.end()));
    if (selection && samples != 0 && selection->samples.back() >= total) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("sample {} is selected, but there are {}", selection->samples.back(), total));
    }
    if (options.mode == OrderMode::kFull) {
      epoch = Permutation(samples, {PermutationUse::kEpoch, options.seed, options.epoch, 0});
      return;
    }
    if (selection) select_blocks();
    const std::uint64_t count = block_first.size() - 1;
    blocks = Permutation(count, {PermutationUse::kBlocks, options.seed, options.epoch, 0});
    starts.resize(count + 1);
    blocks.apply(0, std::span(starts).first(count));
    std::uint64_t start = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t block = starts[i];
      starts[i] = start;
      start += block_first[block + 1] - block_first[block];
    }
    starts[count] = start;
  }

  // Leaves the blocks that hold selected samples, with ranges of the selection.
  void select_blocks() {
    const std::vector<std::uint64_t>& selected = selection->samples;
    std::vector<std::uint64_t> all = std::move(block_first);
    block_first.clear();
    std::uint64_t block = 0;
    for (std::uint64_t i = 0; i < selected.size();) {
      const auto next = std::upper_bound(all.begin() + static_cast<std::ptrdiff_t>(block),
                                         all.end(), selected[i]);
      block = static_cast<std::uint64_t>(next - all.begin()) - 1;
      block_number.push_back(block);
      block_first.push_back(i);
      while (i < selected.size() && selected[i] < all[block + 1]) ++i;
    }
    block_first.push_back(selected.size());
  }
};

// Walks the order from a position with a stride, keeping one cursor per lane that it touches: a run
// costs no search.
class Order::Walk {
 public:
  Walk(const State& state, std::uint64_t first, std::uint64_t stride)
      : state_(state), position_(first), stride_(stride) {
    const std::uint64_t lanes = state.options.lanes;
    const std::uint64_t common = std::gcd(lanes, stride);
    touched_ = lanes / common;
    step_ = stride / common;
    rows_ = std::clamp<std::uint64_t>(kTile / touched_, 16, kRun);
    quotient_ = state.samples / lanes;
    remainder_ = state.samples % lanes;
  }

  void next(std::span<std::uint64_t> out) {
    if (state_.options.mode == OrderMode::kFull) {
      next_full(out);
    } else if (touched_ > kMaxKept) {
      next_scattered(out);
    } else {
      while (!out.empty()) {
        const std::size_t tile = std::min<std::size_t>(out.size(), touched_ * rows_);
        next_tile(out.first(tile));
        out = out.subspan(tile);
      }
    }
  }

 private:
  static constexpr std::uint64_t kTile =
      4096;  // positions for which every lane is asked in turn: 32 KiB of results
  static constexpr std::size_t kRun = 256;          // samples that are asked of a block at once
  static constexpr std::uint64_t kMaxKept = 65536;  // lanes for which cursors are kept: 16 MiB

  struct Lane {
    std::uint64_t at;         // in the concatenation
    std::uint64_t place = 0;  // of the block in the concatenation
    std::uint64_t begin = 0;  // the block is [begin, end) of the concatenation
    std::uint64_t end = 0;
    std::uint64_t first = 0;  // the block's entry in block_first
    Permutation inner{0, {}};

    explicit Lane(std::uint64_t start) : at(start) {}
  };

  std::uint64_t place_of(std::uint64_t position) const noexcept {
    const std::uint64_t lane = position % state_.options.lanes;
    return lane * quotient_ + std::min(lane, remainder_) + position / state_.options.lanes;
  }

  void map_selected(std::span<std::uint64_t> out) const noexcept {
    if (!state_.selection) return;
    const std::uint64_t* samples = state_.selection->samples.data();
    for (std::uint64_t& sample : out) sample = samples[sample];
  }

  void next_full(std::span<std::uint64_t> out) {
    if (stride_ == 1) {
      state_.epoch.apply(position_, out);
    } else {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = state_.epoch.apply(position_ + i * stride_);
    }
    map_selected(out);
    position_ += out.size() * stride_;
  }

  void next_scattered(std::span<std::uint64_t> out) {
    for (std::uint64_t& sample : out) {
      Lane lane(place_of(position_));
      run(lane, &sample, 1, 1);
      position_ += stride_;
    }
    map_selected(out);
  }

  void next_tile(std::span<std::uint64_t> out) {
    const std::size_t lanes = std::min<std::size_t>(touched_, out.size());
    for (std::size_t i = 0; i < lanes; ++i) {
      std::uint64_t lane = turn_ + i;
      if (lane >= touched_) lane -= touched_;
      if (lane == lanes_.size()) lanes_.emplace_back(place_of(position_ + i * stride_));
      run(lanes_[lane], out.data() + i, touched_, (out.size() - i - 1) / touched_ + 1);
    }
    turn_ = (turn_ + out.size()) % touched_;
    position_ += out.size() * stride_;
    map_selected(out);
  }

  // The next `count` results of a lane, to out[0], out[pitch], ...
  void run(Lane& lane, std::uint64_t* out, std::size_t pitch, std::size_t count) const {
    while (count != 0) {
      if (lane.at >= lane.end) open(lane);
      const std::size_t in_block = (lane.end - lane.at - 1) / step_ + 1;
      const std::size_t taken = std::min({in_block, count, kRun});
      const std::uint64_t offset = lane.at - lane.begin;
      if (step_ == 1) {
        std::uint64_t values[kRun];
        lane.inner.apply(offset, std::span(values, taken));
        for (std::size_t i = 0; i < taken; ++i) out[i * pitch] = lane.first + values[i];
      } else {
        for (std::size_t i = 0; i < taken; ++i) {
          out[i * pitch] = lane.first + lane.inner.apply(offset + i * step_);
        }
      }
      out += taken * pitch;
      lane.at += taken * step_;
      count -= taken;
    }
  }

  // Opens the block that holds lane.at, which lies behind the block that is open.
  void open(Lane& lane) const {
    const std::vector<std::uint64_t>& starts = state_.starts;
    assert(lane.at < state_.samples);
    if (lane.end != 0 && lane.at < starts[lane.place + 2]) {
      ++lane.place;
    } else {
      const auto next = std::upper_bound(starts.begin(), starts.end(), lane.at);
      lane.place = static_cast<std::uint64_t>(next - starts.begin()) - 1;
    }
    lane.begin = starts[lane.place];
    lane.end = starts[lane.place + 1];
    const std::uint64_t block = state_.blocks.apply(lane.place);
    lane.first = state_.block_first[block];
    const std::uint64_t number = state_.block_number.empty() ? block : state_.block_number[block];
    lane.inner = Permutation(lane.end - lane.begin, {PermutationUse::kBlock, state_.options.seed,
                                                     state_.options.epoch, number});
  }

  const State& state_;
  std::uint64_t position_;
  std::uint64_t stride_;
  std::uint64_t touched_ = 1;  // lanes, taking turns
  std::uint64_t step_ = 1;     // within a lane from one turn to the next
  std::uint64_t rows_ = 1;     // turns per tile
  std::uint64_t quotient_ = 0;
  std::uint64_t remainder_ = 0;
  std::uint64_t turn_ = 0;
  std::vector<Lane> lanes_;  // in the order in which they were first touched
};

Order::Order(const Dataset& dataset, const OrderOptions& options,
             std::shared_ptr<const Selection> selection) {
  auto state = std::make_unique<State>(options, std::move(selection));
  if (options.mode == OrderMode::kBlock) {
    for (const Dataset::Container& container : dataset.containers()) {
      const Index& index = container.reader->index();
      std::uint64_t seen = 0;
      for (std::uint64_t block = 0; block < index.blocks(); ++block) {
        const NumberRange samples = index.block_samples(block);
        if (samples.first >= samples.last) continue;
        if (samples.first != seen) {
          throw Error(ErrorCode::kCorrupt, "the samples of the blocks do not add up")
              .within(container.path);
        }
        state->block_first.push_back(container.first_sample + seen);
        seen = samples.last;
      }
      if (seen != index.samples()) {
        throw Error(ErrorCode::kCorrupt, "the samples of the blocks do not add up")
            .within(container.path);
      }
    }
    state->block_first.push_back(dataset.samples());
  }
  state->finish(dataset.samples());
  state_ = std::move(state);
}

Order::Order(std::span<const std::uint64_t> block_samples, const OrderOptions& options,
             std::shared_ptr<const Selection> selection) {
  auto state = std::make_unique<State>(options, std::move(selection));
  std::uint64_t total = 0;
  for (const std::uint64_t samples : block_samples) {
    assert(samples != 0);
    state->block_first.push_back(total);
    total += samples;
  }
  state->block_first.push_back(total);
  state->finish(total);
  state_ = std::move(state);
}

Order::~Order() = default;
Order::Order(Order&&) noexcept = default;

std::uint64_t Order::samples() const noexcept { return state_->samples; }

void Order::at(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const {
  if (!out.empty()) Walk(*state_, first, stride).next(out);
}

struct Order::Cursor::State {
  const Order::State& order;
  std::uint64_t position;  // below the number of samples, as long as anything remains
  std::uint64_t stride;
  std::uint64_t remaining;
  std::optional<Walk> walk;

  State(const Order::State& o, const Share& share)
      : order(o),
        position(o.samples == 0 ? 0 : share.first % o.samples),
        stride(share.world),
        remaining(o.samples == 0 ? 0 : share.size()) {}
};

Order::Cursor::Cursor(const Order& order, const Share& share)
    : state_(std::make_unique<State>(*order.state_, share)) {}
Order::Cursor::~Cursor() = default;
Order::Cursor::Cursor(Cursor&&) noexcept = default;

std::size_t Order::Cursor::next(std::span<std::uint64_t> out) {
  State& s = *state_;
  const std::uint64_t n = s.order.samples;
  std::size_t done = 0;
  while (done < out.size() && s.remaining != 0) {
    if (!s.walk) s.walk.emplace(s.order, s.position, s.stride);
    const std::uint64_t to_end = (n - s.position - 1) / s.stride + 1;
    const std::size_t count = std::min({out.size() - done, s.remaining, to_end});
    s.walk->next(out.subspan(done, count));
    done += count;
    s.remaining -= count;
    if (count == to_end) {
      // Past the end the order goes on from its start, where the lanes fall differently.
      s.position += (count - 1) * s.stride;
      s.position = (s.position + s.stride % n) % n;
      s.walk.reset();
    } else {
      s.position += count * s.stride;
    }
  }
  return done;
}

}  // namespace sml
