#include "key_check.h"

#include <utility>

#include "smlstore/dataset.h"

namespace sml {

void KeyCheck::run(const Catalog& catalog) {
  const Membership own = Membership::of(added_.header());
  for (const CatalogEntry& entry : catalog.containers) {
    if (entry.name == name_ || own.is_another_part(entry.membership)) continue;
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

}  // namespace sml
