// SPDX-License-Identifier: Apache-2.0
#include "identity/token_store.h"

#include <sqlite3.h>

#include <utility>

#include "identity/certificates.h"
#include "identity/database.h"

namespace fairway {
namespace {

using std::chrono::sys_seconds;

constexpr auto kLongestLife = std::chrono::hours(24) * 36500;
constexpr auto kKeptAfterItsEnd = std::chrono::hours(24) * 30;
constexpr int64_t kMostUses = 1'000'000;

absl::StatusOr<TokenStore::Kept> KeptIn(Statement& row) {
  TokenStore::Kept out;
  TokenRecord& record = out.record;
  record.id = row.Number(0);
  FAIRWAY_RETURN_IF_ERROR(Annotate(row.Bytes(1, out.hash), fmt::format("token {}", record.id)));
  FAIRWAY_ASSIGN_OR_RETURN(record.role, TokenRoleOf(row.Bytes(2)));
  record.tenant = row.Bytes(3);
  record.worker = row.Bytes(4);
  record.created = row.Time(5);
  record.expires = row.Time(6);
  record.uses = row.Number(7);
  record.revoked = row.Time(8);
  return out;
}

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
  const sys_seconds before = now - kKeptAfterItsEnd;
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
  FAIRWAY_ASSIGN_OR_RETURN(auto database, Database::Open(directory));
  return std::unique_ptr<TokenStore>(new TokenStore(std::move(database)));
}

absl::StatusOr<std::vector<TokenStore::Kept>> TokenStore::All() {
  const std::lock_guard lock(database_->mutex());
  sqlite3* const database = database_->handle();
  Statement rows(
      database,
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
  const std::lock_guard lock(database_->mutex());
  sqlite3* const database = database_->handle();
  Transaction transaction(database);
  FAIRWAY_RETURN_IF_ERROR(transaction.Begin());
  FAIRWAY_RETURN_IF_ERROR(MakeRoom(database, now));
  int64_t tenant = 0;  // none
  if (!spec.tenant.empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(tenant, TenantId(database, spec.tenant));
  }
  Statement add(database,
                "INSERT INTO tokens(hash, role, tenant, worker, created, expires, uses, revoked) "
                "VALUES(?, ?, NULLIF(?, 0), ?, ?, ?, ?, 0)");
  FAIRWAY_RETURN_IF_ERROR(add.With(made.kept.hash)
                              .With(NameOf(spec.role))
                              .With(tenant)
                              .With(record.worker)
                              .With(record.created)
                              .With(record.expires)
                              .With(record.uses)
                              .Run());
  record.id = sqlite3_last_insert_rowid(database);
  FAIRWAY_RETURN_IF_ERROR(transaction.Commit());
  return made;
}

absl::Status TokenStore::Revoke(int64_t id, sys_seconds now) {
  const std::lock_guard lock(database_->mutex());
  sqlite3* const database = database_->handle();
  // The time is never 0, which says that it is not revoked.
  Statement revoke(database, "UPDATE tokens SET revoked = MAX(?, 1) WHERE id = ? AND revoked = 0");
  FAIRWAY_RETURN_IF_ERROR(revoke.With(now).With(id).Run());
  if (sqlite3_changes(database) == 1) return absl::OkStatus();
  Statement find(database, "SELECT id FROM tokens WHERE id = ?");
  FAIRWAY_ASSIGN_OR_RETURN(const bool found, find.With(id).Next());
  if (found) return absl::OkStatus();
  return Error(absl::StatusCode::kNotFound, "there is no token {}; `fairway token list` names all",
               id);
}

absl::Status UseToken(sqlite3* database, int64_t id) {
  Statement use(database,
                "UPDATE tokens SET uses = uses - 1 WHERE id = ? AND uses > 0 AND revoked = 0");
  FAIRWAY_RETURN_IF_ERROR(use.With(id).Run());
  if (sqlite3_changes(database) == 1) return absl::OkStatus();
  return Error(
      absl::StatusCode::kFailedPrecondition,
      "token {} was used as often as it may be, by others; ask an admin for another (`fairway "
      "token create`)",
      id);
}

}  // namespace fairway
