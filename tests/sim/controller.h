// SPDX-License-Identifier: Apache-2.0
// The controller's shell in the simulation: a real Cluster, links to machines, a data port for
// uploads. After every call of the core it checks the core's invariants and what was sent (rules
// G1, G2, admission in order).
#ifndef FAIRWAY_TESTS_SIM_CONTROLLER_H_
#define FAIRWAY_TESTS_SIM_CONTROLLER_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "tests/sim/machine.h"

namespace fairway::sim {

class World;

class Controller final : public ClusterActions {
 public:
  Controller(World& world, ClusterOptions options);
  ~Controller() override;

  // The core; Settle after every call that may change it.
  Cluster& cluster() { return cluster_; }
  void Settle();
  // Time passes: what waits for memory may be given up, but not while something runs on its island.
  void Tick(int64_t now_ms);

  // The oldest node that was launched on each device and has not ended.
  std::map<DeviceId, NodeId> Running() const;

  // A machine asks to be registered; a machine of an earlier incarnation is reported as lost first.
  void Register(Machine& machine);
  // The loss of that registration is noticed.
  void Lose(Machine& machine, uint64_t session);
  void OnReport(ExecutorId id, Incarnation incarnation, const Report& report);
  void PullUpload(TransferId transfer, int32_t index, Pulled done);
  bool Registered(const Machine& machine) const;

  Machine* MachineOf(DeviceId device) const;
  const std::set<Machine*>& lost() const { return lost_; }

  // ClusterActions
  void Send(ExecutorId executor, Command command) override;
  void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) override;
  void WithdrawUpload(TransferId transfer) override;
  void PullToHost(TransferId transfer, ExecutorId executor, int32_t index, int64_t bytes) override;
  void OnWatched(SessionId session, uint64_t token, absl::Status status) override;
  void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) override;
  void WantTurn() override;

 private:
  struct Member {
    Machine* machine = nullptr;
    uint64_t session = 0;
    bool up = false;
    Incarnation incarnation;
    int64_t down_link = 0;  // when the last command sent arrives
  };
  void Answered(SessionId session, uint64_t token, bool fetch,
                const absl::StatusOr<BytesRef>& result);
  void NoteLaunch(Member& member, const Launch& launch);
  void NotePrepare(const Member& member, const PrepareLaunch& prepare);
  void CheckLaunches();
  // No turn is long.
  void CheckUnits();

  World& world_;
  Cluster cluster_;
  std::map<ExecutorId, Member> members_;
  std::map<DeviceId, Machine*> machine_of_;
  std::set<Machine*> lost_;  // ever
  std::map<TransferId, std::vector<BytesRef>> uploads_;
  struct Launched {
    std::vector<LaunchId> ids;
    std::vector<Machine*> machines;
  };
  std::map<NodeId, Launched> launches_;  // of this step
  struct Prepared {
    const Code* code = nullptr;  // none: a sequence
    std::vector<Machine*> places;
    uint64_t steps = 1;  // launch ids that it takes
  };
  std::map<NodeId, Prepared> prepared_;
  std::map<std::string, uint64_t> last_launch_;  // by island
  // The highest launch node of a session on a device.
  std::map<std::pair<SessionId, DeviceId>, NodeId> last_prepared_;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_CONTROLLER_H_
