// SPDX-License-Identifier: Apache-2.0
// The way of a launch: made, prepared, launched. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LAUNCHES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LAUNCHES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/group.h"
#include "controller/cluster/new_launch.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "controller/cluster/session.h"
#include "graph/plan.h"
#include "scheduler/transfer_waits.h"

namespace fairway {

// Makes the nodes that run code, tells their executors what they will run, and launches them in the
// order of their island's sequencer (rule G1). Executables and runs of programs make launches;
// nodes prepare and end them; the work of turns (work.h) grants them.
//
// Invariants: code in State::executables has a layout in State::layouts, and no other has one. A
// node's inputs have arrived only if they are settled and it knows how they ended, or if all of
// them are ready or launched (rule G2). A launch donates an input only if nothing else reads it
// (rule B1).
class Cluster::Launches {
 public:
  explicit Launches(State& state);

  // Makes code known, with its layout (LayoutOf). Does nothing if its id is known already.
  void Define(ExecutableSpec spec, CodeLayout layout);
  void Undefine(ExecutableId id);
  std::vector<DeviceSeat> SeatsOf(const std::vector<DeviceId>& devices) const;
  // RESOURCE_EXHAUSTED: a launch of it needs a command that is too long for an executor.
  absl::Status CheckSendable(const ExecutableSpec& spec) const;
  // Makes some more of a launch. Returns whether it is done: its node is enqueued, or has failed.
  bool GoOn(Session& session, NewLaunch& launch);
  // Ends the node of a launch that is not done, for its session has ended.
  void GiveUp(NewLaunch& launch);

  // Tells the executors of a prepared node what they will launch, or the first of what it reads and
  // makes, and its sequencer that it may come.
  void Prepare(Node& node);
  // Tells more of that, until `units` reaches `until`.
  void GoOnPreparing(Island& island, uint64_t until);
  // Tells the sequencer that the inputs of a prepared node have arrived, if they have.
  void MaybeArrived(Node& node);
  // Whether the reader may be launched behind the producer of the group, once that was launched. If
  // the group is behind a transfer, which may wait for another island as long as that computes,
  // only those may that hold up nobody: launches on one device wait in no line there.
  static bool TakesForLaunched(const Node& reader, const Group& group) {
    return !group.behind_transfer || HoldsUpNobody(reader);
  }
  static bool HoldsUpNobody(const Node& reader);
  // The inputs of a launch have ended. If it was behind a transfer, it no longer is, nor are
  // launches behind it that read nothing else; gangs may be launched behind them.
  void BehindNothing(Node& first);
  const TransferWaits& behind() const { return behind_; }
  // It is behind no transfer any more, or will not be launched. Others may be behind one now.
  void LeaveBehind(NodeId launch);
  // The node has its launch id: sends it to its executors.
  void DoLaunch(Node& node, LaunchId launch_id);
  // Whether one command can prepare and launch it on all its executors: they are a span and have
  // the code, each argument is all of a group, and a part is told in one go.
  bool MayBeForAll(const Node& node);
  // Arguments and results, counted together, that a launch for all may have.
  size_t ValuesForAll(const CodeLayout& layout) const;
  // Nodes that wait for its outputs and run where it runs may now be launched after it. Tells the
  // first of them; the worklist of its session has the others.
  void Launched(const Node& node);
  // Tells some more of those that wait for its outputs. Returns whether all know.
  bool GoOnLaunched(LaunchedNode& launched);
  // It lost an executor, whose successor knows nothing of it. Nothing may be launched after it any
  // more. Tells the first that wait; adds to `left` the outputs for which others do.
  void Lost(const Node& node, std::vector<GroupId>& left);
  bool GoOnLost(GroupId output);
  // The donated input's memory becomes an output's. What is reserved for both is released once,
  // less the credit.
  void TakeOver(Node& node, Group& input);

 private:
  // Does the next item of a launch that is being made.
  void MakeSome(Session& session, NewLaunch& launch);
  void PlaceArgument(NewLaunch& launch);
  void BeginNode(Session& session, NewLaunch& launch);
  void MakeOutput(Session& session, NewLaunch& launch);
  void ReadArgument(NewLaunch& launch);
  // Reserves less for an input that will certainly become an output.
  void CreditDonation(NewLaunch& launch);
  void EndNew(Session& session, NewLaunch& launch);
  void FailNew(NewLaunch& launch, const absl::Status& why);
  // Arguments and results, counted together, that one command to a participant names.
  size_t ValuesAtOnce(const Node& node, size_t participant) const;
  void PrepareParts(Node& node);
  void LaunchForAll(Node& node);
  bool IsSpan(const Node& node) const;
  bool Installed(const Node& node) const;
  // The arguments that the code must not take over. Adds to node.taken those that it does.
  // `failed`: by argument; empty: none has.
  std::vector<int32_t> NonDonatable(Node& node, const std::vector<bool>& failed);
  // Tells a participant of those from `from` on. Returns how far it is.
  size_t PrepareOn(Node& node, size_t participant, size_t from);
  bool TellLaunched(const Node& node, LaunchedNode& launched, uint64_t until);
  bool TellLost(GroupId output, uint64_t until);
  // Whether some input of the node is behind a transfer, or there are too many to look at.
  bool ReadsBehind(const Node& node) const;
  // The reader takes one more of its inputs for launched.
  void TakesNow(Node& reader);
  // Whether a launch takes over the group: nothing else can read it any more, and one argument has
  // all its shards.
  static bool CertainlyTaken(const Group& group, const GroupUse& use);
  // By argument of a launch: is it donatable, and can nothing but this node read it any more?
  // Empty: no argument is.
  std::vector<bool> CertainlyDonated(const Node& node);
  // The outputs whose bytes should come with the report.
  std::vector<int32_t> InlineOutputs(const Node& node) const;
  std::vector<ShardRef> InlineShards(const Node& node) const;  // their distinct shards

  TransferWaits behind_;  // the launches behind transfers
  State& s;               // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LAUNCHES_H_
