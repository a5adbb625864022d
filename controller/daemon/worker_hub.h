// SPDX-License-Identifier: Apache-2.0
// The controller's side of the links to executors and supervisors (proto/fairway/v1/link.proto):
// registration, heartbeats and deadlines, fencing, the logs of the islands, and the causes of
// losses.
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "async/loop.h"
#include "base/status.h"
#include "controller/compile/compile_service.h"
#include "controller/daemon/island_links.h"
#include "controller/daemon/link_traffic.h"
#include "core/device.h"
#include "fairway/v1/link.pb.h"
#include "graph/callback.h"
#include "graph/plan.h"
#include "transport/link.h"
#include "wire/limits.h"

namespace fairway {

// What the hub tells its owner. Called in the loop.
class WorkerHubEvents {
 public:
  virtual ~WorkerHubEvents() = default;
  // An executor asks to be registered; an error refuses it.
  virtual absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) = 0;
  // DATA_LOSS: how it was lost, its host and process, and the last lines of its log.
  virtual void OnExecutorLost(ExecutorId executor, const absl::Status& cause) = 0;
  // Loaded code takes too much of the executor: what no session holds should go.
  virtual void OnCrowded(ExecutorId executor) = 0;
  virtual void OnReport(ExecutorId executor, Incarnation incarnation, Report report) = 0;
  // A running program calls a function of its client: WorkerHub::Answer is to come, also for a call
  // that is given up meanwhile.
  virtual void OnCallback(ExecutorId executor, CallbackCall call) = 0;
  virtual void OnCallbackGivenUp(ExecutorId executor, uint64_t call) = 0;
};

struct WorkerHubOptions {
  Incarnation controller;
  std::string data_endpoint;  // ":port" of the controller's data plane
  // Of silence of a process whose host answers: it may be stopped or busy. A silent host is told by
  // its supervisor's pulse (kHostSilence).
  std::chrono::milliseconds deadline{60000};
  std::chrono::milliseconds cause_wait{
      1000};  // for the supervisor's account of an executor's death
  std::chrono::milliseconds register_wait{10000};  // for the first message on a link
  // The longest command, program to be compiled, or answer to a callback that a frame has room for;
  // tests set less.
  size_t command_bytes = kMaxCommandBytes;
  IslandLinksOptions links;
};

// Loop-confined.
class WorkerHub {
 public:
  using Clock = std::chrono::steady_clock;

  // `now`: a clock that stands still while this process does not run (running_clock.h), or
  // deadlines pass before what others said meanwhile has been read; tests give a virtual one.
  WorkerHub(Loop& loop, WorkerHubOptions options, WorkerHubEvents* events,
            std::function<Clock::time_point()> now);
  ~WorkerHub();
  WorkerHub(const WorkerHub&) = delete;
  WorkerHub& operator=(const WorkerHub&) = delete;

  // A new connection to the link port.
  void Accept(std::unique_ptr<Link> link);
  // Applies the deadlines that have passed; call it several times within the shortest of them.
  void Tick();

  // Becomes an entry of its island's log, which leaves when control returns to the loop; a PREPARE
  // of a launch, or frees, which give it nothing to begin, at the next Tick at the latest. Dropped
  // when it is not connected: its loss is then on its way to OnExecutorLost. One that is too long
  // for a frame would break the link without a word; the core refuses what would come to that
  // (RESOURCE_EXHAUSTED). Should one come all the same, it is not sent, nor is anything that waits
  // to be: the executor's registration ends, and the cause names the sizes.
  void Send(ExecutorId executor, Command command);

  // The end of a callback, at once. Dropped when the executor is not connected. One that is too
  // long is RESOURCE_EXHAUSTED to the program.
  void Answer(ExecutorId executor, const CallbackAnswer& answer);

  // Compiles at a worker of `island` that has a compiler and whose executor is up, or is on its way
  // back. UNAVAILABLE: none is connected, or it went away. RESOURCE_EXHAUSTED: a link cannot carry
  // the program. `request`: as PackCompileRequest makes it.
  void Compile(const std::string& island, Frame request,
               std::function<void(absl::StatusOr<CompiledCode>)> done);

  // An operator asks for it: ends the worker's executor and the others of its island, whose
  // supervisors start them anew, and declares them lost. The worker's incarnation that was ended.
  // While not all of the island have come back nothing is ended again, and the answer is the same.
  // NOT_FOUND: no executor of such a worker has registered. FAILED_PRECONDITION: it is down, and
  // its supervisor is away.
  absl::StatusOr<Incarnation> RestartExecutor(const std::string& worker, const std::string& reason);

  // Ends all executors of the island, as for an operator who asked for it.
  void EndIsland(const std::string& island, const std::string& reason);
  // What is remembered of an executor that is not connected.
  void Forget(ExecutorId executor);

