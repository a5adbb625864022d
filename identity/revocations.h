// SPDX-License-Identifier: Apache-2.0
// Workers whose certificates were revoked.
#ifndef FAIRWAY_IDENTITY_REVOCATIONS_H_
#define FAIRWAY_IDENTITY_REVOCATIONS_H_

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/status.h"
#include "identity/certificates.h"

namespace fairway {

// By the worker's name, since `fairway issue` makes certificates of which no controller knows: of a
// worker that was revoked those count that the controller has issued since then, and no others.
// Thread-safe.
class Revocations {
 public:
  // From now on none of the worker's certificates counts.
  void Revoke(const std::string& worker, std::chrono::sys_seconds when);
  // But this one does: the controller has issued it since.
  void Permit(const std::string& worker, const CertificateHash& hash);
  // PERMISSION_DENIED: the certificate with this hash, which names `subject`, was revoked.
  absl::Status Check(const Subject& subject, const CertificateHash& hash) const;

 private:
  struct Revoked {
    std::chrono::sys_seconds when{};
    std::set<CertificateHash> since;  // of those that count
  };
  mutable std::mutex mu_;
  std::map<std::string, Revoked> workers_;  // guarded by mu_
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_REVOCATIONS_H_
