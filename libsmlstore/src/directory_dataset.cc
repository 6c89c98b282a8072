#include "directory_dataset.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "key_check.h"
#include "posix_file.h"
#include "quote.h"
#include "smlformat/error.h"
#include "smlstore/directory_store.h"

namespace sml {
namespace {

bool exists(const std::string& path) noexcept {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw system_error(path, "cannot remove", errno);
}

class PendingInDirectory final : public PendingContainer {
 public:
  PendingInDirectory(std::shared_ptr<const DirectoryDataset> store, NewContainer container,
                     std::vector<std::string> made)
      : store_(std::move(store)),
        container_(std::move(container)),
        made_(std::move(made)),
        sink_(std::make_unique<FileSink>(store_->place(container_.name), container_.overwrite,
                                         container_.recipe, container_.resume)) {}
  ~PendingInDirectory() override {
    sink_.reset();
    if (published_) return;
    // From the innermost out; one that is in use meanwhile stays, and so do those around it.
    for (auto directory = made_.rbegin(); directory != made_.rend(); ++directory) {
      if (!remove_unused_directory(*directory)) return;
    }
  }
  PendingInDirectory(const PendingInDirectory&) = delete;
  PendingInDirectory& operator=(const PendingInDirectory&) = delete;

  void append(ByteView bytes) override { sink_->append(bytes); }
  void begin_footer() override { sink_->begin_footer(); }
  void restart() override { sink_->restart(); }
  std::shared_ptr<const ByteSource> interrupted() const override { return sink_->interrupted(); }
  std::string kept() const override { return sink_->keeps() ? sink_->unpublished_path() : ""; }
  std::string unpublished_path() const override { return sink_->unpublished_path(); }

  void publish(const std::stop_token& stop) override {
    const auto added = store_->open_file(sink_->unpublished_path());
    KeyCheck keys(*store_, container_.name, *added);
    const DirectoryLock lock(store_->directory(), stop);
    store_->finish_publication();
    Catalog catalog = store_->catalog_or_files();
    if (catalog.find(container_.name) != nullptr && !container_.overwrite) {
      throw Error(ErrorCode::kAlreadyExists, store_->place(container_.name) + ": exists already",
                  "--overwrite replaces it");
    }
    catalog.check_membership(container_.membership, container_.name);
    keys.run(catalog);
    catalog.add(CatalogEntry::of(container_.name, *added));
    store_->write(catalog, [&] { sink_->publish(); });
    published_ = true;
  }

 private:
  std::shared_ptr<const DirectoryDataset> store_;
  NewContainer container_;
  std::vector<std::string> made_;  // directories
  std::unique_ptr<FileSink> sink_;
  bool published_ = false;
};

}  // namespace

DirectoryDataset::DirectoryDataset(std::string directory, StoreOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {
  if (!directory_.ends_with('/')) directory_ += '/';
}

std::string DirectoryDataset::place(std::string_view container) const {
  return directory_ + std::string(container) + std::string(kContainerSuffix);
}

std::string DirectoryDataset::catalog_path() const {
  return directory_ + std::string(kCatalogName);
}
std::string DirectoryDataset::next_catalog_path() const { return catalog_path() + ".new"; }

std::optional<Catalog> DirectoryDataset::catalog() const {
  if (!exists(catalog_path())) return std::nullopt;
  return read_catalog(catalog_path());
}

Catalog DirectoryDataset::read_catalog(const std::string& path) {
  std::uint64_t bytes = 0;
  const FileDescriptor fd = open_regular_file(path, &bytes);
  if (bytes > kMaxCatalogBytes)
    throw Error(ErrorCode::kCorrupt, shown_path(path) + ": catalog: too large");
  Bytes text(bytes);
  text.resize(read_at(fd.get(), 0, text, path));
  try {
    return Catalog::decode(as_text(text));
  } catch (const Error& error) {
    throw error.within(shown_path(path));
  }
}

Catalog DirectoryDataset::catalog_or_files() const {
  if (std::optional<Catalog> there = catalog()) return *std::move(there);
  Catalog catalog;
  for (const std::string& file : list_containers(directory_)) {
    const std::string name = container_name(file);
    if (!is_container_name(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  shown_path(directory_ + file) + ": its name cannot stand in a catalog",
                  "rename it: 1 to 200 bytes of UTF-8 and '.sml', no control bytes");
    }
    catalog.containers.push_back(CatalogEntry::of(name, *open_file(directory_ + file)));
  }
  // '-' comes before '.': the order of files is not that of names.
  std::sort(catalog.containers.begin(), catalog.containers.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) { return a.name < b.name; });
  return catalog;
}

std::shared_ptr<const ContainerReader> DirectoryDataset::open_file(const std::string& path) const {
  return open_container_file(path, options_.mapped, options_.index_directory);
}

std::shared_ptr<const ContainerReader> DirectoryDataset::open_container(
    const CatalogEntry& entry) const {
  const std::string path = place(entry.name);
  if (!exists(path)) {
    throw Error(ErrorCode::kCorrupt,
                shown_path(path) + ": is missing: the data set's catalog lists it",
                "sml rm removes it from the catalog as well");
  }
  auto reader = open_file(path);
  if (!CatalogEntry::of(entry.name, *reader).is_same_container(entry)) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("{}: is another container ({}) than the catalog lists ({})",
                            shown_path(path), reader->id().hex(), entry.id.hex()),
                "sml rm removes it, file and entry; pack --overwrite replaces it");
  }
  return reader;
}

