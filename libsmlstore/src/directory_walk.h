// Walks one directory tree: every regular file in name order, for trees of any size and depth.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "ordered_tasks.h"
#include "posix_file.h"
#include "smlstore/record_source.h"

namespace sml {

class DirectoryWalk {
 public:
  // directory: relative to the root, empty or with a slash at its end.
  using FileFunction =
      std::function<void(std::string_view directory, std::string_view name, std::uint64_t bytes)>;

  // Problems are reported as options.on_problem says, with `root` before the path.
  DirectoryWalk(const SourceOptions& options, FileFunction on_file);

  void walk(const std::string& root);

 private:
  // What is known before the file is looked at. Links are kept apart: what they lead to has been
  // looked up for sorting only.
  enum class Kind : std::uint8_t { kFile, kDirectory, kLink, kLinkedDirectory, kOther };

  struct Found {
    std::uint64_t order =
        0;  // the first 8 bytes of the sort text that not all names share, big-endian
    std::uint64_t name = 0;  // offset of the NUL-terminated name in Level::names
    std::uint16_t name_bytes = 0;
    std::uint16_t stem_bytes = 0;  // of a directory, those of its whole name
    Kind kind = Kind::kFile;
  };

  // The result of looking at a file.
  struct Ahead {
    int error = 0;
    mode_t mode = 0;
    FileIdentity identity;
    std::uint64_t bytes = 0;
  };

  // A directory on the way from the root to where the walk is.
  struct Level {
    explicit Level(std::pmr::memory_resource* memory) : found(memory), names(memory) {}

    FileDescriptor fd;  // may be closed for a while: see open_level()
    dev_t device = 0;
    ino_t inode = 0;
    std::size_t path_bytes = 0;  // of path_, up to and with this directory's slash
    bool through_link = false;
    std::size_t next = 0;  // in found
    // What was looked at ahead: found[ahead_first] and those behind it.
    std::size_t ahead_first = 0;
    std::vector<Ahead> ahead;
    std::pmr::vector<Found> found;
    std::pmr::vector<char> names;
  };

  Level& top() { return levels_[depth_ - 1]; }
  std::string shown(std::string_view name) const;  // root, path and name, for messages
  void report(std::string_view name, const Error& problem);
  void report_errno(std::string_view name, std::string_view action, int error);

  void push(FileDescriptor fd, std::string_view name, bool through_link);
  void pop();
  bool open_level(std::size_t level);
  void list_directory();
  Kind kind_of(const Level& level, unsigned char type, const char* name) const;
  void sort(Level& level) const;
  void visit(const Found& found);
  void visit_directory(const Found& found, const char* name);
  void visit_file(const Found& found, const char* name, const Ahead& file);
  Ahead look_at(const Level& level, const Found& found) const;
  void look_ahead(Level& level);

  const SourceOptions& options_;
  FileFunction on_file_;
  std::string root_;
  std::string path_;  // of the current directory below the root
  std::vector<Level>
      levels_;  // the first depth_ are in use; the others keep their memory for later
  std::size_t depth_ = 0;
  std::size_t oldest_open_ = 1;  // levels 1 to this one, not included, are closed
  std::vector<char> buffer_;     // for getdents64
  unsigned threads_;
  std::optional<Workers> workers_;  // started by the first large directory
};

}  // namespace sml
