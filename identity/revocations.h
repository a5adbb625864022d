// SPDX-License-Identifier: Apache-2.0
// Workers whose certificates were revoked.
#ifndef FAIRWAY_IDENTITY_REVOCATIONS_H_
#define FAIRWAY_IDENTITY_REVOCATIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "identity/certificates.h"

namespace fairway {

// Of one worker.
struct Revocation {
  std::string worker;
  std::chrono::sys_seconds when{};
  // Those that were issued since then count, until they expire.
  std::map<CertificateHash, std::chrono::sys_seconds> since = {};

  friend bool operator==(const Revocation&, const Revocation&) = default;
};

// By the worker's name, since `fairway issue` makes certificates of which no controller knows: of a
// worker that was revoked those count that the controller has issued since then, and no others. The
// controller's are the truth; it tells those who take connections of workers.
// Thread-safe.
class Revocations {
 public:
  Revocations();

  // From now on none of the worker's certificates counts.
  void Revoke(const std::string& worker, std::chrono::sys_seconds when);
  // But this one does, which expires at `end`: the controller has issued it since.
  void Permit(const std::string& worker, const CertificateHash& hash, std::chrono::sys_seconds end);
  // What the controller says of a worker, in place of what it said before.
  void Learn(Revocation revocation);
  // PERMISSION_DENIED: the certificate with this hash, which names `subject`, was revoked.
  absl::Status Check(const Subject& subject, const CertificateHash& hash) const;

  std::vector<Revocation> All() const;
  // nullopt: the worker was never revoked.
  std::optional<Revocation> Find(const std::string& worker) const;
  // `changed` is called after each Revoke, and each Permit of a worker that was revoked, on the
  // thread that did so. Called before others use this.
  void set_changed(std::function<void(const std::string& worker)> changed) {
    changed_ = std::move(changed);
  }

  // A connection whose peer has shown this certificate stands until the returned pointer is gone.
  // `end` ends it; it is called on any thread, perhaps while that pointer goes.
  std::shared_ptr<void> Stand(Subject subject, const CertificateHash& hash,
                              std::function<void()> end);
  // Ends those that stand with certificates that count no longer. Returns how many.
  size_t EndRevoked();

 private:
  struct Standing {
    Subject subject;
    CertificateHash hash;
    std::function<void()> end;
  };
  // Shared with those who hold what Stand returned.
  struct State {
    std::mutex mu;
    std::map<std::string, Revocation> workers;  // guarded by mu
    std::map<uint64_t, Standing> standing;      // the same
    uint64_t next = 1;                          // the same
  };
  // With state_->mu held.
  bool Counts(const Subject& subject, const CertificateHash& hash) const;

  const std::shared_ptr<State> state_;
  std::function<void(const std::string& worker)> changed_;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_REVOCATIONS_H_
