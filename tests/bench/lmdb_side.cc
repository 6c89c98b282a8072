#include "lmdb_side.h"

namespace {

void must(int outcome) {
  if (outcome != MDB_SUCCESS) fail(std::string("LMDB: ") + mdb_strerror(outcome));
}

MDB_val value_of(const void* data, std::size_t bytes) { return {bytes, const_cast<void*>(data)}; }

}  // namespace

LmdbFile::LmdbFile(const std::string& path, bool by_key, Use use) : by_key_(by_key) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 30;
  const unsigned how = use == Use::kRead ? MDB_RDONLY | MDB_NOTLS : MDB_NOSYNC | MDB_NOMETASYNC;
  must(mdb_env_create(&environment_));
  must(mdb_env_set_mapsize(environment_, kMostBytes));
  must(mdb_env_open(environment_, path.c_str(), MDB_NOSUBDIR | how, 0600));
  const unsigned keys = by_key_ ? 0 : MDB_INTEGERKEY;
  MDB_txn* transaction = nullptr;
  must(mdb_txn_begin(environment_, nullptr, use == Use::kRead ? MDB_RDONLY : 0, &transaction));
  must(
      mdb_dbi_open(transaction, nullptr, keys | (use == Use::kWrite ? MDB_CREATE : 0), &database_));
  must(mdb_txn_commit(transaction));
}

LmdbFile::~LmdbFile() {
  if (writing_ != nullptr) mdb_txn_abort(writing_);
  mdb_env_close(environment_);
}

void LmdbFile::append(std::uint64_t number, std::string_view key, sml::ByteView bytes) {
  constexpr std::uint64_t kRecordsPerTransaction = 1024;
  if (writing_ == nullptr) must(mdb_txn_begin(environment_, nullptr, 0, &writing_));
  MDB_val name = by_key_ ? value_of(key.data(), key.size()) : value_of(&number, sizeof number);
  MDB_val value = value_of(bytes.data(), bytes.size());
  must(mdb_put(writing_, database_, &name, &value, MDB_APPEND));
  if (++appended_ % kRecordsPerTransaction == 0) {
    must(mdb_txn_commit(writing_));
    writing_ = nullptr;
  }
}

void LmdbFile::finish() {
  if (writing_ != nullptr) must(mdb_txn_commit(writing_));
  writing_ = nullptr;
  must(mdb_env_sync(environment_, 1));
}

namespace {

// A read transaction for each batch.
class LmdbSide final : public Side {
 public:
  explicit LmdbSide(const LmdbFile& file) : file_(file) {
    must(mdb_txn_begin(file_.environment(), nullptr, MDB_RDONLY, &transaction_));
    mdb_txn_reset(transaction_);
  }
  ~LmdbSide() override { mdb_txn_abort(transaction_); }
  LmdbSide(const LmdbSide&) = delete;
  LmdbSide& operator=(const LmdbSide&) = delete;

  std::uint64_t read(const Batch& batch, Look look) override {
    must(mdb_txn_renew(transaction_));
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < batch.numbers.size(); ++i) {
      MDB_val name = file_.by_key() ? value_of(batch.names[i].data(), batch.names[i].size())
                                    : value_of(&batch.numbers[i], sizeof batch.numbers[i]);
      MDB_val value;
      must(mdb_get(transaction_, file_.database(), &name, &value));
      sum += look_at({static_cast<const std::byte*>(value.mv_data), value.mv_size}, look);
    }
    mdb_txn_reset(transaction_);
    return sum;
  }

 private:
  const LmdbFile& file_;
  MDB_txn* transaction_ = nullptr;
};

}  // namespace

std::unique_ptr<Side> lmdb_side(const LmdbFile& file) { return std::make_unique<LmdbSide>(file); }
