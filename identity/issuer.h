// SPDX-License-Identifier: Apache-2.0
// Signs the certificates of workers for a controller that has the CA's key, and records them.
#ifndef FAIRWAY_IDENTITY_ISSUER_H_
#define FAIRWAY_IDENTITY_ISSUER_H_

#include <chrono>
#include <string>

#include "base/status.h"
#include "identity/certificate_store.h"
#include "identity/gate.h"

namespace fairway {

struct IssuerOptions {
  std::string ca;                   // PEM file: the CAs of the cluster; the first one signs
  std::string ca_key;               // PEM file of its key; empty: this controller signs nothing
  std::chrono::seconds lifetime{};  // of a worker's certificate
};

// Thread-safe. Each call waits for the disk, so none is made in an event loop.
class Issuer {
 public:
  // `gate` outlives this.
  Issuer(Gate* gate, IssuerOptions options);

  // FAILED_PRECONDITION: this controller has not the CA's key. Does not wait.
  absl::Status MayIssue(const std::string& worker) const;

  // A certificate for a worker that joins by a token, of which it counts a use. Nothing of
  // `request` (PKCS #10, PEM) counts but its key. INVALID_ARGUMENT: it is no such request.
  // Other errors: MayIssue, Gate::Use, CertificateStore::Keep.
  absl::StatusOr<IssuedCertificate> Join(const Caller& caller, const std::string& request);
  // The next certificate of a worker that has just shown one that is valid.
  absl::StatusOr<IssuedCertificate> Renew(const std::string& worker, const std::string& request);

 private:
  // Signs it, and records nothing.
  absl::StatusOr<CertificateRecord> Sign(const std::string& worker, const std::string& request,
                                         std::string* authorities) const;

  Gate* const gate_;
  const IssuerOptions options_;
  CertificateStore store_;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_ISSUER_H_
