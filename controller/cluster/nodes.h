// SPDX-License-Identifier: Apache-2.0
// The life of nodes: made, queued, prepared, taken back, ended. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_NODES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_NODES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <absl/container/btree_set.h>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"
#include "controller/cluster/session.h"
#include "scheduler/transfer_waits.h"

namespace fairway {

// Moves nodes from state to state. What makes nodes (launches, uploads, requests, fetches) puts
// them in here. Inputs that settle (groups.h), reports (work.h) and losses (losses.h) move them on.
// What only one kind of node does is elsewhere: launches.h, transfers.h, stored_groups.h.
//
// Invariants (CheckMoves, CheckNodes): a node moves only as CanMove allows. It is in a line for
// memory, or parked, exactly while it is queued, unless it is a fetch. It is the producer of its
// outputs until it concludes; concluding it settles them all and destroys it (rule G3), a launch of
// many arguments or results in several turns (ending.h).
class Cluster::Nodes {
 public:
  explicit Nodes(State& state);

  Node& Make(SessionId session, NodeKind kind, IslandId island, std::string name);
  // The node is in no table yet and has no id.
  std::unique_ptr<Node> New(SessionId session, NodeKind kind, IslandId island, std::string name);
  // Counts the record of a node that is complete against its session, and `more` for what comes
  // with it: its outputs' records too, until it ends. So a session that works ahead waits before it
  // is refused anything.
  static void Weigh(Session& session, Node& node, size_t more = 0);
  // From now on its island goes on with one node at a time, until this one has ended.
  void CountLarge(Node& node);
  // Puts a node and its group into the tables. The caller must enqueue the node.
  Node& Insert(Session& session, Making::Made made);
  // Adds a group to what a new node reads.
  void Read(Node& node, GroupId group);
  // Registers the node as a reader of its inputs, unless Read did, and puts it into its island's
  // queue, at once or when they have ended. Call it last.
  void Enqueue(Node& node);
  // Puts a queued node into its island's queue, or parks it.
  void Submit(Node& node);
  void Move(Node& node, NodeState to);
  // The node has been admitted: tells its executors what they will do.
  void Prepare(Node& node);
  // Takes a prepared node back and queues it again, after the receives that read its outputs. If
  // these are many, its session goes on with it in turns. Returns whether it is over.
  bool TakeBack(Node& node, const absl::Status& cause);
  // Does some more of it, until `units` reaches `until`. Returns whether it is over.
  bool GoOnTakingBack(TakingBack& taking, uint64_t until);
  // Launches a prepared receive whose bytes are certain to come, if somebody waits for them.
  void MaybeLaunchReceive(Node& node);
  // Ends a launched receive that has ended on all its executors, once its sources have ended too.
  void ReceiveEnded(Node& node);
  // Ends the open parts of a launched receive with this error, and tells their executors.
  void CancelReceive(Node& node, const absl::Status& why);
  // Whether the node reads what a node makes that is about to be taken back.
  bool ReadsTakenBack(const Node& node) const;

  // One of its inputs has settled, and it is told now. `was_launched`: it took the input for
  // launched before.
  void InputSettled(Node& node, const Group& input, bool was_launched);
  // It has been told of all its inputs.
  void InputsEnded(Node& node);
  void ParticipantEnded(Node& node, size_t participant, absl::Status status);
  // Makes all parts of the launch participants.
  void JoinAll(Node& launch);
  // Of a launch for all: it failed on this executor, or has ended on all.
  void PartFailed(Node& launch, ExecutorId executor, absl::Status status);
  void AllEnded(Node& launch);
  // It has failed, but a first cause may be reported soon (see Node::deferred).
  void Defer(Node& node, absl::Status failure);
  // Ends some of the nodes that have waited long enough for a first cause.
  void EndOverdue(int64_t now_ms);
  // Fails the node with the error of its worst input, if one failed; a sequence only if no output
  // can be good. Returns whether it did.
  bool FailIfPoisoned(Node& node);
  // Ends an unlaunched node, or a receive at work, with an error. A receive ends once those that
  // read what it makes were taken back; if they are many, its session does that in slices.
  void Fail(Node& node, const absl::Status& status, NodeId cause);
  // Whether the receives that have memory are known by what they read.
  absl::Status Check() const;
  // Concludes the node with this result: settles its outputs, and destroys it (ending.h).
  void Conclude(Node& node, const absl::Status& status, NodeId cause);
  // Does some more of an ending, until `units` reaches `until`. Returns whether it is over.
  bool GoOnEnding(Ending& ending, uint64_t until);

 private:
  Node& InsertNode(std::unique_ptr<Node> node);
  void Register(Node& node, GroupId input);
  // Whether a receive's sources lie on executors that are up.
  bool SourcesUp(const Node& node) const;
  // Of those that were to be launched ahead of a transfer, others may be now.
  void NoLongerAhead(const Node& node);
  // Tells the executors of an unlaunched node that it will not come.
  void Cancel(const Node& node, const absl::Status& cause);
  // Takes an unlaunched node back from its executors. It is then queued, but in no queue.
  void Unprepare(Node& node, const absl::Status& cause);
  // Takes the node back, and frees what came of it. It is then queued, but in no queue.
  void TakeBackAlone(Node& node, const absl::Status& cause);
  // A receive that has memory and reads one of the outputs, from the step's on; or nullptr.
  Node* NextReceive(TakingBack::Step& step, const Node& node);
  // A receive gives its memory back, or has ended.
  void ReserveOutputs(const Node& node);
  void StopReceiving(const Node& node);
  // The first failure among its participants, or OK.
  static absl::Status ResultOf(const Node& node);
  // A launch has ended on all its executors. Concludes it once its inputs have ended too.
  void LaunchEnded(Node& node);
  void Join(Node& node, ExecutorId executor);
  // The launch failed on an executor. The others may wait for that one; they hear of one failure.
  void Abandon(Node& launch, ExecutorId on, const absl::Status& failed);
  // Concludes the node: with the first cause if an input failed, else with `result`.
  void EndWith(Node& node, absl::Status result);
  // Gives back what its outputs do not keep, and finds out which outputs of a sequence have failed.
  void BeginOutputs(Ending& ending);
  void SettleOutput(Ending& ending, size_t output);
  // All its outputs have been settled.
  void OutputsSettled(Ending& ending, Session* session);
  // An output is settled, and has no producer any more.
  void LetGo(Session* session, GroupId output);
  // Takes the node out of the tables. `session`: nullptr if it has ended.
  void TakeOut(Node& node, Session* session);

  std::set<NodeId> deferred_;  // nodes with Node::deferred; some have ended
  NodeId looked_at_;           // EndOverdue goes on after it
  // The receives that have memory, each by the groups that it reads and that were pending when it
  // was prepared. To take a node back costs what reads it, not what waits for it.
  absl::btree_set<std::pair<GroupId, NodeId>> receiving_;
  // The receives that were launched. Few, because what was launched is lost with its executor, and
  // what is only prepared begins anew.
  TransferWaits launched_receives_;
  State& s;  // the state that this is a part of

 public:
  uint64_t next_node = 1;      // the id of the next one
  size_t taking_back = 0;      // of all sessions' Worklist::taking_back
  uint64_t num_submitted = 0;  // to lines for memory, for Node::submitted
  // How often each transition was made: by the state before, and the one after.
  std::array<std::array<uint64_t, kStateNames.size()>, kStateNames.size()> transitions = {};
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_NODES_H_
