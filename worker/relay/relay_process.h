// SPDX-License-Identifier: Apache-2.0
// The process of a worker's relay: passes the log of its island on to its children. Killing it
// kills no executor. It never loads the plugin.
#ifndef FAIRWAY_WORKER_RELAY_RELAY_PROCESS_H_
#define FAIRWAY_WORKER_RELAY_RELAY_PROCESS_H_

#include <memory>
#include <optional>
#include <string>

#include "async/event_loop.h"
#include "base/ids.h"
#include "fairway/v1/link.pb.h"
#include "worker/process/controller_link.h"
#include "worker/process/parent_link.h"
#include "worker/relay/relay_core.h"
#include "worker/relay/relay_port.h"

namespace fairway {

// From the worker's flags.
struct RelayConfig {
  std::string controller;            // host:port of the link port
  std::shared_ptr<TlsIdentity> tls;  // nullptr: without TLS
  std::string worker;
  std::string bind;            // host:port; port 0: any free one
  std::string advertise_host;  // empty: that of `bind`, or the host's name if that is any address
};

// Owned by RunRelay. Loop-confined; made before Run.
class RelayProcess final : private RelayActions {
 public:
  RelayProcess(EventLoop& loop, RelayConfig config);
  ~RelayProcess() override;

  // Listens and begins to connect. ALREADY_EXISTS and others: it cannot listen there.
  absl::Status Start();
  // Runs the loop until the process is to end. Returns the exit code.
  int Run();

 private:
  class ControllerEnd;
  void Tick();
  void AskLater();
  void Register();
  void OnMessage(const v1::FromController& message);
  void OnLogFrame(const Frame& frame);
  void OnTask(const v1::RelayTask& task);
  void OnLinkEnd(const std::string& why);
  void DialParent(const std::string& endpoint) override;
  void Tell(v1::RelayTrouble trouble) override;

  EventLoop& loop_;
  const RelayConfig config_;
  const Incarnation incarnation_;
  const std::unique_ptr<ControllerEnd> controller_;
  RelayCore core_;
  RelayPort port_;
  ControllerLink link_;
  ParentLink parent_;
  std::unique_ptr<LinkServer> server_;
  std::string endpoint_;
  uint64_t asked_ = 0;  // how often AskLater ran
  std::optional<int> exit_code_;
};

// Runs the process; returns its exit code.
int RunRelay(const RelayConfig& config);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_RELAY_RELAY_PROCESS_H_
