// SPDX-License-Identifier: Apache-2.0
// One simulated executor: a real ExecutorCore over a simulated runtime. Its buffers carry checkable
// values, and its device memory is counted. It checks what only an executor can see: rules G1, G2,
// B1 and B2.
#ifndef FAIRWAY_TESTS_SIM_MACHINE_H_
#define FAIRWAY_TESTS_SIM_MACHINE_H_

#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device.h"
#include "fairway/v1/link.pb.h"
#include "tests/sim/code.h"
#include "tests/sim/gang_watch.h"
#include "tests/sim/links.h"
#include "tests/sim/pieces.h"
#include "tests/sim/runs.h"
#include "tests/sim/world.h"
#include "worker/executor/assembly.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/registration.h"
#include "worker/executor/report_pace.h"

namespace fairway::sim {

// The memory of a device that `bytes` take.
inline int64_t Units(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class Machine final : public ExecutorActions, public FarSide {
 public:
  Machine(World& world, std::string worker, std::string island, int island_workers, int devices,
          int64_t memory);
  ~Machine() override;

  const std::string& worker() const { return worker_; }
  const std::string& island() const { return island_; }
  int devices() const { return devices_; }
  bool alive() const { return core_ != nullptr; }
  bool draining() const { return registration_ && registration_->ending(); }
  Host& host() { return *host_; }
  // The incarnation of its registration, which may only be asked for yet; 0: none.
  uint64_t session() const { return session_; }
  Incarnation incarnation() const { return incarnation_; }
  // Whether it is registered at the present controller, and neither it nor its host has a fault.
  bool Fine() const;

  // Starts a new process, which registers.
  void Start();
  // The process ends. Its supervisor hears of it.
  void Killed() { End(SIGKILL, 0); }
  // Ends the process. Pulls from it fail.
  void Die();
  // Stops the process: it does nothing, and everything for it waits until Wake.
  void Sleep();
  void Wake();
  bool asleep() const { return asleep_; }
  int64_t slept_at() const { return slept_at_; }
  int64_t woke_at() const { return woke_at_; }
  void CutLink(bool hub_first, int64_t later) {
    if (wire_ != nullptr) wire_->Cut(hub_first, later);
  }

  // FarSide. When the link has ended, it dials again and goes on. If it cannot, launches run to
  // their end; then it forgets everything and registers again.
  void OnFrame(Wire& wire, const Frame& frame) override;
  void OnEnd(Wire& wire) override;

  // The hub was given this command for this registration.
  void Expect(uint64_t session, const Command& command);
  // The hub took this report, encoded, from this registration. Checks that it was sent next.
  void Heard(uint64_t session, const std::string& report);
  void Pull(Incarnation incarnation, const PullRequest& request, Pulled done);
  // The gang of this run has ended here.
  void EndRun(const std::shared_ptr<Run>& run);

  std::string Leftovers() const;  // what is left; empty: nothing
  // The oldest node that was launched on a device and has not ended.
  std::optional<NodeId> Running(int32_t ordinal) const;
  void CheckTotals();
  // Of time that passes.
  void CheckOnTheWay();

  // ExecutorActions
  void Load(const InstallExecutable& install) override;
  void Unload(ExecutableId executable) override;
  bool LinkSteps(ExecutableId id, const StepBlock& calls) override;
  void LoadSequence(const InstallSequence& install) override;
  size_t ReadyLaunch(const PrepareLaunch& node, size_t from) override;
  void StartLaunch(const PrepareLaunch& node, const Launch& launch) override;
  void StartReceive(const PrepareReceive& node, size_t position) override;
  void Share(ShardRef from, ShardRef to) override;
  void Read(NodeId node, const std::vector<ShardRef>& shards) override;
  void WantTurn() override;
  void Serve(uint64_t pull, const PrepareSend::Item& item) override;
  void RefusePull(uint64_t pull, absl::Status why) override;
  void Drop(const std::vector<ShardRef>& shards) override;
  void Abandon(const AbandonLaunch& command) override;
  void LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) override;
  void ReportWanted(bool may_wait, bool news) override;

 private:
  struct Buffer {
    uint64_t value = 0;
    int device = 0;
    int64_t bytes = 0;
    int readers = 0;
    bool consumed = false;  // donated
  };
  // A block for a shard that is being put together from pieces.
  struct Block {
    int device = 0;
    int64_t bytes = 0;
    Pieces pieces;
  };
  using Shards = Assemblies<Block>;
  struct Receive {
    NodeId node;
    size_t position = 0;
    ShardRef ref;
    int device = 0;
    int64_t bytes = 0;
    ShardRef source;  // kLocal
    bool local = false;
    bool abandoned = false;
    Shards::Ref assembly;  // if it is a piece
    Box from, to;
  };
  struct WaitingPull {
    TransferId transfer;
    Pulled done;
    ShardRef serving;  // being read
    bool reading = false;
  };

  // Runs it later in this life of the process: not after its end or reset, and not while it is
  // stopped.
  template <typename F>
  void After(int64_t delay, F run) {
    world_.queue.After(delay, [this, life = life_, run = std::move(run)]() mutable {
      if (life != life_) return;
      if (asleep_) return void(waiting_.emplace_back(life, std::move(run)));
      run();
    });
  }
  void WakeUp();
  void End(int signal, int exit_code);
  void Reset();
  void Connect();
  // Connects again to go on.
  void Redial();
  void OnResumed(const v1::Resumed& resumed);
  // `cut`: nobody gave the link up.
  void LinkEnded(bool cut);
  void CheckGrace();
  void EndRegistration();
  void Beat(const std::shared_ptr<Wire>& wire);
  void OnLogFrame(const std::string& frame, bool relay);
  // ---- the log, from the controller or from a relay (machine_log.cc)
  void OnParent(const v1::LogParent& parent);
  void DialRelay();
  void OnRelayFrame(Link* link, const std::string& frame);
  void OnRelayEnd(Link* link);
  v1::LogAsk AskLog();
  // Says sometimes that less has come than has. Returns what it says.
  LogNumber Claim(LogNumber applied);
  void NoteLogFrame(const std::string& frame);
  void LetRelayGo();
  // Checks that the hub was given this command next.
  void CheckNext(const Command& command);
  void Deliver(const Command& command);
  void FailPulls(const char* why);
  ExecutorSpec Spec();
  void Follow(ReportPace::Next next);
  void SendReport();
  // Stamps the frame and sends it if there is a link.
  void SendFrame(Frame frame);
  // Sends a message that must come although the link may be cut.
  void SendKept(const v1::ToController& message);
  void SendLogReport(CommandInbox::With with);
  void KeepReport();
  void TellLate();
  void Charge(int device, int64_t bytes);
  void Store(ShardRef ref, int device, int64_t bytes, uint64_t value);
  Buffer* Readable(ShardRef ref, const char* what);
  void EndRead(ShardRef ref);
  // Ends reads for transfers that have ended: nobody waits for their bytes.
  void EndStaleReads();
  void CheckUnits();
  // Checks that no gang waits whose turn has come.
  void CheckTurns();
  void EndPiece(const Receive& receive, const absl::StatusOr<uint64_t>& value);
  Shards::Ref AssemblyFor(const PrepareReceive& node, size_t position, ShardRef ref);
  void EndReceive(uint64_t life, uint64_t id, absl::StatusOr<uint64_t> value);
  // A launch has ended: does what follows, or ends draining.
  void AfterLaunch();
  void EndServe(uint64_t pull);
  // Starts a launch, or a step of a block.
  void StartRun(const PrepareLaunch& node, const Launch& launch, std::shared_ptr<BlockRun> block);
  // ---- blocks (machine_blocks.cc)
  void StartBlock(const PrepareLaunch& node, const Launch& launch,
                  const std::shared_ptr<const LinkedBlock>& linked);
  void StepEnded(BlockRun& block, const absl::Status& status);
  const std::vector<InstallExecutable::Member>& PeersOf(const Run& run);
  // Checks that code was loaded for the executors that run it now.
  void CheckPeers(const Run& run);
  void TakeInputs(Run& run);
  void Occupy(Run& run);  // and takes the memory that it needs
  // Returns the error of the first input that a failed launch should have made.
  absl::Status InputError(const Run& run) const;
  void LetBe(const std::shared_ptr<Run>& run);
  void Kick();
  void Join(const std::shared_ptr<Run>& run);
  void MayFail(Run& run);  // here, whatever becomes of it elsewhere
  uint64_t bit() const { return uint64_t{1} << world_.IndexOf(this); }

  World& world_;
  const std::string worker_;
  const std::string island_;
  const int island_workers_;
  const int devices_;
  const int64_t memory_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<ExecutorCore> core_;
  int64_t pid_ = 0;
  std::shared_ptr<Wire> wire_;                // its link to the controller
  std::optional<LinkLife> link_life_;         // of the process
  std::optional<Registration> registration_;  // of the process
  std::optional<ReportPace> pace_;            // of the registration
  bool was_registered_ = false;
  // Commands sent to it, encoded, in order, and when.
  std::deque<std::pair<std::string, int64_t>> on_the_way_;
  std::unique_ptr<Link> relay_link_;  // to the relay from which the log comes
  int64_t fine_since_ = 0;
  std::set<LogNumber> known_;     // entries that came and are not known to be concluded
  LogNumber concluded_ = 0;       // the highest one that is known to be
  bool behind_ = false;           // it has said that it lacks such entries
  std::deque<std::string> said_;  // reports sent by it, encoded, in order
  v1::ToController late_;         // a report of an earlier registration
  bool asleep_ = false;
  int64_t slept_at_ = 0, woke_at_ = 0, cut_at_ = 0;
  std::deque<std::pair<uint64_t, Event>> waiting_;  // until it goes on, with its life; 0: any
  Incarnation incarnation_;
  uint64_t life_ = 0;                 // counts processes and resets
  uint64_t session_ = 0, epoch_ = 0;  // its registration, and the controller's where it is
  ExecutorId id_;
  bool resetting_ = false;
  GangWatch gang_watch_;
  bool turn_wanted_ = false;            // by the core
  std::pair<NodeId, size_t> readying_;  // what ReadyLaunch has done; no node: none is begun
  std::map<ShardRef, Buffer> buffers_;
  std::map<ShardRef, absl::Status> failed_;  // outputs of launches that failed
  std::vector<int64_t> used_;
  std::map<ExecutableId, bool> loaded_;
  std::map<ExecutableId, std::vector<InstallExecutable::Member>> peers_;  // of loaded code
  std::set<ExecutableId> follows_;  // code whose gangs may start behind others
  std::map<ExecutableId, std::shared_ptr<const LinkedBlock>> blocks_;
  uint64_t next_inner_ = uint64_t{1} << 62;               // groups within blocks
  std::vector<std::deque<std::shared_ptr<Run>>> queues_;  // per device, in launch order
  std::set<std::shared_ptr<Run>> runs_;
  uint64_t next_receive_ = 1;
  std::map<uint64_t, Receive> receives_;
  Shards assemblies_;
  uint64_t next_pull_ = 1;
  std::map<uint64_t, WaitingPull> pulls_;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_MACHINE_H_
