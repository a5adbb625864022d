// SPDX-License-Identifier: Apache-2.0
// Signs the certificates of workers for a controller that has the CA's key, and records them.
#ifndef FAIRWAY_IDENTITY_ISSUER_H_
#define FAIRWAY_IDENTITY_ISSUER_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "identity/certificate_store.h"
#include "identity/gate.h"

namespace fairway {

struct IssuerOptions {
  std::string ca;                   // PEM file: all CAs of the cluster
  std::string ca_key;               // PEM file of the key of the one that signs; empty: none does
  std::chrono::seconds lifetime{};  // of a worker's certificate
};

// Thread-safe. Each call waits for the disk, so none is made in an event loop.
class Issuer {
 public:
  // Tells `revocations` what was revoked before. `gate` and it outlive this. Errors: those of the
  // store.
  static absl::StatusOr<std::unique_ptr<Issuer>> Open(Gate* gate, Revocations* revocations,
                                                      IssuerOptions options);

  // FAILED_PRECONDITION: this controller has not the CA's key. Does not wait.
  absl::Status MayIssue(const std::string& worker) const;

  // A certificate for a worker that joins by a token, of which it counts a use. Whoever asks again
  // with the same token and key gets the same certificate again, since the answer may have been
  // lost. Nothing of `request` (PKCS #10, PEM) counts but its key. INVALID_ARGUMENT: it is no such
  // request. Other errors: MayIssue, Gate::Use, CertificateStore::Keep.
  absl::StatusOr<IssuedCertificate> Join(const Caller& caller, const std::string& request);
  // The next certificate of a worker that has just shown the one with this hash; with the same key
  // the same again, until half its life has passed: the worker may have failed to write it.
  // PERMISSION_DENIED: that was revoked meanwhile.
  absl::StatusOr<IssuedCertificate> Renew(const std::string& worker, const CertificateHash& shown,
                                          const std::string& request);

  // All certificates of the worker count no longer, from now on, nor do the tokens by which it may
  // join. INVALID_ARGUMENT: no worker can have that name. RESOURCE_EXHAUSTED or UNAVAILABLE: the
  // same, but it could not be written down, so that they would count again in the next process.
  absl::StatusOr<RevokedWorker> Revoke(const std::string& worker);
  // The same, and it is not written down. Does not wait.
  absl::Status RevokeHere(const std::string& worker);
  // What Revoke returns when `why` keeps it from being written down.
  static absl::Status NotWrittenDown(const std::string& worker, absl::Status why);
  // As CertificateStore::List.
  absl::StatusOr<std::vector<CertificateRecord>> List(int64_t after, int64_t most) {
    return store_.List(after, most);
  }

 private:
  // Signs it, and records nothing.
  absl::StatusOr<CertificateRecord> Sign(const std::string& worker, const std::string& request,
                                         std::string* authorities) const;

  Issuer(Gate* gate, Revocations* revocations, IssuerOptions options);
  // Records it.
  absl::Status Keep(const CertificateRecord& record);

  Gate* const gate_;
  Revocations* const revocations_;
  const IssuerOptions options_;
  CertificateStore store_;
  std::mutex mu_;  // one certificate is issued, or worker revoked, at a time
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_ISSUER_H_
