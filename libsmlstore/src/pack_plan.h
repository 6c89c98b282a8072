// Which records of a list are packed, and in what order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <string>
#include <vector>

#include "smlformat/container_writer.h"
#include "smlstore/packer.h"
#include "smlstore/record_source.h"

namespace sml {

// The order of a list's records: by name and by number. Records are meant by their index in the
// list.
struct PackSequence {
  explicit PackSequence(std::pmr::memory_resource* memory) : by_name(memory), by_number(memory) {}

  std::pmr::vector<std::uint32_t> by_name;    // list index of the record at each rank
  std::pmr::vector<std::uint32_t> by_number;  // list index of the record with each number
  std::vector<bool> sample_starts;            // with grouping: by number
  std::uint64_t samples = 0;
};

// `excluded` (empty, or one flag per record): records to leave out. Throws kAlreadyExists for
// duplicates under OnDuplicate::kError, kLimit for more than kMaxRecords records; otherwise calls
// on_dropped for each duplicate left out.
PackSequence plan_sequence(const RecordList& records, const PackOptions& options,
                           const std::vector<bool>& excluded, std::pmr::memory_resource* memory);

// Whether a key belongs to the part that is packed.
bool in_part(std::string_view key, std::uint32_t part, std::uint32_t parts) noexcept;

// Names of a plan, for the index.
class PlannedNames final : public NameList {
 public:
  PlannedNames(const RecordList& records, const PackSequence& sequence, PackOrder order);
  std::uint64_t size() const override { return sequence_.by_name.size(); }
  std::string_view key(std::uint64_t rank) const override {
    return records_.key(sequence_.by_name[rank]);
  }
  std::uint64_t number(std::uint64_t rank) const override {
    return numbers_[sequence_.by_name[rank]];
  }

 private:
  const RecordList& records_;
  const PackSequence& sequence_;
  std::pmr::vector<std::uint32_t> numbers_;  // by list index; input order only
};

}  // namespace sml
