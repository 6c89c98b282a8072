// Records in an LMDB file: by number, or by key.
#pragma once

#include <memory>
#include <string>

#include <lmdb.h>

#include "side.h"

class LmdbFile {
 public:
  // To be written, a new file; to be read, by several threads.
  enum class Use : std::uint8_t { kWrite, kRead };
  LmdbFile(const std::string& path, bool by_key, Use use);
  ~LmdbFile();
  LmdbFile(const LmdbFile&) = delete;
  LmdbFile& operator=(const LmdbFile&) = delete;

  bool by_key() const { return by_key_; }
  MDB_env* environment() const { return environment_; }
  MDB_dbi database() const { return database_; }

  // In ascending order of what they are found by.
  void append(std::uint64_t number, std::string_view key, sml::ByteView bytes);
  // Makes what was appended lasting.
  void finish();

 private:
  MDB_env* environment_ = nullptr;
  MDB_dbi database_ = 0;
  MDB_txn* writing_ = nullptr;
  bool by_key_;
  std::uint64_t appended_ = 0;
};

std::unique_ptr<Side> lmdb_side(const LmdbFile& file);
