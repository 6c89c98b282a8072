#include "pack_plan.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "name_sort.h"
#include "quote.h"
#include "smlformat/checksum.h"
#include "smlformat/key.h"
#include "smlformat/permutation.h"

namespace sml {
namespace {

using Indices = std::pmr::vector<std::uint32_t>;

// Leaves one of the records that share a key. `by_name` is sorted, equal keys by list index.
void drop_duplicates(Indices& by_name, const RecordList& records, const PackOptions& options) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < by_name.size();) {
    std::size_t end = i + 1;
    while (end < by_name.size() && records.key(by_name[end]) == records.key(by_name[i])) ++end;
    if (end - i > 1 && options.on_duplicate == OnDuplicate::kError) {
      throw Error(
          ErrorCode::kAlreadyExists,
          fmt::format("two records have the key {}: {} and {}", quote(records.key(by_name[i])),
                      quote(records.origin(by_name[i])), quote(records.origin(by_name[i + 1]))),
          "--on-duplicate skip keeps the first, replace the last");
    }
    const std::size_t winner = options.on_duplicate == OnDuplicate::kReplace ? end - 1 : i;
    for (std::size_t j = i; j < end; ++j) {
      if (j != winner && options.on_dropped) options.on_dropped(records.origin(by_name[j]));
    }
    by_name[kept++] = by_name[winner];
    i = end;
  }
  by_name.resize(kept);
}

// Where each sample starts in name order.
Indices sample_ranks(const Indices& by_name, const RecordList& records,
                     std::pmr::memory_resource* memory) {
  Indices starts(memory);
  for (std::uint32_t rank = 0; rank < by_name.size(); ++rank) {
    if (rank == 0 ||
        key_stem(records.key(by_name[rank])) != key_stem(records.key(by_name[rank - 1]))) {
      starts.push_back(rank);
    }
  }
  return starts;
}

// Samples in the order in which their first records came; their records as they came.
void order_as_given(PackSequence& sequence, const Indices& starts,
                    std::pmr::memory_resource* memory) {
  const auto& by_name = sequence.by_name;
  struct Sample {
    std::uint32_t first_index, begin, end;
  };
  std::pmr::vector<Sample> samples(memory);
  for (std::size_t s = 0; s < starts.size(); ++s) {
    const std::uint32_t end =
        s + 1 < starts.size() ? starts[s + 1] : static_cast<std::uint32_t>(by_name.size());
    const auto first = std::min_element(by_name.begin() + starts[s], by_name.begin() + end);
    samples.push_back({*first, starts[s], end});
  }
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.first_index < b.first_index; });
  for (const Sample& sample : samples) {
    const std::size_t first = sequence.by_number.size();
    sequence.by_number.insert(sequence.by_number.end(), by_name.begin() + sample.begin,
                              by_name.begin() + sample.end);
    std::sort(sequence.by_number.begin() + static_cast<std::ptrdiff_t>(first),
              sequence.by_number.end());
    sequence.sample_starts[first] = true;
  }
}

void order_grouped(PackSequence& sequence, const RecordList& records, const PackOptions& options,
                   std::pmr::memory_resource* memory) {
  const auto& by_name = sequence.by_name;
  const Indices starts = sample_ranks(by_name, records, memory);
  sequence.samples = starts.size();
  sequence.sample_starts.assign(by_name.size(), false);
  if (options.order == PackOrder::kInput) return order_as_given(sequence, starts, memory);

  const Permutation permutation(starts.size(), {PermutationUse::kPack, options.seed, 0, 0});
  for (std::uint64_t position = 0; position < starts.size(); ++position) {
    const std::uint64_t sample =
        options.order == PackOrder::kRandom ? permutation.invert(position) : position;
    const std::size_t end = sample + 1 < starts.size() ? starts[sample + 1] : by_name.size();
    sequence.sample_starts[sequence.by_number.size()] = true;
    for (std::size_t rank = starts[sample]; rank < end; ++rank)
      sequence.by_number.push_back(by_name[rank]);
  }
}

void order_ungrouped(PackSequence& sequence, const PackOptions& options) {
  const auto& by_name = sequence.by_name;
  sequence.samples = by_name.size();
  switch (options.order) {
    case PackOrder::kName:
      sequence.by_number.assign(by_name.begin(), by_name.end());
      break;
    case PackOrder::kInput:
      sequence.by_number.assign(by_name.begin(), by_name.end());
      std::sort(sequence.by_number.begin(), sequence.by_number.end());
      break;
    case PackOrder::kRandom: {
      sequence.by_number.resize(by_name.size());
      const Permutation permutation(by_name.size(), {PermutationUse::kPack, options.seed, 0, 0});
      std::vector<std::uint64_t> numbers(1024);
      for (std::uint64_t rank = 0; rank < by_name.size(); rank += numbers.size()) {
        numbers.resize(std::min<std::uint64_t>(numbers.size(), by_name.size() - rank));
        permutation.apply(rank, numbers);
        for (std::size_t i = 0; i < numbers.size(); ++i)
          sequence.by_number[numbers[i]] = by_name[rank + i];
      }
      break;
    }
  }
}

}  // namespace

bool in_part(std::string_view key, std::uint32_t part, std::uint32_t parts) noexcept {
  return parts == 0 || xxh3_64(as_bytes(key_stem(key))) % parts == part - 1;
}

PackSequence plan_sequence(const RecordList& records, const PackOptions& options,
                           const std::vector<bool>& excluded, std::pmr::memory_resource* memory) {
  if (records.size() > kMaxRecords) {
    throw Error(ErrorCode::kLimit,
                fmt::format("{} records are more than a container holds", records.size()),
                "pack into several containers with --part");
  }
  PackSequence sequence(memory);
  sequence.by_name.reserve(records.size());
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    if ((excluded.empty() || !excluded[i]) &&
        in_part(records.key(i), options.part, options.parts)) {
      sequence.by_name.push_back(i);
    }
  }
  sort_by_name(sequence.by_name, [&records](std::uint32_t i) { return records.key(i); });
  drop_duplicates(sequence.by_name, records, options);
  sequence.by_number.reserve(sequence.by_name.size());
  if (options.grouping == Grouping::kStem) {
    order_grouped(sequence, records, options, memory);
  } else {
    order_ungrouped(sequence, options);
  }
  return sequence;
}

PlannedNames::PlannedNames(const RecordList& records, const PackSequence& sequence, PackOrder order)
    : records_(records), sequence_(sequence), numbers_(sequence.by_name.get_allocator()) {
  if (order != PackOrder::kInput) return;
  numbers_.resize(records.size());
  for (std::uint32_t number = 0; number < sequence.by_number.size(); ++number) {
    numbers_[sequence.by_number[number]] = number;
  }
}

PackPlan plan_pack(const RecordList& records, const PackOptions& options) {
  const PackSequence sequence =
      plan_sequence(records, options, {}, std::pmr::get_default_resource());
  PackPlan plan;
  plan.records = sequence.by_number.size();
  plan.samples = sequence.samples;
  for (const std::uint32_t i : sequence.by_number) plan.bytes += records.bytes(i);
  return plan;
}

}  // namespace sml
