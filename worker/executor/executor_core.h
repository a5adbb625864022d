// SPDX-License-Identifier: Apache-2.0
// What an executor decides: which node may start, which shard may be served, what to report. A pure
// state machine: commands and completions in, actions out; no thread, no socket, no clock. The
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
#include "log/ranges.h"
#include "worker/executor/device_lines.h"
#include "worker/executor/executor_actions.h"
#include "worker/executor/executor_node.h"
#include "worker/executor/sequence_run.h"
#include "worker/executor/shard_map.h"
#include "worker/executor/waiters.h"
#include "worker/executor/work_meter.h"

namespace fairway {

// Owned by ExecutorSession (in the simulation: by a machine). All calls come from the event loop. A
// public XDone call says that an action has ended; XEnded handles the end of a part; Conclude
// decides the result of a node; ReportEnd puts that result into the report.
class ExecutorCore {
 public:
  // At most `max_gangs` gangs are started and not ended on a device; others wait in the order of
  // their launch ids. After `turn_units` the rest waits for Turn, except for what is not
  // interrupted: of a launch, `shards_at_once` are looked at or a fourth ended; a block is made.
  explicit ExecutorCore(ExecutorActions* actions, int max_gangs = kGangsAtWork,
                        uint64_t turn_units = kTurnUnits, size_t shards_at_once = kShardsAtOnce)
      : actions_(actions),
        max_gangs_(max_gangs),
        shards_at_once_(shards_at_once),
        work_(turn_units) {}

  // Takes a command of the controller; they come in order. One that contradicts what the executor
  // knows (an unknown node, the same id twice) is reported as INTERNAL failure of its node.
  void OnCommand(Command command);
  // Does a part of the work that waits.
  void Turn();

  // `follows`: a launch of this code on several devices may start before its inputs are computed,
  // if earlier launches of such code on the same devices compute them.
  void InstallDone(ExecutableId executable, absl::Status status, bool follows = false);
  // INVALID_ARGUMENT: it does not fit together.
  void SequenceLoaded(ExecutableId sequence,
                      absl::StatusOr<std::shared_ptr<const SequenceCode>> code);
  // `brief`: see LaunchOutputs. `outputs`: if a block has failed, the result of each output.
  void LaunchDone(NodeId node, absl::Status status, std::vector<Report::Inlined> inlined,
                  size_t brief = 0, std::vector<absl::Status> outputs = {});
  void ReceiveDone(NodeId node, size_t position, absl::Status status);
  void ReadDone(NodeId node, std::vector<Report::Inlined> bytes);

  // A peer or the controller asks for shard `index` of `transfer`. `pull` is the session's number
  // for the request. The pull waits until the transfer is known and the shard is ready. At most
  // kMaxEarlyPulls pulls wait for unknown transfers.
  void OnPull(uint64_t pull, TransferId transfer, int32_t index);
  void ServeDone(uint64_t pull);
  // A receiver of the transfer was cancelled, and wants none of its pulls answered: those that wait
  // for the transfer to be known wait no longer. (This executor may have ended it long ago.)
  void OnTakenBack(TransferId transfer);

  // Returns the next report, or a part of a long one; then it calls ReportWanted for the rest.
  Report TakeReport();

  // The highest launch id seen; a registration at a new controller reports it (L1).
  uint64_t highest_launch_id() const { return highest_launch_id_; }
  // Ends the receives from elsewhere that have not ended, and launches that wait for them, with
  // this error: nobody waits for others any more. The controller is not told of the receives.
  void EndReceives(const absl::Status& why);
  // Forgets everything: the controller has a new incarnation. Launches in flight end unreported.
  void Reset();

  // Counts the controller's launches that have not ended: those that run, those that wait for
  // inputs or their turn, and those whose command waits in the inbox.
  size_t num_launched() const;
  // Counts units of work, about a microsecond each. One unit: a command, an instruction, a waiter
  // that is woken, an output that is shared, four shards that are touched. Eight units: a launch or
  // a receive that starts.
  const WorkMeter& work() const { return work_; }

