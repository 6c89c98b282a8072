#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdlib>
#include <iostream>

#include <doctest/doctest.h>

int main(int count, char** arguments) {
  if (std::getenv("SML_TEST_POOLS") == nullptr) {
    std::cout << "SML_TEST_POOLS names no pools of a cluster to test with\n";
    return 77;
  }
  return doctest::Context(count, arguments).run();
}
