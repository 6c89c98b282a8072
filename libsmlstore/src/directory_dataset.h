// A data set in a directory: its container files, and its catalog in a hidden one.
#pragma once

#include <memory>
#include <string>

#include "smlstore/store.h"

namespace sml {

class DirectoryDataset final : public Store, public std::enable_shared_from_this<DirectoryDataset> {
 public:
  DirectoryDataset(std::string directory, StoreOptions options);

  std::string place(std::string_view container) const override;
  std::optional<Catalog> catalog() const override;
  std::shared_ptr<const ContainerReader> open_container(const CatalogEntry& entry) const override;
  std::shared_ptr<const ByteSource> open_damaged(const std::string& name) const override;
  void settle() override;
  void check(const NewContainer& container) const override;
  // Makes the directory where there is none.
  std::unique_ptr<PendingContainer> create(const NewContainer& container) override;
  std::vector<std::string> names() const override;
  std::vector<std::string> strays() const override;
  void remove(const std::vector<std::string>& names) override;
  std::vector<Unsealed> unsealed() const override;
  void remove_unsealed(const Unsealed& one) override;
  void remove_dataset() override;

  // The catalog; where there is none, one of the container files that are there, at revision 0.
  // Throws kInvalidArgument where a file has a name that cannot stand in a catalog.
  Catalog catalog_or_files() const;
  // Ends a publication that was cut off between its container and its catalog: the new catalog is
  // put in place if the container is, else it is removed. The caller holds the directory's lock.
  void finish_publication() const;
  std::shared_ptr<const ContainerReader> open_file(const std::string& path) const;
  // Writes the catalog anew. `commit` is called when nothing but a rename is left to be done. The
  // caller holds the directory's lock.
  void write(const Catalog& catalog, const std::function<void()>& commit) const;
  const std::string& directory() const noexcept { return directory_; }  // ends with a slash

 private:
  std::string catalog_path() const;
  std::string next_catalog_path() const;  // while it is written
  static Catalog read_catalog(const std::string& path);

  std::string directory_;
  StoreOptions options_;
};

}  // namespace sml
