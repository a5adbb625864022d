// SPDX-License-Identifier: Apache-2.0
#include "identity/certificate_store.h"

#include <sqlite3.h>

#include "identity/database.h"
#include "identity/token_store.h"

namespace fairway {
namespace {

// Whether there is room for another certificate of the worker.
absl::Status CheckRoom(sqlite3* database, const std::string& worker) {
  Statement all(database, "SELECT COUNT(*) FROM certificates");
  FAIRWAY_RETURN_IF_ERROR(all.Run());
  if (all.Number(0) >= CertificateStore::kMost) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "there are {} certificates, and no more may be; one makes room when it expires",
                 CertificateStore::kMost);
  }
  Statement own(database, "SELECT COUNT(*) FROM certificates WHERE name = ? AND revoked = 0");
  FAIRWAY_RETURN_IF_ERROR(own.With(worker).Run());
  if (own.Number(0) < CertificateStore::kMostOfWorker) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "worker {} has {} certificates, and no more may be; one makes room when it expires",
               worker, CertificateStore::kMostOfWorker);
}

constexpr std::string_view kColumns =
    "SELECT id, name, serial, hash, key, pem, token, issued, expires, revoked FROM certificates ";

absl::StatusOr<CertificateRecord> RecordIn(Statement& row) {
  CertificateRecord out;
  out.id = row.Number(0);
  out.worker = row.Bytes(1);
  out.facts.serial = row.Bytes(2);
  FAIRWAY_RETURN_IF_ERROR(row.Bytes(3, out.facts.hash));
  FAIRWAY_RETURN_IF_ERROR(row.Bytes(4, out.facts.key));
  out.pem = row.Bytes(5);
  out.token = row.Number(6);
  out.issued = row.Time(7);
  out.facts.end = row.Time(8);
  out.revoked = row.Time(9);
  return out;
}

}  // namespace

absl::Status CertificateStore::Keep(const CertificateRecord& record) {
  const std::lock_guard lock(database_->mutex());
  sqlite3* const database = database_->handle();
  Transaction transaction(database);
  FAIRWAY_RETURN_IF_ERROR(transaction.Begin());
  Statement forget(database, "DELETE FROM certificates WHERE expires < ?");
  FAIRWAY_RETURN_IF_ERROR(forget.With(record.issued).Run());
  FAIRWAY_RETURN_IF_ERROR(CheckRoom(database, record.worker));
  if (record.token != 0) FAIRWAY_RETURN_IF_ERROR(UseToken(database, record.token));
  Statement add(database,
                "INSERT INTO certificates(name, serial, hash, key, pem, token, issued, expires, "
                "revoked) VALUES(?, ?, ?, ?, ?, ?, ?, ?, 0)");
  FAIRWAY_RETURN_IF_ERROR(add.With(record.worker)
                              .With(record.facts.serial)
                              .With(record.facts.hash)
                              .With(record.facts.key)
                              .With(record.pem)
                              .With(record.token)
                              .With(record.issued)
                              .With(record.facts.end)
                              .Run());
  return transaction.Commit();
}

absl::StatusOr<std::optional<CertificateRecord>> CertificateStore::Find(
    const std::string& worker, int64_t token, const CertificateHash& key) {
  const std::lock_guard lock(database_->mutex());
  Statement row(database_->handle(),
                fmt::format("{} WHERE name = ? AND token = ? AND key = ? AND revoked = 0 ORDER BY "
                            "id DESC",
                            kColumns));
  FAIRWAY_ASSIGN_OR_RETURN(const bool found, row.With(worker).With(token).With(key).Next());
  if (!found) return std::nullopt;
  return RecordIn(row);
}

absl::StatusOr<std::vector<CertificateRecord>> CertificateStore::List(int64_t after, int64_t most) {
  const std::lock_guard lock(database_->mutex());
  Statement rows(database_->handle(), fmt::format("{} WHERE id > ? ORDER BY id LIMIT ?", kColumns));
  rows.With(after).With(most);
  std::vector<CertificateRecord> out;
  for (;;) {
    FAIRWAY_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return out;
    FAIRWAY_ASSIGN_OR_RETURN(CertificateRecord record, RecordIn(rows));
    out.push_back(std::move(record));
  }
}

absl::StatusOr<RevokedWorker> CertificateStore::Revoke(const std::string& worker,
                                                       std::chrono::sys_seconds now) {
  const std::lock_guard lock(database_->mutex());
  sqlite3* const database = database_->handle();
  Transaction transaction(database);
  FAIRWAY_RETURN_IF_ERROR(transaction.Begin());
  Statement count(
      database, "SELECT COUNT(*) FROM certificates WHERE name = ? AND revoked = 0 AND expires > ?");
  FAIRWAY_RETURN_IF_ERROR(count.With(worker).With(now).Run());
  RevokedWorker out{.certificates = static_cast<int>(count.Number(0)), .tokens = 0};
  // The time is never 0, which says that it is not revoked.
  Statement revoke(database,
                   "UPDATE certificates SET revoked = MAX(?, 1) WHERE name = ? AND revoked = 0");
  FAIRWAY_RETURN_IF_ERROR(revoke.With(now).With(worker).Run());
  Statement all(database,
                "INSERT INTO revocations(name, revoked) VALUES(?, ?) ON CONFLICT(name) DO UPDATE "
                "SET revoked = excluded.revoked");
  FAIRWAY_RETURN_IF_ERROR(all.With(worker).With(now).Run());
  Statement tokens(database,
                   "UPDATE tokens SET revoked = MAX(?, 1) WHERE worker = ? AND role = ? AND "
                   "revoked = 0 AND expires > ?");
  FAIRWAY_RETURN_IF_ERROR(
      tokens.With(now).With(worker).With(NameOf(TokenRole::kWorker)).With(now).Run());
  out.tokens = sqlite3_changes(database);
  FAIRWAY_RETURN_IF_ERROR(transaction.Commit());
  return out;
}

absl::Status CertificateStore::Tell(Revocations& to) {
  const std::lock_guard lock(database_->mutex());
  Statement workers(database_->handle(), "SELECT name, revoked FROM revocations");
  for (;;) {
    FAIRWAY_ASSIGN_OR_RETURN(const bool more, workers.Next());
    if (!more) break;
    to.Revoke(workers.Bytes(0), workers.Time(1));
  }
  Statement since(database_->handle(),
                  "SELECT certificates.name, hash, expires FROM certificates JOIN revocations ON "
                  "certificates.name = revocations.name WHERE certificates.revoked = 0");
  for (;;) {
    FAIRWAY_ASSIGN_OR_RETURN(const bool more, since.Next());
    if (!more) return absl::OkStatus();
    CertificateHash hash{};
    FAIRWAY_RETURN_IF_ERROR(since.Bytes(1, hash));
    to.Permit(since.Bytes(0), hash, since.Time(2));
  }
}

}  // namespace fairway
