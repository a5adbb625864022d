// SPDX-License-Identifier: Apache-2.0
// The controller's shell in the simulation: a real Cluster, a real WorkerHub, a data port for
// uploads. After every call of the core it checks the core's invariants and the commands sent (G1,
// G2, admission in order). The hub must say what is true, and in time (F1).
#ifndef FAIRWAY_TESTS_SIM_CONTROLLER_H_
#define FAIRWAY_TESTS_SIM_CONTROLLER_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/daemon/running_clock.h"
#include "controller/daemon/worker_hub.h"
#include "tests/sim/links.h"
#include "tests/sim/machine.h"

namespace fairway::sim {

class World;

class Controller final : public ClusterActions, public SessionSink, public WorkerHubEvents {
 public:
  Controller(World& world, ClusterOptions options);
  ~Controller() override;

  // The core. Call Settle after every call that may change it.
  Cluster& cluster() { return cluster_; }
  void Settle();
  // Lets time pass. Checks that no node is given up for a device that still runs an older one.
  void Tick();

  // Microseconds during which the controller ran.
  int64_t Now() const { return clock_.now().time_since_epoch() / std::chrono::microseconds(1); }
  // The oldest node that was launched on each device and has not ended.
  std::map<DeviceId, NodeId> Running() const;

  void Accept(std::unique_ptr<Link> link) { hub_.Accept(std::move(link)); }
  // Its data port is asked.
  void PullUpload(const PullRequest& request, Pulled done);
  // Restarts the machine's island, as an operator would.
  void Restart(const Machine& machine);
  // Compiles at a worker of the machine's island. Checks that one answer comes.
  void Compile(const Machine& machine);
  // Compilations that are not answered.
  size_t compiling() const { return compiling_.size(); }
  // Entries of the logs that are not concluded.
  size_t open_entries() const { return hub_.open_entries(); }
  WorkerHub::Relays relays() const { return hub_.relays(); }
  // Whether all machines are registered here in their present incarnations.
  bool AllUp() const;

  Machine* MachineOf(DeviceId device) const;

  // WorkerHubEvents
  absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) override;
  void OnExecutorLost(ExecutorId id, const absl::Status& cause) override;
  void OnCrowded(ExecutorId executor) override;
  void OnReport(ExecutorId id, Incarnation incarnation, Report report) override;
  void OnLaunchesEnded(std::vector<NodeId> nodes) override;
  void OnCallback(ExecutorId executor, CallbackCall call) override;
  void OnCallbackGivenUp(ExecutorId executor, uint64_t call) override;

  // ClusterActions
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) override;
  void SendAll(ExecutorId first, ExecutorId last, Command command,
               std::shared_ptr<MemoryBudget> payer) override;
  void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) override;
  void WithdrawUpload(TransferId transfer) override;
  void PullToHost(TransferId transfer, ExecutorId executor, int32_t index, int64_t bytes) override;
  void WantTurn() override;

  // SessionSink
  void OnWatched(SessionId session, uint64_t token, absl::Status status) override;
  void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) override;
  void OnBound(SessionId session, uint64_t key, absl::StatusOr<uint64_t> program) override;

 private:
  struct Member {
    Machine* machine = nullptr;
    uint64_t session = 0;  // the incarnation
    bool up = false;
  };
  void TickHub();
  void CheckStalled();
  void Answered(SessionId session, uint64_t token, bool fetch,
                const absl::StatusOr<BytesRef>& result);
  void NoteLaunch(Member& member, NodeId node, LaunchId id, bool ahead);
  void NotePrepare(const Member& member, NodeId node, ExecutableId code);
  void CheckLaunches();
  // Checks that no turn was long.
  void CheckUnits();

  World& world_;
  ControllerLoop loop_;
  RunningClock clock_;
  Cluster cluster_;
  WorkerHub hub_;
  uint64_t next_program_ = 1;
  std::set<uint64_t> compiling_;
  // What the latest restart of each island ended, by worker.
  std::map<std::string, std::map<std::string, uint64_t>> restarts_;
  std::map<ExecutorId, Member> members_;
  std::map<DeviceId, Machine*> machine_of_;
  std::map<TransferId, std::vector<BytesRef>> uploads_;
  struct Launched {
    std::vector<LaunchId> ids;
    std::vector<Machine*> machines;
  };
  std::map<NodeId, Launched> launches_;  // of this step
  struct Prepared {
    const Code* code = nullptr;  // nullptr: a sequence
    std::vector<Machine*> places;
    uint64_t steps = 1;  // launch ids that it takes
  };
  std::map<NodeId, Prepared> prepared_;
  std::map<std::string, uint64_t> last_launch_;  // by island
  // The highest prepared launch of a session on a device.
  std::map<std::pair<SessionId, DeviceId>, NodeId> last_prepared_;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_CONTROLLER_H_