  // Tells all workers that the cluster ends.
  void StopWorkers(const std::string& reason);

  // Registered and connected now.
  bool Connected(ExecutorId executor) const;
  // nullptr: never registered. Of the latest registration.
  const ExecutorSpec* Spec(ExecutorId executor) const;
  std::set<std::string> Supervisors() const;
  // Whether a worker of the island is connected, with its executor or without.
  bool HasWorker(const std::string& island) const;
  // Executors that were silent for some seconds, and for how long.
  std::map<ExecutorId, std::chrono::milliseconds> Stalled() const;
  // Bytes that executors pulled from each other, by island (from, to), as of their last heartbeats.
  const std::map<std::pair<std::string, std::string>, uint64_t>& transferred_bytes() const {
    return transferred_bytes_;
  }
  // Of the logs and of reports.
  const LinkTraffic& sent() const { return sent_; }
  const LinkTraffic& received() const { return received_; }
  uint64_t commands_sent() const { return commands_sent_; }
  // Entries of the logs that are not concluded.
  size_t open_entries() const;
  // INTERNAL: of the logs. For tests.
  absl::Status CheckInvariants() const;

 private:
  enum class Role : uint8_t { kNew, kExecutor, kSupervisor, kPulse, kDone };
  struct Peer;
  struct Executor;
  struct Supervisor;
  struct Compilation;

  void OnFrame(Peer& peer, Frame frame);
  void OnClosed(Peer& peer, const absl::Status& status);
  void OnFirst(Peer& peer, const v1::ToController& message);
  void OnRegisterExecutor(Peer& peer, const v1::RegisterExecutor& message);
  void OnRegisterWorker(Peer& peer, const v1::RegisterWorker& message);
  void OnPulse(Peer& peer, const v1::Pulse& pulse);
  // The host at the other end of the pulse does not answer: all that runs there is lost.
  void HostSilent(Peer& pulse);
  void NoteStalled(Peer& peer, Clock::time_point now);
  void OnHeartbeat(Peer& peer, const v1::Heartbeat& heartbeat);
  void OnReport(Peer& peer, const v1::Report& report);
  void OnLogReport(Peer& peer, const Frame& frame);
  void OnCallback(Peer& peer, const v1::LinkCallback& message);
  void OnExecutorDied(Peer& peer, const v1::ExecutorDied& died);
  void OnCompileResponse(Peer& peer, v1::LinkCompileResponse response);

  std::chrono::milliseconds HeartbeatInterval() const;
  void Reply(Peer& peer, const v1::FromController& message);
  // Says why, then closes. `asked`: by an operator.
  void FencePeer(Peer& peer, const std::string& reason, bool asked = false);
  // Has the executor at `peer` killed by its supervisor and declares it lost.
  void EndExecutor(Peer& peer, const std::string& why, bool asked = false);
  // The peer's protocol is over; it is removed when control returns to the loop.
  void Finish(Peer& peer);
  void ExecutorLinkEnded(Peer& peer, const std::string& how);
  void SupervisorEnded(Peer& peer);
  // Tells the owner, once per incarnation.
  void DeclareLost(Executor& executor, const std::string& how, const std::string& log = {},
                   bool asked = false);
  // Whether some that an operator had ended have not come back.
  bool Restarting(const std::string& island) const;
  // Nothing more goes to it.
  void LeaveLog(const Executor& executor);
  // Has the logs send when control returns to the loop.
  void SendSoon();
  // A command cannot be sent to it, which must end.
  void RefuseCommand(Executor& executor, const absl::Status& why);
  Executor* FindExecutor(const std::string& worker);

  Loop& loop_;
  const WorkerHubOptions options_;
  WorkerHubEvents* const events_;
  const std::function<Clock::time_point()> now_;
  std::shared_ptr<bool> alive_;
  uint64_t next_peer_ = 1;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;
  std::map<ExecutorId, std::unique_ptr<Executor>> executors_;
  std::map<std::string, std::unique_ptr<Supervisor>>
      supervisors_;  // connected ones, by the worker's name
  // The latest restart of each island: what was ended, by worker.
  std::map<std::string, std::map<std::string, Incarnation>> restarts_;
  uint64_t next_compilation_ = 1;
  std::map<uint64_t, Compilation> compilations_;
  std::map<std::string, std::string> island_of_endpoint_;
  std::map<std::pair<std::string, std::string>, uint64_t> transferred_bytes_;
  std::map<std::string, IslandLinks> links_;  // by island
  bool send_posted_ = false;
  LinkTraffic sent_;
  LinkTraffic received_;
  uint64_t commands_sent_ = 0;
  bool stopping_ = false;  // losses are expected
  // While the owner registers an executor: what it sends to it already.
  std::vector<std::pair<ExecutorId, Command>>* early_ = nullptr;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_H_
