// What the library and its module for librados know of each other. They are built together.
#pragma once

#include <string>

#include "objects.h"

namespace sml {

inline constexpr char kObjectsModule[] = "libsmlrados.so";
// Changes with anything that crosses the border, so that a module of another version is refused.
inline constexpr char kObjectsModuleEntry[] = "smlrados_open_1";

// Where connecting failed.
enum class ObjectsStep {
  kSettings,    // a file could not be read or a setting was not taken; `what` names it
  kNoSettings,  // nothing names a monitor; `what` is the file that was looked for, if one was named
  kConnect,
  kPool,
};

struct ObjectsFailure {
  int error = 0;  // a negative errno
  ObjectsStep step = ObjectsStep::kSettings;
  std::string user;  // such as client.admin
  std::string what;
};

// Null on failure. Throws nothing but std::bad_alloc.
using OpenObjects = Objects*(const ObjectsOptions& options, ObjectsFailure& failure);

}  // namespace sml
