// SPDX-License-Identifier: Apache-2.0
// link_codec.h: workers whose certificates were revoked.
#include <algorithm>
#include <chrono>
#include <utility>

#include "wire/link_codec.h"

namespace fairway {

void ToProto(const Revocation& revocation, v1::RevokedWorkers::Worker* out) {
  out->set_name(revocation.worker);
  out->set_revoked_s(revocation.when.time_since_epoch().count());
  for (const auto& [hash, end] : revocation.since) {
    v1::RevokedWorkers::Certificate* const to = out->add_since();
    to->set_sha256(hash.data(), hash.size());
    to->set_expires_s(end.time_since_epoch().count());
  }
}

absl::StatusOr<std::vector<Revocation>> RevocationsFromProto(const v1::RevokedWorkers& in) {
  if (static_cast<size_t>(in.workers_size()) > kMaxRevokedWorkers)
    return InvalidArgument("RevokedWorkers: {} workers", in.workers_size());
  std::vector<Revocation> out;
  for (const auto& worker : in.workers()) {
    Revocation& revocation = out.emplace_back();
    FAIRWAY_RETURN_IF_ERROR(
        Annotate(SubjectOfUri(UriOf({Role::kWorker, worker.name()})).status(), "RevokedWorkers"));
    revocation.worker = worker.name();
    revocation.when = std::chrono::sys_seconds(std::chrono::seconds(worker.revoked_s()));
    if (static_cast<size_t>(worker.since_size()) > kMaxCertificatesSince)
      return InvalidArgument("RevokedWorkers: {} certificates of {}", worker.since_size(),
                             worker.name());
    for (const auto& certificate : worker.since()) {
      const std::string& bytes = certificate.sha256();
      CertificateHash hash{};
      if (bytes.size() != hash.size())
        return InvalidArgument("RevokedWorkers: a hash of {} bytes", bytes.size());
      std::copy(bytes.begin(), bytes.end(), hash.begin());
      revocation.since[hash] =
          std::chrono::sys_seconds(std::chrono::seconds(certificate.expires_s()));
    }
  }
  return out;
}

}  // namespace fairway
