// SPDX-License-Identifier: Apache-2.0
#include "identity/token_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "identity/certificates.h"

namespace fairway {
namespace {

using std::chrono::sys_seconds;

constexpr int kVersion = 1;  // of the tables; SQLite keeps it as user_version
constexpr auto kLongestLife = std::chrono::hours(24) * 36500;
constexpr auto kKeptAfterItsEnd = std::chrono::hours(24) * 30;
constexpr int64_t kMostUses = 1'000'000;

constexpr char kTables[] = R"(
  BEGIN;
  CREATE TABLE tenants(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
  CREATE TABLE tokens(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE CHECK(length(hash) = 32),
    role TEXT NOT NULL,
    tenant INTEGER REFERENCES tenants(id),
    worker TEXT NOT NULL,
    created INTEGER NOT NULL,  -- seconds since 1970, as the other times
    expires INTEGER NOT NULL,
    uses INTEGER NOT NULL,     -- left; -1: any
    revoked INTEGER NOT NULL   -- 0: it is not
  );
  PRAGMA user_version = 1;
  COMMIT;
)";

// One statement, run once.
class Statement {
 public:
  Statement(sqlite3* database, std::string_view sql) : database_(database) {
    code_ = sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement_,
                               nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // The next of its values, for the ?s in their order.
  Statement& With(int64_t value) {
    Keep(sqlite3_bind_int64(statement_, ++bound_, value));
    return *this;
  }
  Statement& With(std::string_view text) {
    Keep(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                           SQLITE_TRANSIENT));
    return *this;
  }
  Statement& With(const TokenHash& hash) {
    Keep(sqlite3_bind_blob(statement_, ++bound_, hash.data(), static_cast<int>(hash.size()),
                           SQLITE_TRANSIENT));
    return *this;
  }

  // True: there is a row, or another one. False: it has ended.
  absl::StatusOr<bool> Next();
  absl::Status Run() { return Next().status(); }

  int64_t Number(int column) { return sqlite3_column_int64(statement_, column); }
  std::string Bytes(int column) {
    const void* const data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string()
                           : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
  }

 private:
  void Keep(int code) {
    if (code_ == SQLITE_OK) code_ = code;
  }

  sqlite3* const database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  int code_ = SQLITE_OK;  // the first error
};

absl::Status ErrorOf(sqlite3* database, int code) {
  const int kind = code & 0xff;
  const char* const text = sqlite3_errmsg(database);
  if (kind == SQLITE_FULL || code == SQLITE_IOERR_WRITE) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "the controller's data directory takes no more: {}; make room on its disk", text);
  }
  if (kind == SQLITE_NOTADB || kind == SQLITE_CORRUPT) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "it is damaged, or is no file of Fairway's: {}", text);
  }
  return Error(absl::StatusCode::kUnavailable, "the controller's data directory: {}", text);
}

absl::StatusOr<bool> Statement::Next() {
  if (code_ == SQLITE_OK) code_ = sqlite3_step(statement_);
  const int code = std::exchange(code_, SQLITE_OK);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ErrorOf(database_, code);
}

// Undoes what was done since it began, unless it was committed.
class Transaction {
 public:
  explicit Transaction(sqlite3* database) : database_(database) {}
  ~Transaction() {
    if (open_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  absl::Status Begin() {
    FAIRWAY_RETURN_IF_ERROR(Statement(database_, "BEGIN IMMEDIATE").Run());
    open_ = true;
    return absl::OkStatus();
  }
  absl::Status Commit() {
    FAIRWAY_RETURN_IF_ERROR(Statement(database_, "COMMIT").Run());
    open_ = false;
    return absl::OkStatus();
  }

 private:
  sqlite3* const database_;
  bool open_ = false;
};

absl::Status Unusable(const std::string& path, int error) {
  return Error(error == ENOSPC || error == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                  : absl::StatusCode::kUnavailable,
               "{}: {}", path, std::strerror(error));
}

absl::Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Unusable(path, errno);
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return Unusable(path, errno);
  if (!S_ISDIR(facts.st_mode)) return Unusable(path, ENOTDIR);
  if (facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        "{}: other users can reach this directory (mode {:03o}), in which tokens are kept; "
        "make it this user's, and chmod 700 it",
        path, facts.st_mode & 0777);
  }
  return absl::OkStatus();
}

// Opens a file of this user alone, and makes it if it is not there.
absl::StatusOr<int> OpenPrivate(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Unusable(path, errno);
  return fd;
}

