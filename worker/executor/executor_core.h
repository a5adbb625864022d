// SPDX-License-Identifier: Apache-2.0
// What an executor decides: which node may start, when a shard may be served, what to report. A
// pure state machine: commands and completions in, actions out; no thread, no socket, no clock. The
// executor process and the simulation run the same code.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/executor_actions.h"
#include "worker/executor/sequence_run.h"
#include "worker/executor/waiters.h"
#include "worker/executor/work_meter.h"

namespace fairway {

// Loop-confined.
class ExecutorCore {
 public:
  // At most `max_gangs` are started and not ended; further ones wait in the order of their launch
  // ids. After `turn_units` of work the rest waits for Turn, but for what cannot be interrupted.
  explicit ExecutorCore(ExecutorActions* actions, int max_gangs = kGangsAtWork,
                        uint64_t turn_units = kTurnUnits)
      : actions_(actions), max_gangs_(max_gangs), work_(turn_units) {}

  // From the controller, in order. One that contradicts what is known (unknown node, twice the same
  // id) is reported as that node's INTERNAL failure.
  void OnCommand(Command command);
  // Does some of what waits.
  void Turn();

  // `follows`: a launch on several devices may be started before its inputs are computed, behind
  // launches of such code that compute them there.
  void InstallDone(ExecutableId executable, absl::Status status, bool follows = false);
  void LaunchDone(NodeId node, absl::Status status, std::vector<Report::Inlined> inlined);
  void ReceiveDone(NodeId node, size_t position, absl::Status status);
  void ReadDone(NodeId node, std::vector<Report::Inlined> bytes);

  // A peer (or the controller) asks for shard `index` of `transfer`; `pull` is the shell's number
  // for the request. It waits until the transfer is known and the shard is ready. At most
  // kMaxEarlyPulls wait for unknown transfers.
  void OnPull(uint64_t pull, TransferId transfer, int32_t index);
  void ServeDone(uint64_t pull);

  // What to send; of what is left, as it would be too long, ReportWanted tells.
  Report TakeReport();

  // Highest launch id seen, for registration after a new controller incarnation (rule L1).
  uint64_t highest_launch_id() const { return highest_launch_id_; }
  // Forgets everything (new controller incarnation); launches in flight end unreported.
  void Reset();

  // Launches of the controller that have not ended, those that wait for their inputs or turn among
  // them, and those whose command waits.
  size_t num_launched() const;
  // Units of work, about a microsecond each: a command, an instruction, one that waited for a
  // shard, four shards that are touched; eight for a launch or a receive that is started.
  const WorkMeter& work() const { return work_; }

  // For tests and the end-of-test accounting.
  size_t num_shards() const { return shards_.size(); }
  size_t num_nodes() const { return nodes_.size(); }
  size_t num_sends() const { return sends_.size(); }
  bool sends(TransferId transfer) const { return sends_.contains(transfer); }
  size_t num_pulls() const;  // that wait or are being served

  // A bound of memory, some 100 bytes each, that no work of the controller reaches: what it tells
  // this executor may come long after what it tells the receiver, who asks for all shards at once.
  static constexpr size_t kMaxEarlyPulls = size_t{1} << 20;
  // Steps of a sequence that are started and not ended, at most; what is reserved for it counts on
  // this (graph/lowering.h).
  static constexpr size_t kStepsAtWork = kSequenceWindow;
  static constexpr uint64_t kTurnUnits = 1000;
  static constexpr size_t kReportBytes = 8 << 20;  // about, unless one end alone has more
  // What one sequence may use before others have their slice, and the commands that wait.
  static constexpr uint64_t kSliceUnits = 250;
  static constexpr size_t kRememberedSends = 16384;  // ended ones, whose late pulls are refused

