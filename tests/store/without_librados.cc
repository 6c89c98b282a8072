// What is told where librados is not installed.
#include <iostream>

#include "objects.h"
#include "smlformat/error.h"

int main() {
  sml::ObjectsOptions options;
  options.pool = "p";
  try {
    sml::open_objects(options);
  } catch (const sml::Error& error) {
    std::cout << sml::error_code_name(error.code()) << ": " << error.what()
              << "\nhint: " << error.hint() << '\n';
    return 0;
  }
  return 1;
}
