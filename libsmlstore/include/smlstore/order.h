// The order of an epoch: a pure function of (data set, seed, epoch, mode, lanes) and a selection;
// the share of it that a rank reads; and where it was left. See format-spec/order.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smlstore/dataset.h"

namespace sml {

enum class OrderMode : std::uint8_t { kBlock, kFull };
enum class Even : std::uint8_t { kNone, kDrop, kWrap };

inline constexpr std::uint32_t kDefaultLanes = 64;

struct OrderOptions {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  OrderMode mode = OrderMode::kBlock;
  std::uint32_t lanes = kDefaultLanes;  // block mode; at least 1
};

// A subset of the samples of a data set.
struct Selection {
  std::vector<std::uint64_t> samples;  // ascending
  Hash128 digest;                      // XXH3-128 of the selected record numbers, ascending, as u64
};

// Which positions of the global order one rank reads.
struct ShareOptions {
  std::uint64_t rank = 0;
  std::uint64_t world = 1;
  std::uint64_t batch = 0;  // per rank; 0: none
  Even even = Even::kNone;
  std::uint64_t start = 0;             // position of the global order
  std::optional<std::uint64_t> count;  // positions of the global order after start
};

// The positions [first, end) of the global order that are `rank` modulo `world`, with `end` cut or
// extended as `even` says; position p >= samples stands for p mod samples.
struct Share {
  std::uint64_t start = 0;
  std::uint64_t end = 0;  // in global positions
  std::uint64_t dropped =
      0;  // samples that Even::kDrop leaves out at the end (of the range, where a count cuts it)
  std::uint64_t wrapped = 0;  // positions of the range that Even::kWrap added
  std::uint64_t next_start =
      0;  // where the epoch continues after this range: `end`, but at most the number of samples
  std::uint64_t first =
      0;  // this rank's first position: the smallest p >= start with p mod world == rank
  std::uint64_t world = 1;

  // Positions of this rank.
  std::uint64_t size() const noexcept { return first < end ? (end - first - 1) / world + 1 : 0; }
};

// Throws kInvalidArgument: world 0, rank >= world, start > samples, wrap of an empty order, wrap
// past 2^64 positions. A product of world and batch above 2^64 is more than any order has.
Share share_of(std::uint64_t samples, const ShareOptions& options);

// The sample at every position. Block mode takes 16 bytes per block (24 with a selection) and the
// constructor a pass over the blocks; full mode takes no memory. Immutable; safe for threads.
class Order {
 public:
  // selection: null for all samples. The data set is not needed afterwards. Throws kInvalidArgument
  // for 0 lanes and for a selected sample that does not exist, kCorrupt where an index gives blocks
  // whose samples do not add up.
  Order(const Dataset& dataset, const OrderOptions& options,
        std::shared_ptr<const Selection> selection = nullptr);
  // The same from all that an order needs to know of a data set: how many samples start in each
  // block in which one starts.
  Order(std::span<const std::uint64_t> block_samples, const OrderOptions& options,
        std::shared_ptr<const Selection> selection = nullptr);
  ~Order();
  Order(Order&&) noexcept;

  // Selected samples: positions of the order.
  std::uint64_t samples() const noexcept;
  // out[i] = the sample at position first + i * stride; stride at least 1. All positions <
  // samples(). Every call seeks once per lane that it touches (some 0.2 us): ask for thousands of
  // positions at a time, or take a Cursor.
  void at(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;

  // Reads the positions of a share one after another; seeks once. For one thread. The order must
  // outlive it.
  class Cursor {
   public:
    Cursor(const Order& order, const Share& share);
    ~Cursor();
    Cursor(Cursor&&) noexcept;
    // The next samples of the share; returns how many: out.size() of them, fewer only at the end,
    // then 0.
    std::size_t next(std::span<std::uint64_t> out);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct State;
  class Walk;
  std::unique_ptr<const State> state_;
};

// Where an epoch was left: one JSON line (format-spec/order.md), to continue with any world size.
struct OrderState {
  std::uint64_t revision = 0;
  Hash128 containers;
  std::uint32_t algorithm = 1;
  OrderOptions order;
  Even even = Even::kNone;
  std::optional<Hash128> selection;
  std::uint64_t position = 0;

  // One line, without its end.
  std::string to_json() const;
  // Throws kInvalidArgument, naming the field that is missing, unknown, twice there, of a wrong
  // type or out of range; kUnsupported for another version of the state.
  static OrderState parse(std::string_view json);
  // *this is the state to continue, `current` what it would be continued with. Throws
  // kInvalidArgument, naming the first field in which they differ; positions are not compared, nor
  // lanes in full mode.
  void check_same(const OrderState& current) const;
};

OrderState make_state(const Dataset& dataset, const OrderOptions& order, Even even,
                      const Selection* selection, std::uint64_t position);

}  // namespace sml