  size_t num_shards() const { return shards_.size(); }  // this and the next: for tests
  // A launched gang that is not started, or a sequence with steps that are not; else nullptr.
  const PrepareLaunch* Waiting(NodeId node) const;
  size_t num_nodes() const { return nodes_.size(); }
  size_t num_sends() const { return sends_.size(); }
  bool sends(TransferId transfer) const { return sends_.contains(transfer); }
  size_t num_pulls() const;                                       // waiting or being served
  size_t ended_records() const { return ended_above_.ranges(); }  // above the watermark of reports

  // Of some 100 bytes each. Receivers ask for all shards, perhaps long before PrepareSend comes.
  static constexpr size_t kMaxEarlyPulls = size_t{1} << 20;
  static constexpr uint64_t kTurnUnits = 600;      // with cold caches a unit takes up to 5 us
  static constexpr size_t kReportBytes = 8 << 20;  // approximate; one end alone may have more
  static constexpr size_t kReportEnds = 4000;      // the controller handles a report in one go
  static constexpr size_t kShardsAtOnce = 1024;
  static constexpr uint64_t kSliceUnits = 250;  // then a sequence lets others and commands go on
  static constexpr size_t kRememberedSends = 65536;  // ended sends; late pulls of them are refused

 private:
  using Shard = ExecutorShard;
  using Node = ExecutorNode;
  // Whether a sequence goes on with its next instruction. kWaits: it is queued when what it waits
  // for has happened. kPaused: its slice is over.
  enum class Went { kOn, kWaits, kPaused };

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
  void On(LaunchAll command);
  void On(FailureHeard command);

  void Declare(const GroupPart& part, NodeId producer);
  // Returns whether the shard is ready or failed, or will be: a launched node computes it, or it is
  // received (for a gang: its bytes came with the command).
  bool OnItsWay(ShardRef ref, bool gang) const;
  // Returns whether this launch may start while inputs are still being computed. Launches of the
  // same kind must compute them on the same devices, and no device of those launches or of this one
  // may wait for another.
  bool Follows(const Node& node) const;
  bool Follows(const PrepareLaunch& launch, bool gang) const;
  bool FollowsSequences(const Node& node) const;  // the same for a sequence, after others
  // Returns the value that becomes this argument, of a sequence all of whose steps were started and
  // whose outputs are still being computed; nullptr: there is none.
  SequenceRun::ValueRef MadeBefore(const PrepareLaunch& launch, size_t argument) const;
  static GangPlace PlaceOf(const Node& gang);  // the lines of a launched gang, or of a step of one
  // Returns whether fewer than max_gangs_ gangs are at work on its devices, or its code follows.
  bool HasRoom(const GangPlace& place, ExecutableId executable);
  // Starts the gang, or begins the sequence, if its turn and its inputs have come.
  void StartGang(NodeId id);
  void MayStart(NodeId gang);  // something has changed for it: StartGang will look
  void LeaveLines(NodeId id, const Node& node);  // those after it may have their turn
  void Wake(const std::vector<NodeId>& firsts);  // something has changed for the first in a line
  // Queues some of the launches that wait for outputs of `at` and follow it. True: that were all.
  bool GoOnFollowing(Followed& at);
  void Follow(NodeId waiter, NodeId started);
  void LaunchInputEnded(NodeId id, size_t position, const absl::Status& status);
  void ChargeInputs(const Node& node);
  void LaunchEnded(NodeId id, Node& node, Node::End end);
  // nullopt: the argument is still being computed.
  std::optional<absl::Status> EndOf(const PrepareLaunch& launch, size_t argument) const;
  void Start(NodeId id, Node& node);
  const SequenceCode* SequenceOf(const Node& node) const;
  void GoOnLaunching();  // this and the next: do a part of what is in hand
  void GoOnStarting();
  bool GoOnEnding(EndInHand& end);  // true: that was the last part

