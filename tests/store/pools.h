// The pools to test with, and the vectors of the format.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

inline std::vector<std::string> pools() {
  std::istringstream names(std::getenv("SML_TEST_POOLS"));
  std::vector<std::string> out;
  for (std::string name; names >> name;) out.push_back(name);
  return out;
}

inline std::string vector_path(const std::string& name) {
  return std::filesystem::path(SML_SOURCE_DIR) / "format-spec" / "vectors" / "valid" / name;
}
