// SPDX-License-Identifier: Apache-2.0
// The tokens of a cluster, in the controller's data directory.
#ifndef FAIRWAY_IDENTITY_TOKEN_STORE_H_
#define FAIRWAY_IDENTITY_TOKEN_STORE_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "identity/token.h"

struct sqlite3;

namespace fairway {

class Database;

// What a new token is to be.
struct TokenSpec {
  TokenRole role = TokenRole::kViewer;
  std::string tenant = {};  // of a user's, which has one; else empty
  std::string worker = {};  // of a worker's, which has one: its name; else empty
  std::chrono::seconds lifetime{};
  int64_t uses = TokenRecord::kAnyUses;  // of a worker's; else kAnyUses
};

// INVALID_ARGUMENT: the parts do not belong together, or a token may not live so long.
absl::Status CheckSpec(const TokenSpec& spec);

// Keeps tokens and tenants' names in SQLite. What a call has done when it returns OK outlives the
// process and the host; what it has not done leaves no trace. Secrets are kept as hashes only.
//
// Thread-safe. Each call may wait for the disk, so none is made in an event loop.
class TokenStore {
 public:
  // The most tokens that a store holds. Those that counted no longer 30 days ago make room.
  static constexpr int64_t kMostTokens = 100'000;

  // Whether it is kept no longer than until the next token is made.
  static bool IsPast(const TokenRecord& token, std::chrono::sys_seconds now);

  // Makes `directory` and the store in it, unless they are there. One process has a store at one
  // time, while the object lives.
  // FAILED_PRECONDITION: another process has it; other users can reach the directory; a newer
  // version of this program, or something else, has written its files. RESOURCE_EXHAUSTED: the disk
  // is full. UNAVAILABLE: the directory cannot be used; the text says why.
  static absl::StatusOr<std::unique_ptr<TokenStore>> Open(const std::string& directory);

  // For what is kept beside the tokens.
  const std::shared_ptr<Database>& database() const { return database_; }

  struct Kept {
    TokenRecord record;
    TokenHash hash{};
  };
  // In the order of their ids.
  absl::StatusOr<std::vector<Kept>> All();

  struct Made {
    Kept kept;
    std::string secret;  // which nobody can ask for again
  };
  // INVALID_ARGUMENT: CheckSpec. RESOURCE_EXHAUSTED: the disk is full, or kMostTokens are there.
  absl::StatusOr<Made> Create(const TokenSpec& spec, std::chrono::sys_seconds now);
  // A token that is revoked stays as it is. NOT_FOUND: there is no such token. RESOURCE_EXHAUSTED:
  // the disk is full.
  absl::Status Revoke(int64_t id, std::chrono::sys_seconds now);

 private:
  explicit TokenStore(std::shared_ptr<Database> database) : database_(std::move(database)) {}

  const std::shared_ptr<Database> database_;
};

// Counts a use of the token; the database's mutex is held. FAILED_PRECONDITION: it has none left,
// was revoked, or is not there. RESOURCE_EXHAUSTED: the disk is full.
absl::Status UseToken(sqlite3* database, int64_t id);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_TOKEN_STORE_H_
