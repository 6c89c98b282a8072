// Files found by walking directories, and files that are listed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "smlformat/key.h"
#include "smlstore/record_source.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/records.h"

using sml::ErrorCode;
using sml::list_paths;
using sml::list_walked;
using sml::SourceOptions;
using sml::Symlinks;
using sml::test::check_error;
using sml::test::keys_of;
using sml::test::Problems;
using sml::test::Records;
using sml::test::records_of;
namespace fs = std::filesystem;

namespace {

class Tree : public sml::test::TemporaryDirectory {
 public:
  void put(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    write(name, sml::as_bytes(content));
  }
};

std::vector<std::string> walked_keys(const std::vector<std::string>& sources,
                                     const SourceOptions& options = {}) {
  return keys_of(records_of(*list_walked(sources, options)));
}

std::function<bool(std::string&)> each_of(std::vector<std::string> paths) {
  return [paths = std::move(paths), next = std::size_t{0}](std::string& path) mutable {
    if (next == paths.size()) return false;
    path = paths[next++];
    return true;
  };
}

Records listed(const std::vector<std::string>& paths, const SourceOptions& options = {}) {
  return records_of(*list_paths(each_of(paths), options));
}

// Makes directories one inside the other, deeper than any path can say.
void make_chain(const std::string& root, const std::string& name, int depth,
                const std::string& file) {
  int at = ::open(root.c_str(), O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < depth; ++i) {
    REQUIRE(::mkdirat(at, name.c_str(), 0700) == 0);
    const int below = ::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY);
    ::close(at);
    at = below;
    const int fd = ::openat(at, file.c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string content = std::to_string(i);
    REQUIRE(::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    ::close(fd);
  }
  ::close(at);
}

}  // namespace

TEST_CASE("every file below a directory is a record, in name order") {
  const Tree tree;
  tree.put("b.txt", "B");
  tree.put("a/2.seg.png", "seg");
  tree.put("a/2.jpg", "jpg");
  tree.put("a/10.jpg", "ten");
  tree.put("a-/x", "dash");
  tree.put("a.txt", "A");
  tree.put(".hidden", "");
  fs::create_directory(tree.file("empty"));
  // '-' is before '/', and the file "a" (stem of a.txt) before what is below "a/".
  const Records expected = {{".hidden", ""},     {"a.txt", "A"},     {"a-/x", "dash"},
                            {"a/10.jpg", "ten"}, {"a/2.jpg", "jpg"}, {"a/2.seg.png", "seg"},
                            {"b.txt", "B"}};
  const auto list = list_walked({tree.path()}, {});
  CHECK(records_of(*list) == expected);
  CHECK(list->origin(3) == tree.path() + "/a/10.jpg");
  // A slash at the end, "." and ".." in a source make no difference to keys.
  CHECK(walked_keys({tree.path() + "/"}) == keys_of(expected));
  CHECK(walked_keys({tree.path() + "/./a/.."}) == keys_of(expected));
}

TEST_CASE("a walk gives all keys of a random tree in name order") {
  const unsigned seed = 20240613;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Tree tree;
  std::set<std::string> keys;
  const std::string alphabet = "ab.-/0\xc3";
  while (keys.size() < 400) {
    std::string key;
    const std::size_t bytes = 1 + random() % 9;
    while (key.size() < bytes) key += alphabet[random() % alphabet.size()];
    const fs::path path(key);
    bool usable = key.front() != '/' && key.back() != '/' && key.find("//") == std::string::npos;
    for (const auto& part : path) usable = usable && part != "." && part != "..";
    std::error_code error;
    if (!usable || fs::exists(fs::symlink_status(tree.file(key), error)) ||
        error.value() == ENOTDIR)
      continue;
    fs::create_directories(fs::path(tree.file(key)).parent_path(), error);
    if (error) continue;
    tree.write(key, sml::as_bytes(key));
    keys.insert(key);
  }
  std::vector<std::string> expected(keys.begin(), keys.end());
  std::sort(expected.begin(), expected.end(), [](const std::string& a, const std::string& b) {
    return sml::compare_names(a, b) < 0;
  });
  const Records found = records_of(*list_walked({tree.path()}, {}));
  CHECK(keys_of(found) == expected);
  CHECK(std::all_of(found.begin(), found.end(), [](const auto& r) { return r.first == r.second; }));
}

TEST_CASE("a source that is a file has its base name; sources keep their order") {
  const Tree tree;
  tree.put("z/file.txt", "one");
  tree.put("d/x", "two");
  const Records expected = {{"p/file.txt", "one"}, {"p/x", "two"}, {"p/file.txt", "one"}};
  SourceOptions options;
  options.prefix = "p/";
  const auto list =
      list_walked({tree.file("z/file.txt"), tree.file("d"), tree.file("z/file.txt")}, options);
  CHECK(records_of(*list) == expected);
  CHECK(list->origin(0) == tree.file("z/file.txt"));
  CHECK(list->origin(1) == tree.file("d/x"));
}

TEST_CASE("a source that does not exist is an error at once") {
  const Tree tree;
  tree.put("x", "");
  Problems problems;
  check_error(ErrorCode::kNotFound, tree.file("absent"), [&] {
    list_walked({tree.path(), tree.file("absent")}, problems.options());
  });
  check_error(ErrorCode::kNotFound, "''", [&] { list_walked({""}, problems.options()); });
  CHECK(problems.found.empty());
}

TEST_CASE("an empty directory is a list of none") {
  const Tree tree;
  CHECK(list_walked({tree.path()}, {})->size() == 0);
  CHECK(list_walked({}, {})->size() == 0);
}

TEST_CASE("names may hold any bytes; messages stay one line") {
  const Tree tree;
  const std::vector<std::string> names = {"\x01 \xff\xfe", "-rf", "a\nb", std::string(255, 'n'),
                                          "quote'\""};
  for (const std::string& name : names) tree.put(name, name);
  const auto list = list_walked({tree.path()}, {});
  const Records found = records_of(*list);
  CHECK(keys_of(found) == names);
  CHECK(found[2].second == "a\nb");
  CHECK(list->origin(2) == tree.path() + "/a\\nb");
}

TEST_CASE("symbolic links are followed, passed over, or problems") {
  const Tree tree;
  tree.put("in/real.txt", "content");
  tree.put("out/far.txt", "far");
  fs::create_symlink("real.txt", tree.file("in/link.txt"));
  fs::create_directory_symlink("../out", tree.file("in/other"));
  Problems problems;
  SourceOptions options = problems.options();
  CHECK(walked_keys({tree.file("in")}, options) ==
        std::vector<std::string>{"link.txt", "other/far.txt", "real.txt"});
  options.symlinks = Symlinks::kSkip;
  CHECK(walked_keys({tree.file("in")}, options) == std::vector<std::string>{"real.txt"});
  CHECK(problems.found.empty());
  options.symlinks = Symlinks::kError;
  CHECK(walked_keys({tree.file("in")}, options) == std::vector<std::string>{"real.txt"});
  CHECK(problems.found.size() == 2);
  CHECK(problems.has(ErrorCode::kInvalidArgument, "in/link.txt: is a symbolic link"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "in/other: is a symbolic link"));
  // A link that is named is meant.
  CHECK(walked_keys({tree.file("in/other"), tree.file("in/link.txt")}, options) ==
        std::vector<std::string>{"far.txt", "link.txt"});
}

TEST_CASE("a file that became a link is not read where links are not followed") {
  const Tree tree;
  tree.put("a", "secret");
  tree.put("b/file", "public");
  SourceOptions options;
  options.symlinks = Symlinks::kSkip;
  const auto list = list_walked({tree.file("b")}, options);
  fs::remove(tree.file("b/file"));
  fs::create_symlink("../a", tree.file("b/file"));
  check_error(ErrorCode::kIo, "b/file", [&] { records_of(*list); });
}

TEST_CASE("link loops and dangling links are problems, and the rest is found") {
  const Tree tree;
  tree.put("d/e/file", "x");
  fs::create_directory_symlink("..", tree.file("d/e/up"));
  fs::create_directory_symlink(".", tree.file("d/self"));
  fs::create_symlink("circle", tree.file("d/circle"));
  fs::create_symlink("nowhere", tree.file("d/dangling"));
  Problems problems;
  CHECK(walked_keys({tree.file("d")}, problems.options()) == std::vector<std::string>{"e/file"});
  CHECK(problems.found.size() == 4);
  CHECK(problems.has(ErrorCode::kInvalidArgument, "d/e/up: symbolic link loop"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "d/self: symbolic link loop"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "d/circle: symbolic link loop"));
  CHECK(problems.has(ErrorCode::kNotFound, "d/dangling: dangling symbolic link"));
  // Without a handler the first one is thrown.
  check_error(ErrorCode::kInvalidArgument, "loop", [&] { list_walked({tree.file("d/e")}, {}); });
}

TEST_CASE("a directory reached twice, but not through itself, is no loop") {
  const Tree tree;
  tree.put("d/a/file", "x");
  fs::create_directory_symlink("a", tree.file("d/b"));
  CHECK(walked_keys({tree.file("d")}) == std::vector<std::string>{"a/file", "b/file"});
}

TEST_CASE("FIFOs, sockets and devices are problems and never waited for") {
  const Tree tree;
  tree.put("file", "x");
  REQUIRE(::mkfifo(tree.file("fifo").c_str(), 0600) == 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  tree.file("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(fd);
  fs::create_symlink("/dev/null", tree.file("device"));
  Problems problems;
  CHECK(walked_keys({tree.path(), tree.file("fifo")}, problems.options()) ==
        std::vector<std::string>{"file"});
  CHECK(problems.found.size() == 4);
  CHECK(problems.has(ErrorCode::kInvalidArgument, "fifo: is a FIFO"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "socket: is a socket"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "device: is a device"));
  // Between listing and reading a file may become one.
  const auto list = list_walked({tree.file("file")}, {});
  fs::remove(tree.file("file"));
  REQUIRE(::mkfifo(tree.file("file").c_str(), 0600) == 0);
  check_error(ErrorCode::kIo, "file", [&] { records_of(*list); });
}

TEST_CASE("a file that shrinks, grows or vanishes after listing is an error when it is read") {
  const Tree tree;
  tree.put("f", std::string(10'000, 'x'));
  const auto list = list_walked({tree.path()}, {});
  CHECK(records_of(*list).front().second.size() == 10'000);
  for (const std::size_t bytes : {0U, 1U, 9'999U, 10'001U, 20'000U}) {
    tree.put("f", std::string(bytes, 'y'));
    check_error(ErrorCode::kIo, "f: changed while it was read", [&] { records_of(*list); });
  }
  fs::remove(tree.file("f"));
  check_error(ErrorCode::kNotFound, "f: cannot open", [&] { records_of(*list); });
  fs::create_directory(tree.file("f"));
  check_error(ErrorCode::kIo, "f", [&] { records_of(*list); });
}

TEST_CASE("ranges of a file are read, and one that reaches the end sees growth") {
  const Tree tree;
  std::string content;
  for (int i = 0; i < 5000; ++i) content += std::to_string(i);
  tree.put("f", content);
  const auto list = list_walked({tree.path()}, {});
  sml::Bytes out(100);
  list->read(0, 1234, out);
  CHECK(sml::as_text(out) == content.substr(1234, 100));
  list->read(0, content.size() - 100, out);
  CHECK(sml::as_text(out) == content.substr(content.size() - 100));
  tree.put("f", content + "more");
  list->read(0, 0, out);
  CHECK(sml::as_text(out) == content.substr(0, 100));
  check_error(ErrorCode::kIo, "changed", [&] { list->read(0, content.size() - 100, out); });
}

TEST_CASE("trees deeper than a path can name or a process can hold open are walked") {
  const Tree tree;
  // 40 levels of 121 bytes: the keys of the last ones are longer than 4096 bytes.
  make_chain(tree.path(), std::string(120, 'd'), 40, "z");
  Problems problems;
  const auto list = list_walked({tree.path()}, problems.options());
  const Records found = records_of(*list);
  // A key at level i (from 1) has 121 i + 1 bytes; 121 * 33 + 1 = 3994, 121 * 34 + 1 = 4115.
  REQUIRE(found.size() == 33);
  CHECK(problems.found.size() == 7);
  CHECK(problems.has(ErrorCode::kInvalidArgument, "4115 bytes"));
  for (const auto& [key, content] : found) CHECK(key.size() == (std::stoul(content) + 1) * 121 + 1);

  const Tree thin;
  make_chain(thin.path(), "d", 1500, "z");
  const Records deep = records_of(*list_walked({thin.path()}, {}));
  // Below each directory first "d/", then "z": the deepest comes first.
  REQUIRE(deep.size() == 1500);
  for (std::size_t i = 0; i < deep.size(); ++i) CHECK(deep[i].second == std::to_string(1499 - i));
}

TEST_CASE("a key of 4096 bytes below a long root is read") {
  const Tree tree;
  make_chain(tree.path(), std::string(240, 'd'), 16, std::string(240, 'f'));
  SourceOptions options;
  const auto list = list_walked({tree.path()}, options);
  const Records found = records_of(*list);
  REQUIRE(found.size() == 16);
  // The deepest has 16 * 241 + 240 = 4096 bytes.
  CHECK(std::count_if(found.begin(), found.end(),
                      [](const auto& r) { return r.first.size() == 4096; }) == 1);
}

TEST_CASE("prefixes that would make keys unsafe are refused") {
  const Tree tree;
  tree.put("x", "");
  for (const char* prefix : {"/", "a//", "../", "a/../", "./", "a/./"}) {
    SourceOptions options;
    options.prefix = prefix;
    check_error(ErrorCode::kInvalidArgument, "prefix",
                [&] { list_walked({tree.path()}, options); });
  }
  SourceOptions options;
  options.prefix = "a/..b";
  CHECK(walked_keys({tree.path()}, options) == std::vector<std::string>{"a/..bx"});
  // The prefix counts in the key's length.
  options.prefix = std::string(4095, 'p');
  CHECK(walked_keys({tree.path()}, options).size() == 1);
  options.prefix += 'p';
  check_error(ErrorCode::kInvalidArgument, "4097 bytes",
              [&] { walked_keys({tree.path()}, options); });
}

TEST_CASE("listing tells how far it is and can be stopped") {
  const Tree tree;
  for (int i = 0; i < 5000; ++i) tree.put(std::to_string(i), "");
  std::vector<std::uint64_t> told;
  SourceOptions options;
  options.on_found = [&](std::uint64_t found) { told.push_back(found); };
  list_walked({tree.path()}, options);
  REQUIRE(told.size() >= 2);
  CHECK(told.back() == 5000);
  CHECK(std::is_sorted(told.begin(), told.end()));
  std::stop_source stop;
  stop.request_stop();
  options.stop = stop.get_token();
  check_error(ErrorCode::kCancelled, "cancelled", [&] { list_walked({tree.path()}, options); });
  Problems problems;  // a handler for problems is not asked
  options = problems.options();
  options.stop = stop.get_token();
  check_error(ErrorCode::kCancelled, "cancelled",
              [&] { list_paths(each_of({tree.file("1")}), options); });
  CHECK(problems.found.empty());
}

TEST_CASE("listed paths are keys without leading ./ and /") {
  const Tree tree;
  tree.put("a/b", "content");
  const std::string absolute = tree.file("a/b");
  const auto list = list_paths(each_of({absolute, "/" + absolute, "/./" + absolute}), {});
  CHECK(records_of(*list) == Records(3, {absolute.substr(1), "content"}));
  CHECK(list->origin(0) == absolute);
  const fs::path before = fs::current_path();
  fs::current_path(tree.path());
  const Records relative = listed({"a/b", "./a/b", ".//a/b", "a", ".", "./", tree.path()});
  fs::current_path(before);
  CHECK(relative == Records(3, {"a/b", "content"}));
}

TEST_CASE("what is listed but cannot be a record is a problem") {
  const Tree tree;
  tree.put("a/b", "content");
  fs::create_symlink("nowhere", tree.file("dangling"));
  fs::create_symlink("a/b", tree.file("link"));
  Problems problems;
  SourceOptions options = problems.options();
  CHECK(listed({tree.file("a/../a/b"), tree.file("absent"), tree.file("dangling"), "/dev/null", "",
                tree.file("a//b"), tree.file("a/./b"), tree.file("link")},
               options) == Records{{tree.file("link").substr(1), "content"}});
  CHECK(problems.found.size() == 7);
  CHECK(problems.has(ErrorCode::kInvalidArgument,
                     "a/../a/b: cannot be a key: it has the component '..'"));
  CHECK(problems.has(ErrorCode::kInvalidArgument,
                     "a//b: cannot be a key: it has an empty component"));
  CHECK(problems.has(ErrorCode::kInvalidArgument,
                     "a/./b: cannot be a key: it has the component '.'"));
  CHECK(problems.has(ErrorCode::kNotFound, tree.file("absent")));
  CHECK(problems.has(ErrorCode::kNotFound, "dangling symbolic link"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "/dev/null: is a device"));
  CHECK(problems.has(ErrorCode::kInvalidArgument, "an empty path"));
  options.symlinks = Symlinks::kSkip;
  CHECK(listed({tree.file("link")}, options).empty());
  CHECK(problems.found.size() == 7);
  options.symlinks = Symlinks::kError;
  CHECK(listed({tree.file("link")}, options).empty());
  CHECK(problems.has(ErrorCode::kInvalidArgument, "link: is a symbolic link"));
}

TEST_CASE("records and problems do not depend on the number of threads") {
  // Directories of more than one look ahead, with links, dangling links, a FIFO and directories
  // among the files.
  const Tree tree;
  for (int i = 0; i < 1300; ++i) {
    const std::string name = "d/" + std::to_string(i * 7919 % 1300);
    if (i % 100 == 50) {
      tree.put(name + ".dir/inner", std::to_string(i));
    } else if (i % 100 == 51) {
      fs::create_directories(fs::path(tree.file("d")));
      fs::create_symlink("nowhere", tree.file(name));
    } else if (i % 100 == 52) {
      fs::create_symlink("../target", tree.file(name));
    } else if (i == 653) {
      REQUIRE(::mkfifo(tree.file(name).c_str(), 0600) == 0);
    } else {
      tree.put(name, std::string(static_cast<std::size_t>(i % 50), 'x'));
    }
  }
  tree.put("target", "what links lead to");
  std::vector<Records> records;
  std::vector<std::vector<std::string>> problems;
  for (const unsigned threads : {1U, 2U, 4U, 16U}) {
    SourceOptions options;
    options.threads = threads;
    std::vector<std::string>& told = problems.emplace_back();
    options.on_problem = [&told](const sml::Error& error) { told.emplace_back(error.what()); };
    records.push_back(records_of(*list_walked({tree.file("d")}, options)));
    CHECK(records.back().size() == 1300 - 13 - 1);
    CHECK(told.size() == 13 + 1);
    CHECK(records.back() == records.front());
    CHECK(told == problems.front());
  }
}
