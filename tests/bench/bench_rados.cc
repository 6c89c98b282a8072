// What scripts/bench-ceph measures SML beside: one object per file, through librados and nothing
// else. Paths come from standard input, one a line; the cluster is that of CEPH_CONF.
//   bench_rados write POOL NAMESPACE IN_FLIGHT     files to objects of their names; prints bytes,
//                                                  and seconds from the first file to the last
//                                                  acknowledgement
//   bench_rados remove POOL NAMESPACE IN_FLIGHT    removes these objects
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <semaphore>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rados/librados.h>

namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  std::fprintf(stderr, "bench_rados: %s: %s\n", what.c_str(), std::strerror(error));
  std::exit(1);
}

void must(const std::string& what, int result) {
  if (result < 0) fail(what, -result);
}

std::vector<char> content(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) fail(path, errno);
  std::vector<char> bytes(static_cast<std::size_t>(status.st_size));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = read(file, bytes.data() + at, bytes.size() - at);
    if (got <= 0) fail(path, got < 0 ? errno : EIO);
    at += static_cast<std::size_t>(got);
  }
  close(file);
  return bytes;
}

// Operations of which so many are under way. librados keeps the bytes of a write itself.
class Window {
 public:
  explicit Window(std::ptrdiff_t most) : most_(most), room_(most) {}

  rados_completion_t begin() {
    room_.acquire();
    rados_completion_t completion = nullptr;
    must("completion", rados_aio_create_completion2(this, &Window::done, &completion));
    return completion;
  }
  void finish() {
    for (std::ptrdiff_t i = 0; i < most_; ++i) room_.acquire();
  }

 private:
  static void done(rados_completion_t completion, void* window) {
    must("object", rados_aio_get_return_value(completion));
    rados_aio_release(completion);
    static_cast<Window*>(window)->room_.release();
  }

  std::ptrdiff_t most_;
  std::counting_semaphore<> room_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 5 ? argv[1] : "";
  if (what != "write" && what != "remove") {
    std::fprintf(stderr, "usage: bench_rados write|remove POOL NAMESPACE IN_FLIGHT < LIST\n");
    return 2;
  }
  std::vector<std::string> paths;
  for (std::string line; std::getline(std::cin, line);) paths.push_back(line);

  rados_t cluster = nullptr;
  rados_ioctx_t io = nullptr;
  must("cluster", rados_create(&cluster, nullptr));
  must("settings", rados_conf_read_file(cluster, nullptr));
  must("connecting", rados_connect(cluster));
  must(argv[2], rados_ioctx_create(cluster, argv[2], &io));
  rados_ioctx_set_namespace(io, argv[3]);

  const auto start = std::chrono::steady_clock::now();
  Window window(std::strtol(argv[4], nullptr, 10));
  std::size_t total = 0;
  for (const std::string& path : paths) {
    if (what == "remove") {
      must(path, rados_aio_remove(io, path.c_str(), window.begin()));
      continue;
    }
    const std::vector<char> bytes = content(path);
    total += bytes.size();
    must(path, rados_aio_write_full(io, path.c_str(), window.begin(), bytes.data(), bytes.size()));
  }
  window.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (what == "write") std::printf("%zu\t%.6f\n", total, seconds.count());
  rados_ioctx_destroy(io);
  rados_shutdown(cluster);
  return 0;
}
