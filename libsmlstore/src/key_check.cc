#include "key_check.h"

#include <utility>

#include "smlstore/dataset.h"

namespace sml {

std::shared_ptr<const ContainerReader> ComparedContainers::open(const Store& store,
                                                                const CatalogEntry& entry) {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(entry.id);
  if (found != opened_.end()) return found->second;
  std::shared_ptr<const ContainerReader> reader = store.open_container(entry);
  const std::uint64_t bytes = reader->tail().footer_bytes;
  if (bytes > kMostBytes / 4) return reader;
  if (bytes_ + bytes > kMostBytes) {
    opened_.clear();
    bytes_ = 0;
  }
  bytes_ += bytes;
  opened_.emplace(entry.id, reader);
  return reader;
}

void KeyCheck::run(const Catalog& catalog) {
  const Membership own = Membership::of(added_.header());
  for (const CatalogEntry& entry : catalog.containers) {
    if (entry.name == name_ || own.is_another_part(entry.membership)) continue;
    Hash128& checked = checked_[entry.name];
    if (checked == entry.id) continue;
    Dataset::Container container;
    container.name = entry.name;
    container.path = store_.place(entry.name);
    container.reader =
        compared_ != nullptr ? compared_->open(store_, entry) : store_.open_container(entry);
    check_unique_keys(Dataset::from({std::move(container)}), added_, name_);
    checked = entry.id;
  }
}

}  // namespace sml
