#include "destination.h"

#include <array>
#include <ctime>
#include <memory>
#include <random>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "command.h"
#include "locations.h"
#include "smlformat/error.h"
#include "smlstore/dataset.h"
#include "terminal.h"

namespace sml {
namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string name_in_dataset(const DestinationOptions& options) {
  if (options.parts > 0)
    return fmt::format("{}-{}-of-{}", options.name.value_or("part"), options.part, options.parts);
  return options.name ? *options.name : default_container_name();
}

Dataset open_one(const std::string& path) {
  DatasetOptions alone;
  alone.partial = true;
  return Dataset::open(Location{path}, alone);
}

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
  if (!options_.location.is_directory()) {
    if (options_.name) {
      throw UsageError("--name is for data sets: " + options_.location.path + " is a file",
                       "a destination that ends in '/' is a data set");
    }
    path_ = options_.location.path;
  } else {
    directory_ = options_.location.path;
    if (!directory_.ends_with('/')) directory_ += '/';
    path_ = directory_ + name_in_dataset(options_) + std::string(kContainerSuffix);
  }
  const bool there = exists(path_) && !options_.overwrite;
  complete_ = there && options_.resume;
  if (there && !complete_) {
    throw Error(ErrorCode::kAlreadyExists, path_ + ": exists already", "--overwrite replaces it");
  }
  check_agreement();
}

Destination::~Destination() {
  if (published_) return;
  // From the innermost out; one that is in use meanwhile stays, and so do those around it.
  for (auto directory = made_.rbegin(); directory != made_.rend(); ++directory) {
    if (!remove_unused_directory(*directory)) return;
  }
}

void Destination::prepare() {
  if (directory_.empty()) return;
  for (std::size_t slash = directory_.find('/', 1); slash != std::string::npos;
       slash = directory_.find('/', slash + 1)) {
    const std::string parent = directory_.substr(0, slash);
    if (!exists(parent)) made_.push_back(parent);
  }
  make_directories(directory_);
}

void Destination::publish(FileSink& sink, const std::stop_token& stop) {
  std::unique_ptr<DirectoryLock> lock;
  if (!directory_.empty()) {
    lock = std::make_unique<DirectoryLock>(directory_, stop);
    check_agreement();
    check_keys(sink.unpublished_path());
  }
  sink.publish();
  published_ = true;
}

std::vector<std::string> Destination::others() const {
  std::vector<std::string> paths;
  if (directory_.empty() || !exists(directory_)) return paths;
  for (const std::string& file : list_containers(directory_)) {
    if (directory_ + file != path_) paths.push_back(directory_ + file);
  }
  return paths;
}

std::vector<std::string> Destination::own_files() const {
  std::vector<std::string> paths = others();
  if (!directory_.empty()) paths.push_back(directory_ + std::string(kLockName));
  paths.push_back(path_);
  return paths;
}

void Destination::check_agreement() const {
  for (const std::string& path : others()) {
    const Dataset other = open_one(path);
    const Header& header = other.containers().front().reader->header();
    if (header.grouping != options_.grouping) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "{}: packed with --group-by {}, not {}: the containers of a data set must agree",
              path, grouping_name(header.grouping), grouping_name(options_.grouping)));
    }
    if (options_.parts == 0 || header.parts == 0) continue;
    if (header.parts != options_.parts) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: one of {} parts, not {}", path, header.parts, options_.parts));
    }
    if (header.part == options_.part) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("{}: part {} is there already", path, header.part));
    }
  }
}

void Destination::check_keys(const std::string& unpublished) const {
  const std::vector<std::string> paths = others();
  if (paths.empty()) return;
  const ContainerReader added(std::make_shared<const FileSource>(unpublished));
  const std::string name = container_name(path_);
  try {
    for (const std::string& path : paths) check_unique_keys(open_one(path), added, name);
  } catch (const Error& error) {
    throw located(error, options_.location);
  }
}

}  // namespace sml
