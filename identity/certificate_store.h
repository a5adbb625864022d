// SPDX-License-Identifier: Apache-2.0
// The certificates that a controller has issued, in its data directory.
#ifndef FAIRWAY_IDENTITY_CERTIFICATE_STORE_H_
#define FAIRWAY_IDENTITY_CERTIFICATE_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "identity/certificates.h"
#include "identity/revocations.h"

namespace fairway {

class Database;

// What is known of a certificate that the controller has issued.
struct CertificateRecord {
  int64_t id = 0;      // 1, 2, 3, ...; never given again
  std::string worker;  // whose it is
  CertificateFacts facts;
  std::string pem;
  int64_t token = 0;  // by which it was asked for; 0: by the certificate before
  std::chrono::sys_seconds issued{};
  std::chrono::sys_seconds revoked{};  // the epoch: it is not
};

// What was revoked with a worker.
struct RevokedWorker {
  int certificates = 0;  // that counted, and were issued here
  int tokens = 0;        // by which it could have joined
};

// What a call has done when it returns OK outlives the process and the host; what it has not done
// leaves no trace. Thread-safe. Each call may wait for the disk.
class CertificateStore {
 public:
  // Of all workers, and of one, that have not expired.
  static constexpr int64_t kMost = 100'000;
  static constexpr int64_t kMostOfWorker = 64;

  explicit CertificateStore(std::shared_ptr<Database> database) : database_(std::move(database)) {}

  // Records it, and counts a use of its token, if it has one. Forgets those that have expired.
  // RESOURCE_EXHAUSTED: there are kMost or kMostOfWorker, or the disk is full. FAILED_PRECONDITION:
  // the token has no use left, was revoked, or is not there.
  absl::Status Keep(const CertificateRecord& record);
  // The worker's certificate for this key, asked for by this token; nullopt: none that counts.
  absl::StatusOr<std::optional<CertificateRecord>> Find(const std::string& worker, int64_t token,
                                                        const CertificateHash& key);
  // Those with ids above `after`, in their order; `most` at most.
  absl::StatusOr<std::vector<CertificateRecord>> List(int64_t after, int64_t most);
  // Revokes all certificates of the worker, also those that are not here, and the tokens by which
  // it may join. RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<RevokedWorker> Revoke(const std::string& worker, std::chrono::sys_seconds now);
  // Tells `to` what was revoked.
  absl::Status Tell(Revocations& to);

 private:
  const std::shared_ptr<Database> database_;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_CERTIFICATE_STORE_H_
