#include "joining.h"

#include <ctime>
#include <random>

#include "smlstore/dataset.h"

namespace sml {
namespace {

bool are_disjoint_parts(const Membership& a, const Membership& b) noexcept {
  return a.parts != 0 && a.parts == b.parts && a.part != b.part;
}

}  // namespace

void KeyCheck::run(const Catalog& catalog) {
  const Header& header = added_.header();
  const Membership own{header.grouping, header.part, header.parts};
  for (const CatalogEntry& entry : catalog.containers) {
    if (entry.name == name_ || are_disjoint_parts(entry.membership, own)) continue;
    Hash128& checked = checked_[entry.name];
    if (checked == entry.id) continue;
    Dataset::Container container;
    container.name = entry.name;
    container.path = store_.place(entry.name);
    container.reader = store_.open_container(entry);
    check_unique_keys(Dataset::from({std::move(container)}), added_, name_);
    checked = entry.id;
  }
}

std::vector<std::string> names_of(const Catalog& catalog) {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog.containers) names.push_back(entry.name);
  return names;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  text[std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)] = '\0';
  return text;
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace sml
