// sml cp SOURCE DEST
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/commands.h"
#include "destination.h"
#include "interrupt.h"
#include "lists.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "smlstore/copy.h"
#include "smlstore/directory_store.h"
#include "smlstore/store.h"
#include "terminal.h"

namespace sml {
namespace {

class CpCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe(
        "SOURCE DEST",
        "Copies a container, or all containers of a data set, bit by bit; between files,\n"
        "directories and clusters. Every block is checked on the way. Containers that are "
        "at\n"
        "DEST already are passed over, and a copy that was interrupted goes on.");
    line.positional("SOURCE", source_, "a container, or a data set");
    line.positional("DEST", destination_, "a data set; or, for one container, a file");
    line.group("Output");
    line.text("--name", "NAME", name_, "of the one container that is copied");
    line.flag("--overwrite", overwrite_, "replace containers that are others");
    line.flag("-n,--dry-run", dry_run_, "say what would be done");
    add_partial_option(line, partial_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Examples:\n"
        "  sml cp photos.sml rados://pool/photos\n"
        "  sml cp rados://pool/photos 'rados://pool/photos?conf=/etc/ceph/other.conf'\n"
        "\n"
        "Exit codes: 0 done; 1 failed; 2 wrong usage.");
  }

  void resolve() override {
    if (!source_) throw UsageError("no SOURCE given");
    if (!destination_) throw UsageError("no DEST given");
    if (*destination_ == "-") throw UsageError("a container cannot be written to standard output");
    from_ = parse_location(*source_);
    to_ = parse_location(*destination_);
    if (name_) check_name_option(*name_, to_, false);
  }

  Outcome run(Console& console) override {
    console.configure(report_);
    const Interrupt interrupt(to_.is_rados() ? Interrupt::kFarGraceMs : Interrupt::kGraceMs);
    const Dataset dataset = open_dataset(from_, store_, partial_, console);
    const bool whole_dataset = from_.settled().is_dataset();
    if (name_ && whole_dataset) throw UsageError("--name is for one container, not for a data set");
    if (whole_dataset && !to_.is_dataset()) {
      throw UsageError(one_line(to_.path) + " is no data set, and a data set is to be copied",
                       "a destination that ends in '/' is a data set");
    }
    if (to_.is_dataset() || to_.is_rados()) {
      store_to_ = Store::open(to_, resolve_store(store_));
      store_to_->settle();
    }
    check_names(dataset);
    for (const Dataset::Container& container : dataset.containers())
      total_bytes_ += container.reader->tail().container_bytes;
    for (const Dataset::Container& container : dataset.containers())
      copy(container, console, interrupt.token());
    Output out = Output::standard();
    out.write(told_);
    out.finish();
    return Outcome::kDone;
  }

 private:
  // Before anything is copied.
  void check_names(const Dataset& dataset) const {
    if (name_ || !to_.is_dataset()) return;
    for (const Dataset::Container& container : dataset.containers()) {
      if (is_container_name(container.name) && (!to_.is_rados() || can_be_located(container.name)))
        continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: its name cannot stand in {}", one_line(container.path),
                              one_line(to_.path)),
                  "'sml cp' of it alone gives it another one with --name");
    }
  }

  void copy(const Dataset::Container& container, Console& console, const std::stop_token& stop) {
    const std::uint64_t bytes = container.reader->tail().container_bytes;
    const std::string name = name_.value_or(container.name);
    const Existing existing = existing_at(to_.container.empty() ? name : to_.container);
    const bool is_there = existing.id == container.reader->id();
    if (is_there && existing.listed) {
      console.note(fmt::format("{} is there already", one_line(name)));
      done_bytes_ += bytes;
      return;
    }
    DestinationOptions where;
    where.location = to_;
    where.store = resolve_store(store_);
    where.dataset = store_to_;
    if (to_.is_dataset()) where.name = name;
    if (!to_.is_dataset() && name_) where.name = name_;
    where.membership = CatalogEntry::of(name, *container.reader).membership;
    where.named_as_is = true;
    where.overwrite = overwrite_ || is_there;  // one that the catalog does not list is taken in
    // What was copied of this container, and of no other, is gone on with.
    where.resume = true;
    where.recipe = static_cast<std::uint32_t>(container.reader->id().low) | 1U;
    Destination destination(std::move(where));
    if (dry_run_) {
      told_ += fmt::format("would copy {}, {}, to {}\n", one_line(container.path),
                           shown_size(bytes), one_line(destination.path()));
      return;
    }
    CopyOptions options;
    options.stop = stop;
    if (Progress* progress = console.progress()) {
      options.on_progress = [this, progress](std::uint64_t done) {
        progress->update_bytes("copied", done_bytes_ + done, total_bytes_);
      };
    }
    ByteSink& sink = destination.begin();
    try {
      copy_container(*container.reader, sink, options);
      destination.publish(stop);
    } catch (const Error& error) {
      const Error located =
          error.code() == ErrorCode::kCorrupt ? error.within_once(container.path) : error;
      if (destination.kept().empty()) throw located;
      throw Error(located.code(), located.what(),
                  fmt::format("{}{}the same sml cp goes on; {} is kept for that", located.hint(),
                              located.hint().empty() ? "" : "; ", destination.kept()));
    }
    done_bytes_ += bytes;
  }

  // What is where a container of this name would be copied to.
  struct Existing {
    std::optional<Hash128> id;
    bool listed = true;  // false: it lies beside a catalog that does not list it
  };
  Existing existing_at(const std::string& name) const {
    const std::optional<Catalog> catalog = store_to_ ? store_to_->catalog() : std::nullopt;
    if (catalog) {
      if (const CatalogEntry* const entry = catalog->find(name)) return {entry->id, true};
    }
    if (to_.is_rados()) return {};
    try {
      const auto there = open_container_file(store_to_ ? store_to_->place(name) : to_.path, true);
      return {there->id(), !catalog.has_value()};
    } catch (const Error& error) {
      // Beside a catalog one that is damaged is not replaced unasked either.
      if (error.code() == ErrorCode::kNotFound || catalog) return {};
      throw;
    }
  }

  std::optional<std::string> source_;
  std::optional<std::string> destination_;
  std::optional<std::string> name_;
  bool overwrite_ = false;
  bool dry_run_ = false;
  bool partial_ = false;
  StoreArguments store_;
  ReportOptions report_;
  Location from_;
  Location to_;
  std::shared_ptr<Store> store_to_;  // where that is a data set
  std::string told_;                 // of a dry run
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_cp_command() { return std::make_unique<CpCommand>(); }

}  // namespace sml
