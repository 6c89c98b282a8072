// The members of an archive in a regular file as records that can be read in any order.
#include <algorithm>
#include <cerrno>
#include <unordered_map>

#include <fcntl.h>
#include <sys/stat.h>

#include "archive_reader.h"
#include "posix_file.h"
#include "record_table.h"
#include "smlformat/key.h"
#include "smlstore/spill.h"

namespace sml {
namespace {

constexpr std::uint64_t kTarBlockBytes = 512;

// The archive is not laid out as expected: members cannot be read in place.
struct NotInPlace {};

class ArchiveList final : public RecordList {
 public:
  // in_place: read the members of a plain tar where they are. Throws NotInPlace where they turn out
  // to be elsewhere.
  ArchiveList(const std::string& path, const SourceOptions& options, bool in_place)
      : path_(path),
        options_(options),
        table_(options_),
        places_(options.memory),
        links_(options.memory),
        link_targets_(options.memory),
        passed_over_(options.memory) {
    fd_ = open_regular_file(path);
    ArchiveReader reader(fd_.get(), ArchiveReader::Input::kRegularFile, path, options.stop);
    list(reader, in_place);
    resolve_links();
    table_.finish();
  }

  std::uint64_t size() const override { return table_.size(); }
  std::string_view key(std::uint64_t i) const override { return table_.key(i); }
  std::uint64_t bytes(std::uint64_t i) const override { return table_.bytes(i); }
  std::string origin(std::uint64_t i) const override {
    return shown_path(path_) + ": " + shown_path(table_.key_without_prefix(i));
  }
  void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const override {
    const std::uint64_t place = places_[i];
    if ((place & kSpilled) != 0) {
      spill_->read((place & ~kSpilled) + offset, out.data(), out.size());
    } else if (read_at(fd_.get(), place + offset, out, path_) != out.size()) {
      throw Error(ErrorCode::kIo, origin(i) + ": the archive became shorter");
    }
  }

 private:
  static constexpr std::uint64_t kSpilled = std::uint64_t{1} << 63U;  // a place in the spill file
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  struct Link {
    std::uint64_t record = 0;
    std::uint64_t target = 0;  // in link_targets_
    std::uint64_t target_bytes = 0;
  };

  void list(ArchiveReader& reader, bool in_place) {
    ArchiveMember member;
    std::uint64_t expected =
        0;  // where the next member begins if the last one is where it was taken to be
    while (true) {
      bool more = false;
      try {
        more = reader.next(member);
      } catch (const Error& problem) {
        if (!reader.usable()) {
          throw;
        }
        report_problem(options_, problem);
        expected = 0;
        continue;
      }
      if (expected != 0 && reader.header_position() != expected) {
        throw NotInPlace();
      }
      if (!more) {
        return;
      }
      expected = 0;
      const std::string_view name = strip_path(member.name);
      switch (member.kind) {
        case ArchiveMember::Kind::kFile:
          if (!is_key(name)) {
            break;
          }
          if (in_place && reader.is_plain_tar() && !member.sparse) {
            const std::uint64_t place = reader.data_position();
            expected = place + round_up(member.bytes, kTarBlockBytes);
            places_.push_back(place);
            table_.add({}, name, member.bytes);
          } else {
            spill(reader, name);
          }
          break;
        case ArchiveMember::Kind::kHardLink:
          if (is_key(name)) {
            add_link(name, strip_path(member.link));
          }
          break;
        case ArchiveMember::Kind::kSymbolicLink:
          passed_over_.push_back(key_hash(name));
          if (options_.symlinks == Symlinks::kError) {
            report_problem(
                options_, Error(ErrorCode::kInvalidArgument, shown(name) + ": is a symbolic link"));
          } else if (options_.symlinks == Symlinks::kFollow && options_.on_passed_over) {
            options_.on_passed_over(shown(name));
          }
          break;
        case ArchiveMember::Kind::kDirectory:
          passed_over_.push_back(key_hash(name));
          break;
        case ArchiveMember::Kind::kOther:
          passed_over_.push_back(key_hash(name));
          if (options_.on_passed_over) options_.on_passed_over(shown(name));
          break;
      }
    }
  }