  // ---- sequences (sequences.cc)
  static absl::Status Contradiction(NodeId node, std::string_view what);
  void StartSequence(NodeId id, Node& node, std::shared_ptr<const SequenceCode> sequence);
  // Starts the steps that may start, and ends the sequence when all its steps have ended.
  void Advance(NodeId id);
  // Puts the arguments into their registers. Failed inputs become registers that have failed.
  Went TakeArguments(NodeId id, Node& node, uint64_t until);
  // Each goes past one instruction, or begins with it.
  Went Do(NodeId id, Node& node, const Instruction& next);
  Went BeginStep(Node& node, const Instruction& first, const LinkedBlocks::Linked* block);
  // Returns the block to launch now; nullptr: the next step is launched alone.
  const LinkedBlocks::Linked* BlockFor(const Node& node);
  void LinkBlock(const SequenceRun& run, size_t steps, size_t most, LinkedBlocks::Linked& to);
  void Unlink(ExecutableId sequence);
  Went TakeBranch(NodeId id, Node& node, const Instruction& branch);
  void SetOutput(const Node& node, const Instruction& output);
  // Each does a part of the step, or of the failed branch, that is being made: looks at what it
  // reads, and goes past the instruction if it may start; makes its outputs; says what it waits
  // for, and starts it.
  Went GoOnMaking(NodeId id, Node& node, uint64_t until);
  Went ReadInputs(NodeId id, Node& node, uint64_t until);
  Went MakeOutputs(NodeId id, Node& node, uint64_t until);
  Went WaitForInputs(Node& node, uint64_t until);
  void GoPast(Node& node);
  // Makes `output`, a shard of the sequence's output, the same shard as `from`.
  void ShareOutput(ShardRef from, ShardRef output);
  void StepEnded(Node step, size_t brief);
  // Leaves steps out: those with the `count` launch ids after the first `taken` ids of this
  // sequence do not run here. The executors that run the same steps get `why` as soon as they wait
  // for them.
  void LeaveOut(const Node& node, uint64_t taken, uint64_t count, const absl::Status& why);
  void DropGarbage();
  // Ends a sequence all of whose steps have ended: first reads the outputs that go inline, then
  // reports the end.
  Went EndSequence(NodeId id, Node& node, uint64_t until);

  // ---- turns (turns.cc)
  // Does the work that is left until the turn is over. Every call from outside ends with it.
  void DoWork();
  // Each does the next piece of work of its kind; false: there is none.
  bool DoNext();
  bool FollowUpNext();
  bool StartNext();
  bool HandleNext();
  void CommandsNext();            // lets the commands that wait have the next slice
  void QueueSequence(NodeId id);  // when it may go on
  void WakeNextWaiter(SettledShard& settled);
  void DropGroup(GroupId group);
  void ShardsEnded(const GroupPart& part, const absl::Status& status);
  // Returns the receive's shards that have not come, which will not come.
  std::vector<ShardRef> EndOpenShards(const Node& receive, const absl::Status& why);
  void ShardEnded(ShardRef ref, const absl::Status& status);
  // Serves or refuses the pull, or lets it wait, as the state of the shard says.
  void ServeOrWait(const AskedShard& asked);
  void Ask(const AskedShard& asked);
  void ReceiveOrWait(NodeId id, size_t position);
  void ReceiveEnded(NodeId id, size_t position, const absl::Status& status);
  void Conclude(NodeId id, Node::End end);
  void EndLaunch(EndInHand end);  // a part; the rest is in hand then
  void Forget(const GroupPart& part, const absl::Status& cause);
  // `may_wait`: as in ExecutorActions::ReportWanted. A launch may have an entry and no seq.
  void ReportEnd(uint64_t seq, const absl::Status& status, bool may_wait);
  void ReportLaunchEnd(const PrepareLaunch& launch, const absl::Status& status, bool may_wait);
  void Reported(bool may_wait);
  void AddInlined(Report::Inlined inlined);
  void AddFailure(Report::Failure failure);