 private:
  //   kDeclared -> kReady | kFailed
  enum class ShardState : uint8_t { kDeclared, kReady, kFailed };
  struct Shard {
    ShardState state = ShardState::kDeclared;
    NodeId producer;
    absl::Status error;
  };
  struct Node {
    std::variant<PrepareLaunch, PrepareReceive> command;
    bool started = false;
    bool follows = false;          // a started gang of code that follows
    std::optional<Launch> launch;  // launched; waits for its inputs or its turn until started
    size_t missing = 0;            // inputs of a launch that are still computed here
    // The end of a launch that was heard of before that of an input.
    struct End {
      absl::Status status;
      std::vector<Report::Inlined> inlined;
    };
    std::optional<End> end;
    std::unique_ptr<SequenceRun> run;          // of a sequence, once started
    NodeId parent;                             // of a step: the sequence
    std::vector<SequenceRun::ValueRef> holds;  // of a step: what it reads and makes
    bool issued = false;                       // a sequence: all steps were started
    size_t open = 0;                           // receives that have not ended
    size_t at_work = 0;                        // of those, StartReceive was called for
    absl::Status failure;                      // of the lowest position that failed
    size_t failed_at = 0;
    // Per shard of a receive.
    struct OutShard {
      size_t open = 0;  // pieces that have not ended
      absl::Status failure;
    };
    std::vector<OutShard> out_shards;
    std::vector<Waiters::Entry> waits;  // of a receive: where it waits, or has waited
  };

  void On(InstallExecutable command);
  void On(InstallSequence command);
  void On(DropExecutable command);
  void On(PrepareLaunch command);
  void On(Launch command);
  void On(PrepareReceive command);
  void On(PrepareSend command);
  void On(EndSend command);
  void On(CancelNode command);
  void On(AbandonLaunch command);
  void On(FreeGroups command);

  void Declare(const GroupPart& part, NodeId producer);
  // Whether the shard is ready, or will be by a launch or by bytes that came before (or it has
  // failed).
  bool OnItsWay(ShardRef ref) const;
  // Whether the inputs that are still computed are made on the same devices, by launches whose
  // devices do not wait for each other, as those of this one do not: it can be started behind them.
  bool Follows(const Node& node) const;
  bool Follows(const PrepareLaunch& launch, bool gang) const;
  // Whether the gang that is the first to go is not one too many at work.
  bool IsItsTurn(const Node& gang) const;
  // Those that wait for its outputs and follow.
  void StartFollowers(const PrepareLaunch& started);
  void LaunchInputEnded(NodeId id);
  void LaunchEnded(NodeId id, Node& node, Node::End end);
  // The first failed input of a launch, in argument order; OK: none.
  absl::Status FailedInput(const PrepareLaunch& node) const;
  absl::Status FailedArgument(const PrepareLaunch& node, size_t argument) const;
  void Start(NodeId id, Node& node);
  const SequenceCode* SequenceOf(const Node& node) const;

  // ---- sequences (sequences.cc)
  static absl::Status Contradiction(NodeId node, std::string_view what);
  // Its inputs have ended: those that failed are registers that have failed.
  void StartSequence(NodeId id, Node& node, std::shared_ptr<const SequenceCode> sequence);
  // Starts what may be started of it; ends it when all has ended. Whether gangs behind it
  // may be started: all its steps have been.
  bool Advance(NodeId id);
  // Each goes on with one instruction; false: not yet.
  bool StartStep(NodeId id, Node& node, const Instruction& run);
  bool TakeBranch(NodeId id, Node& node, const Instruction& branch);
  void SetOutput(const Node& node, const Instruction& output);
  // The outputs of an instruction, on this executor: declared, and put into their registers.
  std::vector<GroupPart> MakeOutputs(Node& node, const Instruction& instruction, NodeId producer);
  // The shard of a sequence's output is to be that one.
  void ShareOutput(ShardRef from, ShardRef output);
  void StepEnded(Node step);
  // The `count` ids behind the first `taken` of this sequence are those of steps that do not run
  // here. The other executors that run it are told why, should they wait for them.
  void LeaveOut(const Node& node, uint64_t taken, uint64_t count, const absl::Status& why);
  void DropGarbage(SequenceRun& run);
  // When all its steps have ended: reads what is to come inline, then tells the end.
  void EndSequence(NodeId id, Node& node);

