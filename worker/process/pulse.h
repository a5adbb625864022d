// SPDX-License-Identifier: Apache-2.0
// A worker's second link to its controller. After the first message nothing is sent on it: through
// it the kernels of both hosts notice when one of them is silent (docs/design/0057-liveness.md).
#ifndef FAIRWAY_WORKER_PROCESS_PULSE_H_
#define FAIRWAY_WORKER_PROCESS_PULSE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "async/event_loop.h"
#include "fairway/v1/link.pb.h"
#include "transport/link.h"

namespace fairway {

// Owned by Supervisor. Loop-confined; lives as long as its loop runs.
class Pulse {
 public:
  // `controller`: host:port of its link port. `tls`: this worker's identity, or nullptr.
  Pulse(EventLoop& loop, std::string controller, std::shared_ptr<TlsIdentity> tls,
        v1::Pulse message);

  // The controller has registered the worker. Connects, even if a connection stands: the controller
  // may have given that one up, which shows here only later. Connects again after each end.
  void Start();

 private:
  void OnConnected(absl::StatusOr<std::unique_ptr<Link>> link);

  EventLoop& loop_;
  const std::string controller_;
  const TlsUse tls_;
  const v1::Pulse message_;
  uint64_t attempt_ = 0;  // the latest; what comes of the others is not followed by a new one
  // Connections that stand. The last one is the latest. Only the controller closes the others, when
  // it hears of that one: a pulse that closes in order tells it that this process has ended.
  std::vector<std::shared_ptr<Link>> links_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_PULSE_H_