absl::StatusOr<TokenStore::Kept> KeptIn(Statement& row) {
  TokenStore::Kept out;
  TokenRecord& record = out.record;
  record.id = row.Number(0);
  const std::string hash = row.Bytes(1);
  if (hash.size() != out.hash.size()) {
    return Error(absl::StatusCode::kFailedPrecondition, "token {} has a hash of {} bytes, not {}",
                 record.id, hash.size(), out.hash.size());
  }
  std::ranges::copy(hash, out.hash.begin());
  FAIRWAY_ASSIGN_OR_RETURN(record.role, TokenRoleOf(row.Bytes(2)));
  record.tenant = row.Bytes(3);
  record.worker = row.Bytes(4);
  record.created = sys_seconds(std::chrono::seconds(row.Number(5)));
  record.expires = sys_seconds(std::chrono::seconds(row.Number(6)));
  record.uses = row.Number(7);
  record.revoked = sys_seconds(std::chrono::seconds(row.Number(8)));
  return out;
}

int64_t SecondsOf(sys_seconds time) { return time.time_since_epoch().count(); }

// The tenant's id; a tenant is known from its first token on.
absl::StatusOr<int64_t> TenantId(sqlite3* database, const std::string& name) {
  Statement add(database, "INSERT INTO tenants(name) VALUES(?) ON CONFLICT DO NOTHING");
  FAIRWAY_RETURN_IF_ERROR(add.With(name).Run());
  Statement find(database, "SELECT id FROM tenants WHERE name = ?");
  FAIRWAY_RETURN_IF_ERROR(find.With(name).Run());
  return find.Number(0);
}

// Forgets the tokens that ended long ago, and says whether there is room for another.
absl::Status MakeRoom(sqlite3* database, sys_seconds now) {
  const int64_t before = SecondsOf(now - kKeptAfterItsEnd);
  Statement forget(database,
                   "DELETE FROM tokens WHERE expires < ? OR (revoked > 0 AND revoked < ?)");
  FAIRWAY_RETURN_IF_ERROR(forget.With(before).With(before).Run());
  Statement count(database, "SELECT COUNT(*) FROM tokens");
  FAIRWAY_RETURN_IF_ERROR(count.Run());
  if (count.Number(0) < TokenStore::kMostTokens) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "there are {} tokens, and no more may be; one makes room 30 days after it has "
               "expired or was revoked",
               TokenStore::kMostTokens);
}

}  // namespace

absl::Status CheckSpec(const TokenSpec& spec) {
  if (spec.role == TokenRole::kUser) {
    FAIRWAY_RETURN_IF_ERROR(CheckTenant(spec.tenant));
  } else if (!spec.tenant.empty()) {
    return InvalidArgument("a token of role {} has no tenant; only a user's has one",
                           NameOf(spec.role));
  }
  if (spec.role == TokenRole::kWorker) {
    FAIRWAY_RETURN_IF_ERROR(SubjectOfUri(UriOf({Role::kWorker, spec.worker})).status());
  } else if (!spec.worker.empty()) {
    return InvalidArgument("a token of role {} names no worker", NameOf(spec.role));
  }
  if (spec.lifetime < std::chrono::seconds(1) || spec.lifetime > kLongestLife)
    return InvalidArgument("a token lives 1 s to 36500 days, not {} s", spec.lifetime.count());
  if (spec.uses == TokenRecord::kAnyUses) return absl::OkStatus();
  if (spec.role != TokenRole::kWorker)
    return InvalidArgument("only the uses of a worker's token are counted");
  if (spec.uses < 1 || spec.uses > kMostUses)
    return InvalidArgument("a token may be used 1 to {} times, not {}", kMostUses, spec.uses);
  return absl::OkStatus();
}

bool TokenStore::IsPast(const TokenRecord& token, sys_seconds now) {
  const sys_seconds before = now - kKeptAfterItsEnd;
  return token.expires < before || (token.revoked > sys_seconds() && token.revoked < before);
}

absl::StatusOr<std::unique_ptr<TokenStore>> TokenStore::Open(const std::string& directory) {
  FAIRWAY_RETURN_IF_ERROR(MakeDirectory(directory));
  std::unique_ptr<TokenStore> store(new TokenStore);
  FAIRWAY_ASSIGN_OR_RETURN(store->lock_, OpenPrivate(directory + "/lock"));
  if (::flock(store->lock_, LOCK_EX | LOCK_NB) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "{}: another process uses this directory; one controller at one time may",
                 directory);
  }
  const std::string path = directory + "/fairway.db";
  // SQLite gives the files beside it the same mode.
  FAIRWAY_ASSIGN_OR_RETURN(const int file, OpenPrivate(path));
  ::close(file);
  FAIRWAY_RETURN_IF_ERROR(Annotate(store->Prepare(path), path));
  return store;
}

