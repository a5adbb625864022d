// SPDX-License-Identifier: Apache-2.0
#include "identity/revocations.h"

#include "identity/token.h"

namespace fairway {

void Revocations::Revoke(const std::string& worker, std::chrono::sys_seconds when) {
  const std::lock_guard lock(mu_);
  workers_[worker] = {when, {}};
}

void Revocations::Permit(const std::string& worker, const CertificateHash& hash) {
  const std::lock_guard lock(mu_);
  const auto it = workers_.find(worker);
  if (it != workers_.end()) it->second.since.insert(hash);
}

absl::Status Revocations::Check(const Subject& subject, const CertificateHash& hash) const {
  if (subject.role != Role::kWorker) return absl::OkStatus();
  const std::lock_guard lock(mu_);
  const auto it = workers_.find(subject.name);
  if (it == workers_.end() || it->second.since.contains(hash)) return absl::OkStatus();
  return Error(absl::StatusCode::kPermissionDenied,
               "the certificate of worker {} was revoked on {}; if it is to come back, let it join "
               "again (`fairway token create --worker {}`)",
               subject.name, TimeText(it->second.when), subject.name);
}

}  // namespace fairway
