// SPDX-License-Identifier: Apache-2.0
#include "identity/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fairway {
namespace {

constexpr int kVersion = 2;  // of the tables; SQLite keeps it as user_version

// Times are seconds since 1970.
constexpr char kTokens[] = R"(
  CREATE TABLE tenants(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
  CREATE TABLE tokens(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE CHECK(length(hash) = 32),
    role TEXT NOT NULL,
    tenant INTEGER REFERENCES tenants(id),
    worker TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    uses INTEGER NOT NULL,     -- left; -1: any
    revoked INTEGER NOT NULL   -- 0: it is not
  );
)";

// Since version 2.
constexpr char kCertificates[] = R"(
  CREATE TABLE certificates(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,        -- of the worker
    serial TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE CHECK(length(hash) = 32),  -- SHA-256 of its bytes (DER)
    key BLOB NOT NULL CHECK(length(key) = 32),           -- SHA-256 of its public key (DER)
    pem TEXT NOT NULL,
    token INTEGER NOT NULL,    -- by which it was asked for; 0: by the certificate before
    issued INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER NOT NULL   -- 0: it is not
  );
  CREATE INDEX certificates_of ON certificates(name);
  -- Workers of which no certificate counts but those above that are not revoked.
  CREATE TABLE revocations(name TEXT PRIMARY KEY, revoked INTEGER NOT NULL);
)";

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

}  // namespace

Statement::Statement(sqlite3* database, std::string_view sql) : database_(database) {
  code_ =
      sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::With(int64_t value) {
  Keep(sqlite3_bind_int64(statement_, ++bound_, value));
  return *this;
}

Statement& Statement::With(std::string_view text) {
  Keep(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                         SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::With(std::span<const uint8_t> bytes) {
  Keep(sqlite3_bind_blob(statement_, ++bound_, bytes.data(), static_cast<int>(bytes.size()),
                         SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::With(std::chrono::sys_seconds time) {
  return With(int64_t{time.time_since_epoch().count()});
}

absl::StatusOr<bool> Statement::Next() {
  if (code_ == SQLITE_OK) code_ = sqlite3_step(statement_);
  const int code = std::exchange(code_, SQLITE_OK);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ErrorOf(database_, code);
}

int64_t Statement::Number(int column) { return sqlite3_column_int64(statement_, column); }

std::chrono::sys_seconds Statement::Time(int column) {
  return std::chrono::sys_seconds(std::chrono::seconds(Number(column)));
}

std::string Statement::Bytes(int column) {
  const void* const data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string()
                         : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

absl::Status Statement::Bytes(int column, std::span<uint8_t> to) {
  const std::string bytes = Bytes(column);
  if (bytes.size() != to.size()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the controller's data directory: a row has a hash of {} bytes, not {}",
                 bytes.size(), to.size());
  }
  std::ranges::copy(bytes, to.begin());
  return absl::OkStatus();
}

void Statement::Keep(int code) {
  if (code_ == SQLITE_OK) code_ = code;
}

Transaction::~Transaction() {
  if (open_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::Status Transaction::Begin() {
  FAIRWAY_RETURN_IF_ERROR(Statement(database_, "BEGIN IMMEDIATE").Run());
  open_ = true;
  return absl::OkStatus();
}

absl::Status Transaction::Commit() {
  FAIRWAY_RETURN_IF_ERROR(Statement(database_, "COMMIT").Run());
  open_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Database>> Database::Open(const std::string& directory) {
  FAIRWAY_RETURN_IF_ERROR(MakeDirectory(directory));
  std::shared_ptr<Database> database(new Database);
  FAIRWAY_ASSIGN_OR_RETURN(database->lock_, OpenPrivate(directory + "/lock"));
  if (::flock(database->lock_, LOCK_EX | LOCK_NB) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "{}: another process uses this directory; one controller at one time may",
                 directory);
  }
  const std::string path = directory + "/fairway.db";
  // SQLite gives the files beside it the same mode.
  FAIRWAY_ASSIGN_OR_RETURN(const int file, OpenPrivate(path));
  ::close(file);
  FAIRWAY_RETURN_IF_ERROR(Annotate(database->Prepare(path), path));
  return database;
}

Database::~Database() {
  sqlite3_close(database_);
  if (lock_ >= 0) ::close(lock_);
}

absl::Status Database::Prepare(const std::string& path) {
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
  int64_t found = 0;
  {
    Statement version(database_, "PRAGMA user_version");
    FAIRWAY_RETURN_IF_ERROR(version.Run());
    found = version.Number(0);
  }
  if (found == kVersion) return absl::OkStatus();
  if (found < 0 || found > kVersion) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "its format is {}, and this version of Fairway knows {}; start the version that "
                 "wrote it, or a newer one",
                 found, kVersion);
  }
  const std::string sql = fmt::format("BEGIN; {} {} PRAGMA user_version = {}; COMMIT;",
                                      found < 1 ? kTokens : "", kCertificates, kVersion);
  const int code = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  const absl::Status failed = ErrorOf(database_, code);
  sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  return failed;
}

}  // namespace fairway
