// SPDX-License-Identifier: Apache-2.0
// What the hub of the workers' links (worker_hub.h) tells its owner, and what it is given.
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_OPTIONS_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "controller/daemon/island_links.h"
#include "core/device.h"
#include "graph/callback.h"
#include "graph/plan.h"
#include "identity/certificates.h"
#include "identity/revocations.h"
#include "transport/strangers.h"
#include "wire/limits.h"

namespace fairway {

// The hub's events, for its owner. Called in the loop.
class WorkerHubEvents {
 public:
  virtual ~WorkerHubEvents() = default;
  // An executor asks to be registered; an error refuses it.
  virtual absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) = 0;
  // `cause`: DATA_LOSS with how it was lost, its host and process, and its last lines of output.
  virtual void OnExecutorLost(ExecutorId executor, const absl::Status& cause) = 0;
  // Loaded code takes too many mappings: code that no session holds should be unloaded.
  virtual void OnCrowded(ExecutorId executor) = 0;
  virtual void OnReport(ExecutorId executor, Incarnation incarnation, Report report) = 0;
  // These LaunchAlls have ended on every executor that got them, or that executor was lost
  // (OnExecutorLost has told of it). A failure comes before, with OnReport.
  virtual void OnLaunchesEnded(std::vector<NodeId> nodes) = 0;
  // A running program calls a function of its client. The owner must call WorkerHub::Answer, also
  // for a call that is given up meanwhile.
  virtual void OnCallback(ExecutorId executor, CallbackCall call) = 0;
  virtual void OnCallbackGivenUp(ExecutorId executor, uint64_t call) = 0;
};

struct WorkerHubOptions {
  Incarnation controller;
  std::string data_endpoint;  // ":port" of the controller's data plane
  // How long a process may be silent while its host answers: it may be stopped or busy. The pulse
  // of its supervisor shows when its host is silent (kHostSilence).
  std::chrono::milliseconds deadline{60000};
  // How long an executor may be without a connection before it is lost (--link-grace).
  std::chrono::milliseconds link_grace{3000};
  std::chrono::milliseconds cause_wait{
      1000};  // for the supervisor's account of an executor's death
  std::chrono::milliseconds register_wait{10000};  // for the first message on a link
  size_t unregistered_links = Strangers::Most();   // one more ends one of these
  // Most bytes of a command, of a program to compile, or of the answer to a callback. Tests set
  // less.
  size_t command_bytes = kMaxCommandBytes;
  IslandLinksOptions links;
  // Calls the first on another thread, and then the second in the loop: parses large messages.
  // Empty: the loop parses all.
  std::function<void(std::function<void()>, std::function<void()>)> off_loop;
  // Makes the next certificate of the worker, which has shown the one with this hash, for its
  // request (PKCS #10, PEM), and calls `done` in the loop, perhaps at once. Empty: nobody does.
  std::function<void(const std::string& worker, const CertificateHash& shown, std::string request,
                     std::function<void(absl::StatusOr<IssuedCertificate>)> done)>
      renew;
  // Hears of each process that is refused, by its address, and why. Empty: nobody does.
  std::function<void(const std::string& peer, const std::string& why)> refused;
  // What executors and relays hear of revoked workers; nullptr: they hear nothing.
  const Revocations* revocations = nullptr;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_OPTIONS_H_
