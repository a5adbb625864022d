// SPDX-License-Identifier: Apache-2.0
// The SQLite database in a controller's data directory. Only .cc files of this folder include it.
#ifndef FAIRWAY_IDENTITY_DATABASE_H_
#define FAIRWAY_IDENTITY_DATABASE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace fairway {

// The open database, with the tables of this version. One process has it at one time.
class Database {
 public:
  // Makes `directory` and the database in it, unless they are there. Errors: as TokenStore::Open.
  static absl::StatusOr<std::shared_ptr<Database>> Open(const std::string& directory);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Held by whoever runs statements, until a transaction has ended.
  std::mutex& mutex() { return mu_; }
  sqlite3* handle() { return database_; }

 private:
  Database() = default;
  // The tables, as this version wants them.
  absl::Status Prepare(const std::string& path);

  int lock_ = -1;  // a file that this process alone has locked
  std::mutex mu_;
  sqlite3* database_ = nullptr;  // guarded by mu_
};

// One statement, run once.
class Statement {
 public:
  Statement(sqlite3* database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // The next of its values, for the ?s in their order.
  Statement& With(int64_t value);
  Statement& With(std::string_view text);
  Statement& With(std::span<const uint8_t> bytes);
  Statement& With(std::chrono::sys_seconds time);  // as seconds since 1970

  // True: there is a row, or another one. False: it has ended.
  // RESOURCE_EXHAUSTED: the disk is full. FAILED_PRECONDITION: the file is damaged. UNAVAILABLE.
  absl::StatusOr<bool> Next();
  absl::Status Run() { return Next().status(); }

  // Of the row.
  int64_t Number(int column);
  std::chrono::sys_seconds Time(int column);
  std::string Bytes(int column);
  // FAILED_PRECONDITION: it has not as many bytes.
  absl::Status Bytes(int column, std::span<uint8_t> to);

 private:
  void Keep(int code);

  sqlite3* const database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  int code_ = 0;  // the first error; 0: none
};

// Undoes what was done since it began, unless it was committed.
class Transaction {
 public:
  explicit Transaction(sqlite3* database) : database_(database) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  absl::Status Begin();
  absl::Status Commit();

 private:
  sqlite3* const database_;
  bool open_ = false;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_DATABASE_H_
