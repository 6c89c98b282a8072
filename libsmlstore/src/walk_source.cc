// Files on disk as records: found by walking directories, or listed.
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>

#include <sys/stat.h>

#include "directory_walk.h"
#include "posix_file.h"
#include "record_table.h"
#include "smlformat/key.h"

namespace sml {
namespace {

// A path in memory of its own where it is of the usual length, so that reading a file allocates
// nothing.
class PathText {
 public:
  PathText(std::string_view root, std::string_view rest) {
    const bool slash = !root.empty() && !rest.empty() && !root.ends_with('/');
    const std::size_t bytes = root.size() + (slash ? 1 : 0) + rest.size();
    char* to = short_.data();
    if (bytes > short_.size()) {
      long_.resize(bytes);
      to = long_.data();
    }
    text_ = {to, bytes};
    to = std::copy(root.begin(), root.end(), to);
    if (slash) {
      *to++ = '/';
    }
    std::copy(rest.begin(), rest.end(), to);
  }
  PathText(const PathText&) = delete;
  PathText& operator=(const PathText&) = delete;

  std::string_view view() const noexcept { return text_; }

 private:
  std::array<char, PATH_MAX> short_;
  std::string long_;
  std::string_view text_;
};

std::string_view base_name(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

class WalkedList final : public RecordList {
 public:
  WalkedList(const std::vector<std::string>& sources, const SourceOptions& options)
      : table_(options), follow_(options.symlinks == Symlinks::kFollow) {
    std::vector<struct stat> kinds;
    for (const std::string& source : sources) {
      struct stat status {};
      // A link that was named itself is followed whatever the options say.
      if (source.empty() || stat_path(source, status, true) != 0) {
        throw system_error(source.empty() ? "''" : source, "cannot open",
                           source.empty() ? ENOENT : errno);
      }
      kinds.push_back(status);
    }
    for (std::size_t i = 0; i < sources.size(); ++i) {
      add(sources[i], kinds[i], options);
    }
    table_.finish();
  }

  std::uint64_t size() const override { return table_.size(); }
  std::string_view key(std::uint64_t i) const override { return table_.key(i); }
  std::uint64_t bytes(std::uint64_t i) const override { return table_.bytes(i); }
  std::string origin(std::uint64_t i) const override {
    return shown_path(PathText(source_of(i).path, below_source(i)).view());
  }
  void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const override {
    const PathText path(source_of(i).path, below_source(i));
    read_regular_file(path.view(), table_.bytes(i), offset, out, follow_ || source_of(i).is_file);
  }

 private:
  struct Source {
    std::uint64_t first = 0;  // its first record
    std::string path;
    bool is_file = false;
  };

  void add(const std::string& source, const struct stat& status, const SourceOptions& options) {
    sources_.push_back({table_.size(), source, S_ISREG(status.st_mode)});
    if (S_ISDIR(status.st_mode)) {
      DirectoryWalk walk(
          options, [&](std::string_view directory, std::string_view name, std::uint64_t bytes) {
            if (table_.prefix().size() + directory.size() + name.size() > kMaxKeyBytes) {
              problem_of_long_key(source, directory, name, options);
            } else {
              table_.add(directory, name, bytes);
            }
          });
      walk.walk(source);
    } else if (S_ISREG(status.st_mode)) {
      const std::string_view name = base_name(source);
      if (!is_path_key(table_.prefix(), name)) {
        report_bad_key(options, name, source);
        return;
      }
      table_.add({}, name, static_cast<std::uint64_t>(status.st_size));
    } else {
      report_problem(options, Error(ErrorCode::kInvalidArgument,
                                    shown_path(source) + ": " + special_file(status.st_mode)));
    }
  }

  void problem_of_long_key(const std::string& source, std::string_view directory,
                           std::string_view name, const SourceOptions& options) const {
    const std::string path = std::string(directory).append(name);
    report_bad_key(options, path, PathText(source, path).view());
  }

  const Source& source_of(std::uint64_t i) const noexcept {
    const auto after =
        std::upper_bound(sources_.begin(), sources_.end(), i,
                         [](std::uint64_t record, const Source& s) { return record < s.first; });
    return *(after - 1);
  }

  std::string_view below_source(std::uint64_t i) const noexcept {
    return source_of(i).is_file ? std::string_view{} : table_.key_without_prefix(i);
  }

  RecordTable table_;
  std::vector<Source> sources_;
  bool follow_;
};

class PathsList final : public RecordList {
 public:
  PathsList(const std::function<bool(std::string&)>& next_path, const SourceOptions& options)
      : table_(options), follow_(options.symlinks == Symlinks::kFollow) {
    std::string path;
    for (std::uint64_t n = 0; next_path(path); ++n) {
      if (n % kPathsBetweenChecks == 0) {
        check_stop(options);
      }
      std::optional<std::uint64_t> bytes;
      try {
        bytes = file_bytes(path, options.symlinks);
      } catch (const Error& problem) {
        report_problem(options, problem);
      }
      if (bytes) {
        table_.add({}, strip_path(path), *bytes, path.starts_with('/'));
      }
    }
    table_.finish();
  }

  std::uint64_t size() const override { return table_.size(); }
  std::string_view key(std::uint64_t i) const override { return table_.key(i); }
  std::uint64_t bytes(std::uint64_t i) const override { return table_.bytes(i); }
  std::string origin(std::uint64_t i) const override { return shown_path(path_of(i).view()); }
  void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const override {
    read_regular_file(path_of(i).view(), table_.bytes(i), offset, out, follow_);
  }

 private:
  static constexpr std::uint64_t kPathsBetweenChecks = 1024;

  // Nothing for what is passed over. Throws what is a problem of this path.
  std::optional<std::uint64_t> file_bytes(const std::string& path, Symlinks symlinks) const {
    struct stat status {};
    if (path.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "an empty path is in the list");
    }
    if (stat_path(path, status, false) != 0) {
      throw system_error(path, "cannot open", errno);
    }
    if (S_ISLNK(status.st_mode)) {
      if (symlinks == Symlinks::kSkip) {
        return std::nullopt;
      }
      if (symlinks == Symlinks::kError) {
        throw Error(ErrorCode::kInvalidArgument, shown_path(path) + ": is a symbolic link");
      }
      if (stat_path(path, status, true) != 0) {
        if (errno == ENOENT) {
          throw Error(ErrorCode::kNotFound, shown_path(path) + ": dangling symbolic link");
        }
        if (errno == ELOOP) {
          throw Error(ErrorCode::kInvalidArgument, shown_path(path) + ": symbolic link loop");
        }
        throw system_error(path, "cannot open", errno);
      }
    }
    if (S_ISDIR(status.st_mode)) {
      return std::nullopt;
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument,
                  shown_path(path) + ": " + special_file(status.st_mode));
    }
    check_path_key(table_.prefix(), strip_path(path), path);
    return static_cast<std::uint64_t>(status.st_size);
  }

  // Equal to the listed path but for "./" and repeated slashes at its front.
  PathText path_of(std::uint64_t i) const {
    return {table_.flag(i) ? "/" : "", table_.key_without_prefix(i)};
  }

  RecordTable table_;
  bool follow_;
};

}  // namespace

std::unique_ptr<RecordList> list_walked(const std::vector<std::string>& sources,
                                        const SourceOptions& options) {
  return std::make_unique<WalkedList>(sources, options);
}

std::unique_ptr<RecordList> list_paths(const std::function<bool(std::string& path)>& next_path,
                                       const SourceOptions& options) {
  return std::make_unique<PathsList>(next_path, options);
}

}  // namespace sml