std::shared_ptr<const ByteSource> DirectoryDataset::open_damaged(const std::string& name) const {
  // Not mapped: a device that fails is to be an error, which recovery passes over.
  return std::make_shared<const FileSource>(place(name), FileSource::Mapping::kNever);
}

void DirectoryDataset::finish_publication() const {
  const std::string path = catalog_path();
  const std::string fresh = next_catalog_path();
  if (!exists(fresh)) return;
  bool published = false;
  try {
    const Catalog next = read_catalog(fresh);
    const std::optional<Catalog> now = catalog();
    for (const CatalogEntry& entry : next.containers) {
      if (entry.since != next.revision || next.revision != (now ? now->revision : 0) + 1) continue;
      published = open_file(place(entry.name))->id() == entry.id;
    }
  } catch (const Error&) {
    published = false;  // cut off while it was written, or before its container was in place
  }
  if (!published) return remove_file(fresh);
  if (::rename(fresh.c_str(), path.c_str()) != 0)
    throw system_error(path, "cannot rename into place", errno);
}

void DirectoryDataset::write(const Catalog& catalog, const std::function<void()>& commit) const {
  const std::string path = catalog_path();
  const std::string fresh = next_catalog_path();  // one writer at a time: the lock is held
  const std::string text = catalog.encode();
  try {
    FileDescriptor fd(open_path(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666));
    if (!fd) throw system_error(fresh, "cannot write", errno);
    write_at(fd.get(), 0, as_bytes(text), fresh);
    if (::fsync(fd.get()) != 0) throw system_error(fresh, "cannot sync", errno);
    commit();
  } catch (...) {
    ::unlink(fresh.c_str());
    throw;
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0)
    throw system_error(path, "cannot rename into place", errno);
  const FileDescriptor parent(open_path(directory_, O_RDONLY | O_DIRECTORY));
  if (parent && ::fsync(parent.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    throw system_error(directory_, "cannot sync directory", errno);
}

void DirectoryDataset::settle() {
  if (!exists(next_catalog_path())) return;
  const DirectoryLock lock(directory_);
  finish_publication();
}

void DirectoryDataset::check(const NewContainer& container) const {
  if (exists(place(container.name)) && !container.overwrite) {
    throw Error(ErrorCode::kAlreadyExists, shown_path(place(container.name)) + ": exists already",
                "--overwrite replaces it");
  }
  if (!exists(directory_)) return;
  const Catalog catalog = catalog_or_files();
  if (catalog.find(container.name) != nullptr && !container.overwrite) {
    throw Error(ErrorCode::kAlreadyExists,
                shown_path(place(container.name)) + ": exists already: the catalog lists it",
                "--overwrite replaces it");
  }
  catalog.check_membership(container.membership, container.name);
}

std::unique_ptr<PendingContainer> DirectoryDataset::create(const NewContainer& container) {
  check(container);
  std::vector<std::string> made = make_directories(directory_);
  return std::make_unique<PendingInDirectory>(shared_from_this(), container, std::move(made));
}

std::vector<std::string> DirectoryDataset::names() const {
  if (const std::optional<Catalog> there = catalog()) return there->names();
  std::vector<std::string> names;
  if (!exists(directory_)) return names;
  for (const std::string& file : list_containers(directory_)) names.push_back(container_name(file));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> DirectoryDataset::strays() const {
  std::vector<std::string> names;
  if (!exists(directory_)) return names;
  // Listed before the catalog is read: what is published meanwhile is in both.
  const std::vector<std::string> files = list_containers(directory_);
  const std::optional<Catalog> there = catalog();
  if (!there) return names;
  for (const std::string& file : files) {
    std::string name = container_name(file);
    if (there->find(name) == nullptr) names.push_back(std::move(name));
  }
  return names;
}

// Also containers that are damaged or missing can be removed: none is opened.
void DirectoryDataset::remove(const std::vector<std::string>& names) {
  const DirectoryLock lock(directory_);
  finish_publication();
  std::optional<Catalog> there = catalog();
  for (const std::string& name : names) {
    if (there ? there->find(name) == nullptr : !exists(place(name)))
      throw Error(ErrorCode::kNotFound, shown_path(place(name)) + ": there is no such container");
  }
  if (there) {
    for (const std::string& name : names) there->remove(name);
    write(*there, [] {});
  }
  for (const std::string& name : names) remove_file(place(name));
}

std::vector<Store::Unsealed> DirectoryDataset::unsealed() const {
  std::vector<Unsealed> found;
  if (!exists(directory_)) return found;
  for (const UnpublishedFile& file : list_unpublished(directory_))
    found.push_back({container_name(file.destination), {}, file.alive, 0, file.path});
  return found;
}

void DirectoryDataset::remove_unsealed(const Unsealed& one) {
  if (!remove_unpublished(one.file))
    throw Error(ErrorCode::kUnavailable, shown_path(place(one.name)) + ": is being packed");
}

void DirectoryDataset::remove_dataset() {
  {
    const DirectoryLock lock(directory_);
    if (!names().empty())
      throw Error(ErrorCode::kInvalidArgument,
                  shown_path(directory_) + ": the data set is not empty");
    remove_file(catalog_path());
    remove_file(next_catalog_path());
    // Last, by who holds it: those who wait for it look whether it is still there.
    remove_file(directory_ + std::string(kLockName));
  }
  remove_unused_directory(directory_);
}

}  // namespace sml
