// SPDX-License-Identifier: Apache-2.0
#include "worker/process/take_revocations.h"

#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "wire/link_codec.h"

namespace fairway {

absl::Status TakeRevocations(const v1::RevokedWorkers& message, TlsIdentity* tls) {
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<Revocation> revocations, RevocationsFromProto(message));
  if (tls == nullptr) return absl::OkStatus();
  for (Revocation& one : revocations) tls->revocations().Learn(std::move(one));
  const size_t ended = tls->revocations().EndRevoked();
  if (ended > 0)
    spdlog::warn("{} connections with workers whose certificates were revoked are ended", ended);
  return absl::OkStatus();
}

}  // namespace fairway