  // ---- turns (turns.cc)
  // Does what is left, until the turn is over. Every call from outside ends with it.
  void DoWork();
  // Each does the next thing of its kind, if there is one.
  bool DoNext();
  bool FollowUpNext();
  bool StartNext();
  bool HandleNext();
  void QueueSequence(NodeId id);  // it may go on
  void WakeNextWaiter(SettledShard& settled);
  void DropGroup(GroupId group);

  void ShardsEnded(const GroupPart& part, const absl::Status& status);
  void ShardEnded(ShardRef ref, const absl::Status& status);
  // Serves, refuses, starts or lets wait, as the shard's state says.
  void ServeOrWait(const AskedShard& asked);
  void Ask(const AskedShard& asked);
  void ReceiveOrWait(NodeId id, size_t position);
  void ReceiveEnded(NodeId id, size_t position, const absl::Status& status);
  void Conclude(NodeId id, const absl::Status& status);
  void ReportEnd(uint64_t seq, const absl::Status& status);
  void AddInlined(Report::Inlined inlined);
  void AddFailure(Report::Failure failure);

  ExecutorActions* const actions_;
  const int max_gangs_;
  std::map<ExecutableId, std::shared_ptr<const SequenceCode>> sequences_;
  std::set<ExecutableId> follows_;  // code that InstallDone said it of
  std::set<ExecutableId> shared_;   // code and sequences that other executors run their part of
  // Nodes and groups of steps; the controller never hears of them.
  uint64_t next_step_ = kFirstStep;
  static constexpr uint64_t kFirstStep = uint64_t{1} << 63;
  std::deque<NodeId> gangs_;    // launched and not started, by launch id
  std::deque<NodeId> singles_;  // launched on one device, which may be started
  std::deque<NodeId> advance_;  // sequences that may go on
  // What follows from what has happened, to be done before the next command. None of it is done
  // within another part of it, as a chain of local copies may be of any length.
  std::deque<GroupId> freed_;
  std::deque<SettledShard> settled_;
  std::deque<std::pair<NodeId, size_t>> receives_;  // to be begun, from that position on
  std::deque<AskedShard> asked_;                    // early, of transfers that are known by now
  std::deque<NodeId> ended_;                        // launches whose `end` may be told
  std::deque<Command> inbox_;
  size_t inbox_launches_ = 0;
  WorkMeter work_;
  bool turn_wanted_ = false;
  bool commands_next_ = false;   // a sequence had its slice
  uint64_t commands_until_ = 0;  // in units: the end of the commands' slice
  int gangs_at_work_ = 0;        // but those of code that follows
  // Launched and not ended, without steps of sequences.
  std::set<std::pair<LaunchId, NodeId>> launches_;
  std::map<ShardRef, Shard> shards_;
  std::map<NodeId, Node> nodes_;
  std::map<TransferId, Sending> sends_;
  std::map<TransferId, uint64_t> ended_sends_;  // with the number of their latest end
  std::deque<std::pair<TransferId, uint64_t>> ends_in_order_;
  uint64_t num_ends_ = 0;
  // Receives of a cancelled node that are still at work. Prepared anew, it begins when they have
  // ended, because their ends cannot be told from its own.
  std::map<NodeId, size_t> stale_receives_;
  Waiters waiters_;
  std::map<TransferId, std::vector<std::pair<uint64_t, int32_t>>>
      early_pulls_;  // (pull, index) of unknown transfers
  size_t num_early_pulls_ = 0;
  std::set<uint64_t> serving_;
  std::set<uint64_t> ended_above_;  // ended seqs above ended_through_
  uint64_t ended_through_ = 0;
  uint64_t highest_launch_id_ = 0;
  Report report_;
  size_t report_bytes_ = 0;
  std::deque<Report> full_;  // those before it, each with what ended together
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_
