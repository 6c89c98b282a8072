#include "destination.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <utility>

#include <sys/stat.h>

#include <fmt/format.h>

#include "command.h"
#include "heap.h"
#include "locations.h"
#include "smlformat/error.h"
#include "smlstore/dataset.h"
#include "terminal.h"

namespace sml {
namespace {

constexpr std::size_t kWritesUnderWay = 64U << 20;  // as many bytes a store in Ceph lets be so

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string name_in_dataset(const DestinationOptions& options) {
  const std::string& named = options.location.container;
  if (!named.empty()) {
    if (options.name)
      throw UsageError(one_line(options.location.path) + " and --name: name it once");
    return named;
  }
  const Membership& m = options.membership;
  if (m.parts > 0 && !options.named_as_is)
    return fmt::format("{}-{}-of-{}", options.name.value_or("part"), m.part, m.parts);
  return options.name ? *options.name : default_container_name();
}

// With a slash at the end; empty for the working directory.
std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace

std::string default_container_name() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &utc);
  std::random_device device;
  return fmt::format("{}-{:08x}", text.data(), device());
}

Destination::Destination(DestinationOptions options) : options_(std::move(options)) {
  const Location& location = options_.location;
  if (location.settled().revision)
    throw UsageError(one_line(location.path) + ": a revision cannot be written to");
  if (!location.is_rados() && !location.is_dataset()) {
    path_ = location.path;
    if (options_.name) {
      throw UsageError("--name is for data sets: " + path_ + " is a file",
                       "a destination that ends in '/' is a data set");
    }
    complete_ = options_.resume && !options_.overwrite && exists(path_);
    if (exists(path_) && !options_.overwrite && !complete_) {
      throw Error(ErrorCode::kAlreadyExists, path_ + ": exists already", "--overwrite replaces it");
    }
    return;
  }
  container_ = {name_in_dataset(options_), options_.membership, options_.overwrite, options_.recipe,
                options_.resume};
  store_ = options_.dataset ? options_.dataset : Store::open(location, options_.store);
  path_ = store_->place(container_.name);
  store_->settle();
  if (options_.resume && !options_.overwrite) {
    const std::vector<std::string> names = store_->names();
    complete_ = std::find(names.begin(), names.end(), container_.name) != names.end();
    if (complete_) return;
  }
  try {
    store_->check(container_);
  } catch (const Error& error) {
    throw located(error, location);
  }
}

std::shared_ptr<const ContainerReader> Destination::complete() const {
  if (!complete_) return nullptr;
  DatasetOptions options(options_.store);
  options.partial = true;
  Location location = options_.location;
  if (location.is_rados()) {
    location.container = container_.name;
  } else {
    location.path = path_;
  }
  return Dataset::open(location, options).containers().front().reader;
}

std::shared_ptr<const ByteSource> Destination::interrupted() const {
  if (pending_) return pending_->interrupted();
  return file_->interrupted();
}

std::string Destination::kept() const {
  return pending_ ? pending_->kept() : file_->keeps() ? file_->unpublished_path() : "";
}

ByteSink& Destination::begin() {
  if (store_) {
    if (options_.location.is_rados()) reserve_heap(kWritesUnderWay);
    pending_ = store_->create(container_);
    return *pending_;
  }
  const std::string directory = directory_of(path_);
  if (exists(directory + std::string(kCatalogName))) {
    throw Error(ErrorCode::kInvalidArgument,
                path_ + ": its directory is a data set, whose catalog would not list it",
                fmt::format("give {} as the data set, and --name {}",
                            directory.empty() ? "./" : directory, container_name(path_)));
  }
  file_ = std::make_unique<FileSink>(path_, options_.overwrite, options_.recipe, options_.resume);
  return *file_;
}

void Destination::publish(const std::stop_token& stop) {
  if (file_) return file_->publish();
  try {
    pending_->publish(stop);
  } catch (const Error& error) {
    throw located(error, options_.location);
  }
}

std::string Destination::unpublished_path() const {
  return pending_ ? pending_->unpublished_path() : file_->unpublished_path();
}

std::vector<std::string> Destination::own_files() const {
  std::vector<std::string> paths;
  if (options_.location.is_rados()) return paths;
  paths.push_back(path_);
  const std::string directory = directory_of(path_);
  if (!store_ || !exists(directory)) return paths;
  for (const std::string& file : list_containers(directory)) paths.push_back(directory + file);
  for (const std::string_view hidden : {kLockName, kCatalogName})
    paths.push_back(directory + std::string(hidden));
  return paths;
}

}  // namespace sml