  ExecutorActions* const actions_;
  const int max_gangs_;
  const size_t shards_at_once_;
  std::map<ExecutableId, std::shared_ptr<const SequenceCode>> sequences_;
  std::set<ExecutableId> wanted_;                // sequences that were installed and not dropped
  std::set<ExecutableId> follows_;               // code that InstallDone called `follows`
  std::set<ExecutableId> shared_;                // code and sequences that other executors run, too
  std::map<ExecutableId, LinkedBlocks> blocks_;  // by sequence
  std::map<ExecutableId, LocalPart> parts_;      // of code that LaunchAll may launch
  const SequenceRun::Garbage garbage_ = std::make_shared<std::vector<GroupId>>();
  uint64_t next_step_ = uint64_t{1} << 63;  // also of groups and blocks; known here only
  // Gangs that are launched and not started, and sequences until all their steps were started.
  DeviceLines lines_;
  std::deque<NodeId> gangs_;    // those of lines_ that may start, perhaps
  std::deque<NodeId> singles_;  // launches on one device that may start
  std::deque<NodeId> advance_;  // sequences that may go on
  // Launches in hand come before all else, so nothing finds one half done; only completions of
  // actions come in between.
  std::optional<LaunchInHand> launching_;
  std::optional<StartInHand> starting_;
  std::optional<EndInHand> forgetting_;  // it was cancelled
  // Ends of launches with many outputs, a part of each after the other. Commands go in between: an
  // output is declared until it is ended, as if its launch still ran. Invariant: none is in nodes_.
  std::map<NodeId, EndInHand> ending_;
  NodeId ended_last_;  // the next part is of the one behind it
  // Consequences of events. They are done before the next command, and one by one: none runs inside
  // another, because a chain of local copies may have any length.
  std::deque<GroupId> freed_;
  std::deque<SettledShard> settled_;
  std::deque<Followed> followed_;                   // launches that others may follow
  std::deque<std::pair<NodeId, size_t>> receives_;  // to be started, from that position on
  std::deque<AskedShard> asked_;                    // early pulls whose transfer is known by now
  std::deque<NodeId> ended_;                        // launches whose `end` may be handled now
  std::deque<Command> inbox_;
  size_t inbox_launches_ = 0;
  WorkMeter work_;
  bool turn_wanted_ = false;
  bool commands_next_ = false;   // a sequence, or an end of ending_, has used its slice
  uint64_t commands_until_ = 0;  // in units: where the slice of the commands ends
  // Launched and not ended; steps of sequences are not in it.
  std::set<std::pair<LaunchId, NodeId>> launches_;
  ShardMap<Shard> shards_;
  std::map<NodeId, Node> nodes_;
  std::map<TransferId, Sending> sends_;
  std::map<TransferId, uint64_t> ended_sends_;  // and the number of its latest end
  std::deque<std::pair<TransferId, uint64_t>> ends_in_order_;
  uint64_t num_ends_ = 0;
  // Receives of a cancelled node that are still at work. If the node is prepared anew, its receives
  // start only when these have ended, because the ends of both look the same.
  std::map<NodeId, size_t> stale_receives_;
  Waiters waiters_;
  std::map<TransferId, std::vector<std::pair<uint64_t, int32_t>>>
      early_pulls_;  // (pull, index) of unknown transfers
  size_t num_early_pulls_ = 0;
  std::set<uint64_t> serving_;
  std::map<NodeId, uint64_t> unheard_;  // failed LaunchAlls of which the entry has yet to end
  LogRangeSet ended_above_;             // seqs that have ended, above ended_through_ + 1
  uint64_t ended_through_ = 0;
  uint64_t highest_launch_id_ = 0;
  Report report_;
  size_t report_ends_ = 0;  // of report_, like the next
  size_t report_bytes_ = 0;
  std::deque<Report> full_;  // reports before report_; each keeps together what ended together
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_
