// SPDX-License-Identifier: Apache-2.0
// What an executor decides: which node may start, when a shard may be served, what to report. A pure state machine:
// commands and completions in, actions out; no thread, no socket, no clock. The executor process and the simulation
// run the same code.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/plan.h"

namespace fairway {

// The doing side. Calls must not re-enter the core. Completions may come in any order.
class ExecutorActions {
 public:
  virtual ~ExecutorActions() = default;

  // Load `install.code`; then Core::InstallDone.
  virtual void Load(const InstallExecutable& install) = 0;
  virtual void Unload(ExecutableId executable) = 0;

  // Run `node` now. The shell looks its buffers up by ShardRef, launches (gangs from one thread in the order of these
  // calls), stores the outputs under their ShardRefs, then Core::LaunchDone. For each of launch.inline_shards
  // it hands the bytes to LaunchDone.
  virtual void StartLaunch(const PrepareLaunch& node, const Launch& launch) = 0;

  // Bring one shard here: from another device of this executor, a peer or the controller. Store it under its ShardRef,
  // then Core::ReceiveDone.
  virtual void StartReceive(const PrepareReceive& node, size_t position) = 0;

  // Answer pull `pull` with the bytes of `shard`, which is here and ready; then Core::ServeDone.
  virtual void Serve(uint64_t pull, ShardRef shard) = 0;
  virtual void RefusePull(uint64_t pull, absl::Status why) = 0;

  // Drop the buffers of these shards (those that exist).
  virtual void Drop(const std::vector<ShardRef>& shards) = 0;

  // Something is to be reported: call Core::TakeReport before the turn of the loop ends.
  virtual void ReportWanted() = 0;
};

// Loop-confined.
class ExecutorCore {
 public:
  explicit ExecutorCore(ExecutorActions* actions);
  ~ExecutorCore();

  // From the controller, in order. A command that contradicts what is known (unknown node, twice the same id) is
  // reported as that node's INTERNAL failure; it never ends the process.
  void OnCommand(Command command);

  void InstallDone(ExecutableId executable, absl::Status status);
  void LaunchDone(NodeId node, absl::Status status, std::vector<Report::Inlined> inlined);
  void ReceiveDone(NodeId node, size_t position, absl::Status status);

  // A peer (or the controller) asks for shard `index` of `transfer`; `pull` is the shell's number for the request.
  // It waits until the transfer is known and the shard is ready. At most kMaxWaitingPulls wait for an unknown transfer.
  void OnPull(uint64_t pull, TransferId transfer, int32_t index);
  // The peer went away: forget the request.
  void PullGone(uint64_t pull);
  void ServeDone(uint64_t pull);

  // What to send; empties it.
  Report TakeReport();

  // Highest launch id seen, for registration after a new controller incarnation (rule L1).
  uint64_t highest_launch_id() const { return highest_launch_id_; }
  // Forgets everything (new controller incarnation); launches in flight end unreported.
  void Reset();

  // For tests and the end-of-test accounting.
  size_t num_groups() const { return groups_.size(); }
  size_t num_nodes() const { return nodes_.size(); }
  size_t num_sends() const { return sends_.size(); }

  static constexpr size_t kMaxWaitingPulls = 4096;

 private:
  struct Shard;
  struct Group;
  struct Node;
  struct Send;
  struct WaitingPull;

  void On(InstallExecutable command);
  void On(DropExecutable command);
  void On(PrepareLaunch command);
  void On(Launch command);
  void On(PrepareReceive command);
  void On(PrepareSend command);
  void On(EndSend command);
  void On(CancelNode command);
  void On(FreeGroups command);

  Group& DeclareGroup(const GroupPart& part);
  // The shard, or nullptr when this executor has none such.
  Shard* Find(ShardRef ref);
  void ShardEnded(ShardRef ref, const absl::Status& status);
  void Wake(ShardRef ref, Shard& shard);
  void ServeOrWait(uint64_t pull, ShardRef ref);
  void Finish(NodeId node, absl::Status status);
  void FinishSeq(uint64_t seq, absl::Status status);

  ExecutorActions* const actions_;
  std::map<GroupId, std::unique_ptr<Group>> groups_;
  std::map<NodeId, std::unique_ptr<Node>> nodes_;
  std::map<TransferId, std::unique_ptr<Send>> sends_;
  std::map<uint64_t, WaitingPull> waiting_pulls_;
  std::set<uint64_t> finished_above_;  // ended seqs above finished_through_
  uint64_t finished_through_ = 0;
  uint64_t highest_launch_id_ = 0;
  Report report_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_H_