  std::string shown(std::string_view name) const {
    return shown_path(path_) + ": " + shown_path(name);
  }

  bool is_key(std::string_view name) const {
    if (is_path_key(table_.prefix(), name)) {
      return true;
    }
    report_bad_key(options_, name, path_ + ": " + std::string(name));
    return false;
  }

  void spill(ArchiveReader& reader, std::string_view name) {
    if (spill_ == nullptr) {
      spill_ = std::make_unique<SpillFile>();
    }
    const std::uint64_t begin = spill_->size();
    try {
      ByteView bytes;
      std::uint64_t offset = 0;
      while (reader.next_bytes(bytes, offset)) {
        spill_->append_zeros(offset - (spill_->size() - begin));
        spill_->append(bytes.data(), bytes.size());
      }
      spill_->append_zeros(offset - (spill_->size() - begin));
    } catch (const Error& problem) {
      if (!reader.usable() || problem.code() == ErrorCode::kIo) {
        throw;
      }
      spill_->truncate(begin);
      report_problem(options_, problem);
      return;
    }
    places_.push_back(begin | kSpilled);
    table_.add({}, name, spill_->size() - begin);
  }

  void add_link(std::string_view name, std::string_view target) {
    links_.push_back({table_.size(), link_targets_.size(), target.size()});
    link_targets_.insert(link_targets_.end(), target.begin(), target.end());
    places_.push_back(kNone);
    table_.add({}, name, 0);
  }

  std::string_view target_of(const Link& link) const noexcept {
    return {link_targets_.data() + link.target, link.target_bytes};
  }

  // Gives hard links the place of the last record before them that has the name they link to.
  void resolve_links() {
    if (links_.empty()) {
      return;
    }
    std::sort(passed_over_.begin(), passed_over_.end());
    std::pmr::unordered_map<std::string_view, std::uint64_t> latest(options_.memory);
    for (const Link& link : links_) {
      latest.emplace(target_of(link), kNone);
    }
    auto link = links_.begin();
    for (std::uint64_t i = 0; i < table_.size(); ++i) {
      if (link != links_.end() && link->record == i) {
        const std::uint64_t target = latest.find(target_of(*link))->second;
        if (target != kNone) {
          places_[i] = places_[target];
          table_.set_bytes(i, table_.bytes(target));
        } else if (!std::binary_search(passed_over_.begin(), passed_over_.end(),
                                       key_hash(target_of(*link)))) {
          report_problem(
              options_,
              Error(ErrorCode::kNotFound,
                    shown(table_.key_without_prefix(i)) + ": is a hard link to '" +
                        shown_path(target_of(*link)) + "', which is not before it in the archive"));
        }
        ++link;
      }
      const auto named = latest.find(table_.key_without_prefix(i));
      if (named != latest.end() && places_[i] != kNone) {
        named->second = i;
      }
    }
    table_.remove_if([&](std::uint64_t i) { return places_[i] == kNone; });
    places_.erase(std::remove(places_.begin(), places_.end(), kNone), places_.end());
  }

  std::string path_;
  FileDescriptor fd_;
  SourceOptions options_;
  RecordTable table_;
  std::pmr::vector<std::uint64_t> places_;
  std::unique_ptr<SpillFile> spill_;
  std::pmr::vector<Link> links_;
  std::pmr::vector<char> link_targets_;
  std::pmr::vector<std::uint64_t>
      passed_over_;  // hashes of the names of members that are no records: no problem to link to
};

}  // namespace

std::unique_ptr<RecordList> list_archive(const std::string& path, const SourceOptions& options) {
  try {
    return std::make_unique<ArchiveList>(path, options, true);
  } catch (const NotInPlace&) {
    return std::make_unique<ArchiveList>(path, options, false);
  }
}

}  // namespace sml
