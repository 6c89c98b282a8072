// A data set in Ceph: a namespace of a pool, with its catalog and the objects of its containers.
#pragma once

#include <memory>

#include "key_check.h"
#include "rados_place.h"
#include "smlstore/store.h"

namespace sml {

class RadosStore final : public Store, public std::enable_shared_from_this<RadosStore> {
 public:
  RadosStore(RadosPlace place, StoreOptions options);

  std::string place(std::string_view container) const override;
  std::optional<Catalog> catalog() const override;
  std::shared_ptr<const ContainerReader> open_container(const CatalogEntry& entry) const override;
  std::shared_ptr<const ByteSource> open_damaged(const std::string& name) const override;
  void settle() override {}
  void check(const NewContainer& container) const override;
  std::unique_ptr<PendingContainer> create(const NewContainer& container) override;
  std::vector<std::string> names() const override;
  std::vector<std::string> strays() const override { return {}; }
  void remove(const std::vector<std::string>& names) override;
  std::vector<Unsealed> unsealed() const override;
  void remove_unsealed(const Unsealed& one) override;
  void remove_dataset() override;

  // Changes the catalog by compare-and-swap: reads it, has it edited, writes it, again from the
  // start where another was faster. What `change` throws ends it.
  void update(const std::function<void(Catalog&)>& change, const std::stop_token& stop = {});
  // The catalog's object as it is; nothing where there is none.
  std::optional<Objects::Versioned> stored_catalog() const;
  // Throws kCorrupt, kUnsupported.
  Catalog decode(const Objects::Versioned& stored) const;
  // Writes the catalog in place of what was seen; false where that was changed meanwhile.
  bool replace(const std::optional<Objects::Versioned>& seen, const Catalog& catalog);
  // As open_container(), where only `id` and sizes are known. header_bytes 0: unknown, and then the
  // reader is for its index only.
  std::shared_ptr<const ContainerReader> open_sealed(const CatalogEntry& entry) const;
  // Lets the index of a container be fetched again, whatever is kept of it on this machine.
  void forget_index(const Hash128& id) const;
  bool is_alive(std::uint64_t incarnation) const;
  // Deletes the objects of what the catalog lists as removed, then drops it from there.
  void delete_removed();
  const RadosPlace& where() const noexcept { return place_; }
  ComparedContainers& compared() noexcept { return compared_; }

 private:
  // One that can be changed: it has a version.
  std::optional<Objects::Versioned> changeable_catalog() const;

  RadosPlace place_;
  StoreOptions options_;
  ComparedContainers compared_;
};

}  // namespace sml
