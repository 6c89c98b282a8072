// sml rm LOCATION
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "commands/commands.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "smlstore/directory_store.h"
#include "smlstore/store.h"
#include "terminal.h"

namespace sml {
namespace {

class RmCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe(
        "LOCATION",
        "Removes a container; a data set with all of its containers; or what packers that "
        "died have\n"
        "left. Nothing asks back: -n tells what would be removed.");
    line.positional("LOCATION", argument_, "a container, or a data set");
    line.group("What");
    line.flag("--recursive", recursive_, "all of a data set");
    line.flag("--unsealed", unsealed_,
              "of a data set what was begun and never sealed, and whose\n"
              "packer lives no more");
    line.flag("-n,--dry-run", dry_run_, "say what would be done");
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Examples:\n"
        "  sml rm rados://pool/photos/part-3-of-8\n"
        "  sml rm --unsealed rados://pool/photos\n"
        "\n"
        "Exit codes: 0 done; 1 failed; 2 wrong usage.");
  }

  void resolve() override {
    if (!argument_) throw UsageError("no LOCATION given");
    location_ = parse_location(*argument_);
    if (recursive_ && unsealed_) throw UsageError("--recursive and --unsealed exclude each other");
    if (location_.settled().revision) throw UsageError("a revision cannot be removed");
  }

  Outcome run(Console& console) override {
    console.configure(report_);
    if (!location_.is_dataset()) {
      if (recursive_ || unsealed_) {
        throw UsageError(one_line(location_.path) +
                         " is no data set: --recursive and --unsealed "
                         "are for data sets");
      }
      remove_container();
    } else if (unsealed_) {
      remove_unsealed(console);
    } else if (recursive_) {
      remove_dataset();
    } else {
      throw UsageError(one_line(location_.path) + " is a data set",
                       "--recursive removes all of it; --unsealed what packers left");
    }
    Output out = Output::standard();
    out.write(told_);
    out.finish();
    return Outcome::kDone;
  }

 private:
  // Whether to do it, or only to say so.
  bool go(const std::string& place) {
    if (dry_run_) told_ += fmt::format("would remove {}\n", one_line(place));
    return !dry_run_;
  }

  std::shared_ptr<Store> open(const Location& location) const {
    return Store::open(location, resolve_store(store_));
  }

  void remove_container() {
    if (location_.is_rados()) {
      const auto store = open(location_);
      const std::optional<Catalog> catalog = store->catalog();
      if (!catalog || catalog->find(location_.container) == nullptr)
        throw Error(ErrorCode::kNotFound, location_.path + ": there is no such container");
      if (go(location_.path)) store->remove({location_.container});
      return;
    }
    const std::string& path = location_.path;
    const std::string directory = path.substr(0, path.rfind('/') + 1);
    const auto store = open(Location(directory.empty() ? "./" : directory));
    store->settle();
    const std::optional<Catalog> catalog = store->catalog();
    const std::string name = container_name(path);
    if (catalog && path.ends_with(kContainerSuffix) && catalog->find(name) != nullptr) {
      if (go(path)) store->remove({name});
      return;
    }
    // Not of a data set. Other files are not ours to remove.
    std::byte front[8];
    const FileSource file(path, FileSource::Mapping::kNever);
    if (file.size() >= sizeof front) file.read(0, front);
    if (file.size() < sizeof front || as_text(front) != kHeaderMagic)
      throw Error(ErrorCode::kInvalidArgument, path + ": is no container");
    if (go(path) && ::unlink(path.c_str()) != 0)
      throw Error(ErrorCode::kIo,
                  path + ": cannot remove: " + std::generic_category().message(errno));
  }

  void remove_unsealed(Console& console) {
    const auto store = open(location_);
    const std::vector<Store::Unsealed> found = store->unsealed();
    if (found.empty()) console.note(one_line(location_.path) + ": nothing is unsealed");
    for (const Store::Unsealed& one : found) {
      if (one.alive) {
        console.note(one_line(store->place(one.name)) + " is being packed: left alone");
      } else if (go(store->place(one.name) + " (unsealed)")) {
        store->remove_unsealed(one);
      }
    }
  }

  void remove_dataset() {
    const auto store = open(location_);
    store->settle();
    const std::vector<std::string> names = store->names();
    if (names.empty() && !store->catalog())
      throw Error(ErrorCode::kNotFound, location_.path + ": there is no such data set");
    // Without a catalog they would be the data set.
    if (const std::vector<std::string> strays = store->strays(); !strays.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  store->place(strays.front()) + ": the data set's catalog does not list it",
                  "'sml rm' removes it, 'sml cp' into the data set takes it in");
    }
    for (const Store::Unsealed& one : store->unsealed()) {
      if (one.alive) {
        throw Error(ErrorCode::kUnavailable, store->place(one.name) + ": is being packed");
      }
      if (go(store->place(one.name) + " (unsealed)")) store->remove_unsealed(one);
    }
    for (const std::string& name : names) go(store->place(name));
    if (dry_run_) return;
    if (!names.empty()) store->remove(names);
    store->remove_dataset();
  }

  std::optional<std::string> argument_;
  bool recursive_ = false;
  bool unsealed_ = false;
  bool dry_run_ = false;
  StoreArguments store_;
  ReportOptions report_;
  Location location_;
  std::string told_;
};

}  // namespace

std::unique_ptr<Command> make_rm_command() { return std::make_unique<RmCommand>(); }

}  // namespace sml
