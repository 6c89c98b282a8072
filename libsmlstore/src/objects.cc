#include "objects.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <dlfcn.h>
#include <fmt/format.h>

#include "objects_module.h"
#include "quote.h"
#include "smlformat/error.h"

namespace sml {
namespace {

#ifdef SML_RADOS
struct Module {
  OpenObjects* open = nullptr;
  std::string problem;
};

// Never unloaded: librados' threads and destructors outlive any use of it.
Module load_module() {
  Module module;
  void* const handle = dlopen(kObjectsModule, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) {
    module.open = reinterpret_cast<OpenObjects*>(dlsym(handle, kObjectsModuleEntry));
  }
  if (module.open == nullptr) {
    const char* const text = dlerror();
    module.problem = text != nullptr ? text : kObjectsModule;
    for (char& c : module.problem) {
      if (c == '\n') c = ' ';
    }
  }
  return module;
}

OpenObjects& entry() {
  static const Module module = load_module();
  if (module.open != nullptr) return *module.open;
  // "librados.so.2: cannot open shared object file: No such file or directory"
  if (module.problem.starts_with("librados.so")) {
    throw Error(ErrorCode::kUnsupported, "support for Ceph needs librados, which is not installed",
                "apt install librados2, or dnf install librados2");
  }
  throw Error(ErrorCode::kUnsupported,
              fmt::format("support for Ceph cannot be loaded: {}", module.problem));
}
#else
OpenObjects& entry() { throw Error(ErrorCode::kUnsupported, "this build has no support for Ceph"); }
#endif

Error failure_error(const ObjectsOptions& options, const ObjectsFailure& failure) {
  // What librados makes of an address or a name that it cannot resolve.
  if (failure.step == ObjectsStep::kConnect && failure.error == -EINVAL) {
    return Error(ErrorCode::kIo,
                 "settings of Ceph: the monitors' addresses (mon_host) are no good");
  }
  const std::string reason = std::generic_category().message(-failure.error);
  switch (failure.step) {
    case ObjectsStep::kSettings:
      return Error(ErrorCode::kIo, fmt::format("settings of Ceph: {}: {}", failure.what, reason));
    case ObjectsStep::kNoSettings:
      return Error(ErrorCode::kUnavailable,
                   failure.what.empty()
                       ? "no settings of Ceph were found that name a monitor"
                       : fmt::format("settings of Ceph: {} names no monitor", failure.what),
                   "a cluster's ceph.conf is looked for in /etc/ceph, or where CEPH_CONF says");
    case ObjectsStep::kConnect:
    case ObjectsStep::kPool:
      break;
  }
  switch (failure.error) {
    case -ETIMEDOUT:
      return Error(ErrorCode::kUnavailable,
                   fmt::format("no answer from the monitors within {:g} s", options.timeout_s),
                   "'ceph -s' shows whether the cluster is well; --ceph-timeout waits longer");
    case -EACCES:
    case -EPERM:
      return Error(
          ErrorCode::kIo, fmt::format("{} is not permitted to use the cluster", failure.user),
          fmt::format("'ceph auth get {}' shows its key and what it may do", failure.user));
    case -ENOENT:
      if (failure.step == ObjectsStep::kPool) {
        return Error(ErrorCode::kNotFound, fmt::format("no such pool {}", quote(options.pool)));
      }
      return Error(
          ErrorCode::kIo,
          fmt::format("{} is not permitted to use the cluster: no key of it was found",
                      failure.user),
          fmt::format("keys are looked for in /etc/ceph/ceph.{}.keyring, or where 'keyring' in "
                      "ceph.conf says",
                      failure.user));
    default:
      return Error(ErrorCode::kIo,
                   fmt::format("{}: {}",
                               failure.step == ObjectsStep::kPool
                                   ? fmt::format("pool {}", quote(options.pool))
                                   : fmt::format("connecting to Ceph as {}", failure.user),
                               reason));
  }
}

}  // namespace

std::unique_ptr<Objects> open_objects(const ObjectsOptions& options) {
  ObjectsFailure failure;
  std::unique_ptr<Objects> objects(entry()(options, failure));
  if (objects == nullptr) throw failure_error(options, failure);
  return objects;
}

}  // namespace sml