absl::Status TokenStore::Prepare(const std::string& path) {
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
  if (const int code = sqlite3_open_v2(path.c_str(), &database_, flags, nullptr); code != SQLITE_OK)
    return ErrorOf(database_, code);
  sqlite3_extended_result_codes(database_, 1);
  // A commit is on the disk before it is answered. A process that is killed leaves a log from which
  // the next one goes on; without other processes the log needs no shared memory.
  for (const char* const pragma :
       {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
        "PRAGMA foreign_keys = ON", "PRAGMA trusted_schema = OFF"}) {
    FAIRWAY_RETURN_IF_ERROR(Statement(database_, pragma).Run());
  }
  Statement version(database_, "PRAGMA user_version");
  FAIRWAY_RETURN_IF_ERROR(version.Run());
  const int64_t found = version.Number(0);
  if (found == kVersion) return absl::OkStatus();
  if (found != 0) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "its format is {}, and this version of Fairway knows {}; start the version that "
                 "wrote it, or a newer one",
                 found, kVersion);
  }
  const int code = sqlite3_exec(database_, kTables, nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  const absl::Status failed = ErrorOf(database_, code);
  sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  return failed;
}

TokenStore::~TokenStore() {
  sqlite3_close(database_);
  if (lock_ >= 0) ::close(lock_);
}

absl::StatusOr<std::vector<TokenStore::Kept>> TokenStore::All() {
  const std::lock_guard lock(mu_);
  Statement rows(
      database_,
      "SELECT tokens.id, hash, role, name, worker, created, expires, uses, revoked FROM tokens "
      "LEFT JOIN tenants ON tenants.id = tenant ORDER BY tokens.id");
  std::vector<Kept> out;
  for (;;) {
    FAIRWAY_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return out;
    FAIRWAY_ASSIGN_OR_RETURN(Kept kept, KeptIn(rows));
    out.push_back(std::move(kept));
  }
}

absl::StatusOr<TokenStore::Made> TokenStore::Create(const TokenSpec& spec, sys_seconds now) {
  FAIRWAY_RETURN_IF_ERROR(CheckSpec(spec));
  Made made{.kept = {}, .secret = MakeTokenSecret()};
  FAIRWAY_ASSIGN_OR_RETURN(made.kept.hash, HashOfSecret(made.secret));
  TokenRecord& record = made.kept.record;
  record = {.role = spec.role,
            .tenant = spec.tenant,
            .worker = spec.worker,
            .created = now,
            .expires = now + spec.lifetime,
            .uses = spec.uses};
  const std::lock_guard lock(mu_);
  Transaction transaction(database_);
  FAIRWAY_RETURN_IF_ERROR(transaction.Begin());
  FAIRWAY_RETURN_IF_ERROR(MakeRoom(database_, now));
  int64_t tenant = 0;  // none
  if (!spec.tenant.empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(tenant, TenantId(database_, spec.tenant));
  }
  Statement add(database_,
                "INSERT INTO tokens(hash, role, tenant, worker, created, expires, uses, revoked) "
                "VALUES(?, ?, NULLIF(?, 0), ?, ?, ?, ?, 0)");
  FAIRWAY_RETURN_IF_ERROR(add.With(made.kept.hash)
                              .With(NameOf(spec.role))
                              .With(tenant)
                              .With(record.worker)
                              .With(SecondsOf(record.created))
                              .With(SecondsOf(record.expires))
                              .With(record.uses)
                              .Run());
  record.id = sqlite3_last_insert_rowid(database_);
  FAIRWAY_RETURN_IF_ERROR(transaction.Commit());
  return made;
}

absl::Status TokenStore::Revoke(int64_t id, sys_seconds now) {
  const std::lock_guard lock(mu_);
  // The time is never 0, which says that it is not revoked.
  Statement revoke(database_, "UPDATE tokens SET revoked = MAX(?, 1) WHERE id = ? AND revoked = 0");
  FAIRWAY_RETURN_IF_ERROR(revoke.With(SecondsOf(now)).With(id).Run());
  if (sqlite3_changes(database_) == 1) return absl::OkStatus();
  Statement find(database_, "SELECT id FROM tokens WHERE id = ?");
  FAIRWAY_ASSIGN_OR_RETURN(const bool found, find.With(id).Next());
  if (found) return absl::OkStatus();
  return Error(absl::StatusCode::kNotFound, "there is no token {}; `fairway token list` names all",
               id);
}

absl::Status TokenStore::Use(int64_t id) {
  const std::lock_guard lock(mu_);
  Statement use(database_,
                "UPDATE tokens SET uses = uses - 1 WHERE id = ? AND uses > 0 AND revoked = 0");
  FAIRWAY_RETURN_IF_ERROR(use.With(id).Run());
  if (sqlite3_changes(database_) == 1) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition,
               "token {} is not there, was revoked, or was used as often as it may be", id);
}

}  // namespace fairway
