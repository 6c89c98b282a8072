# What the libraries link to. The build includes this file, and so does the installed package: a
# static library passes its dependencies on to whoever links it. Everything comes from the system.
find_package(PkgConfig REQUIRED)
pkg_check_modules(SML_ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(SML_ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(SML_XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(SML_ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
find_package(Boost REQUIRED COMPONENTS filesystem)
