// SPDX-License-Identifier: Apache-2.0
#include "identity/certificate_store.h"

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

}  // namespace fairway
