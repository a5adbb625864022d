// SPDX-License-Identifier: Apache-2.0
// Keeps the controller's own certificate from running out.
#ifndef FAIRWAY_CONTROLLER_DAEMON_OWN_CERTIFICATE_H_
#define FAIRWAY_CONTROLLER_DAEMON_OWN_CERTIFICATE_H_

#include <functional>
#include <memory>
#include <string>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/status.h"
#include "identity/tls_identity.h"

namespace fairway {

// When two thirds of its life have passed, the next one is made by the CA's key and replaces the
// files, at which every port looks (TlsIdentity). A failure is in the log, and is tried again; it
// ends nothing. Loop-confined; lives as long as its loop runs.
class OwnCertificate {
 public:
  // `ca_key`: PEM file. `disk` makes certificates, and calls `record` with what came of it, but not
  // again with the same fault.
  OwnCertificate(EventLoop& loop, BlockingPool& disk, std::shared_ptr<TlsIdentity> tls,
                 std::string ca_key, std::function<void(const absl::Status&)> record);

  // Looks at the certificate now and then, from now on.
  void Start() { Look(); }

 private:
  void Look();
  void Renew();
  void Ended(const absl::Status& status);

  EventLoop& loop_;
  BlockingPool& disk_;
  const std::shared_ptr<TlsIdentity> tls_;
  const std::string ca_key_;
  const std::function<void(const absl::Status&)> record_;
  bool renewing_ = false;
  int failures_ = 0;                                    // since the last success
  std::string fault_;                                   // of the last one, which the log has
  std::chrono::system_clock::time_point not_before_{};  // of the next attempt
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_OWN_CERTIFICATE_H_
