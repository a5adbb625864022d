// SPDX-License-Identifier: Apache-2.0
// Keeps a worker's certificate from running out.
#ifndef FAIRWAY_WORKER_SUPERVISOR_CERTIFICATE_RENEWAL_H_
#define FAIRWAY_WORKER_SUPERVISOR_CERTIFICATE_RENEWAL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/status.h"
#include "fairway/v1/link.pb.h"
#include "identity/certificates.h"
#include "transport/link.h"

namespace fairway {

// When two thirds of the certificate's life have passed, asks the controller for the next one, over
// a connection of its own that shows the present one, and replaces the files. The processes of the
// worker look at them (TlsIdentity). A failure is in the log, and is tried again; it ends nothing.
//
// Owned by Supervisor. Loop-confined; lives as long as its loop runs.
class CertificateRenewal {
 public:
  using Clock = std::function<std::chrono::system_clock::time_point()>;

  // `controller`: host:port of its link port. `tls`: this worker's identity.
  CertificateRenewal(EventLoop& loop, std::string controller, std::shared_ptr<TlsIdentity> tls,
                     Clock now = std::chrono::system_clock::now);

  // Looks at the certificate now and then, from now on.
  void Start() { Look(); }

 private:
  void Look();
  // Makes a key, unless the one before has not come to a certificate, and asks.
  void Ask(const CertificateFacts& present);
  void OnConnected(absl::StatusOr<std::unique_ptr<Link>> link);
  void OnMessage(const v1::FromController& message);
  // The attempt is over. FAILED_PRECONDITION: it will fail until somebody changes the controller.
  void Ended(const absl::Status& status);

  EventLoop& loop_;
  const std::string controller_;
  const std::shared_ptr<TlsIdentity> tls_;
  const Clock now_;
  uint64_t attempt_ = 0;      // the latest; what comes of others counts no more
  bool asking_ = false;       // it is under way,
  bool waiting_ = false;      // and no answer has come
  CertificateFacts present_;  // what it is to replace
  std::string request_;
  std::string key_;  // of the latest request, until its certificate is in the files
  std::shared_ptr<Link> link_;
  int failures_ = 0;                                    // since the last success
  std::string refusal_;                                 // of the controller, that the log has had
  std::chrono::system_clock::time_point not_before_{};  // of the next attempt
  BlockingPool disk_{"fairway-renew", 1};
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_CERTIFICATE_RENEWAL_H_
