// SPDX-License-Identifier: Apache-2.0
// The state of the controller's core. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/commands.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/group.h"
#include "controller/cluster/groups.h"
#include "controller/cluster/launches.h"
#include "controller/cluster/ledger.h"
#include "controller/cluster/losses.h"
#include "controller/cluster/memory_room.h"
#include "controller/cluster/node.h"
#include "controller/cluster/operation.h"
#include "controller/cluster/program_runs.h"
#include "controller/cluster/registry.h"
#include "controller/cluster/remaking.h"
#include "controller/cluster/requests.h"
#include "controller/cluster/session.h"
#include "controller/cluster/stored_groups.h"
#include "controller/cluster/transfers.h"
#include "controller/cluster/turns.h"
#include "controller/cluster/views.h"
#include "controller/cluster/watches.h"
#include "scheduler/admission.h"

namespace fairway {

// The core's owners together. Owners that know nothing of the others are bases, whose members are
// used by name alone. The others are members with a reference to the state. The rest is the
// dataflow: groups, nodes, their consequences and the tables.
struct Cluster::State : Registry, Ledger, Turns {
  State(ClusterOptions o, ClusterActions* a) : Ledger(o.record_memory), options(o), actions(a) {}

  const ClusterOptions options;
  ClusterActions* const actions;
  Admission admission;
  std::map<SessionId, Session> sessions;
  std::unordered_map<SessionId, Holdings> holdings;  // also of sessions that have ended
  GroupTable all_groups;
  std::map<NodeId, std::unique_ptr<Node>> nodes;
  std::map<ExecutableId, ExecutableSpec> executables;
  std::map<ExecutableId, CodeLayout> layouts;  // of each executable
  uint64_t next_node = 1;
  uint64_t next_session = 1;
  uint64_t num_submitted = 0;
  uint64_t executions = 0;
  uint64_t inline_hits = 0;
  uint64_t executor_fetches = 0;

  // Queued receives that wait until the executors of their sources are back.
  std::set<NodeId> parked;
  std::optional<NodeId> unpark_after;  // later parked nodes are looked at again
  std::set<NodeId> deferred;           // nodes with Node::deferred; some have ended
  std::map<std::pair<NodeState, NodeState>, uint64_t> transitions;

  Commands commands{*this};
  Groups groups{*this};
  Launches launches{*this};
  Losses losses{*this};
  MemoryRoom memory{*this};
  ProgramRuns programs{*this};
  Remaking remaking{*this};
  Requests requests{*this};
  StoredGroups stored_groups{*this};
  Transfers transfers{*this};
  Views views{*this};
  Watches watches{*this};

  // ---- looking up (sessions.., in cluster.cc)
  // For the session's next operation: first finishes the one under way.
  absl::StatusOr<Session*> FindSession(SessionId id);
  // The same, but leaves a busy session busy: for operations without arrays.
  absl::StatusOr<Session*> LookAt(SessionId id);
  absl::StatusOr<Array*> FindArray(SessionId session, uint64_t handle);
  absl::StatusOr<Array*> FindIn(Session& session, uint64_t handle);
  // INTERNAL: the counted records are not those that exist. For tests.
  absl::Status CheckRecords() const;
  // Also finds a session that has ended while something of it is left. nullptr: there is none.
  Session* RestOf(SessionId id);
  // A fresh result handle: `asked`, or one of the server's range if it is 0.
  absl::StatusOr<uint64_t> NewHandle(Session& session, uint64_t asked);
  // `count` handles, all different. `asked`: `count` of them or none.
  absl::StatusOr<std::vector<uint64_t>> NewHandles(Session& session,
                                                   const std::vector<uint64_t>& asked,
                                                   size_t count);
  Group* FindGroup(GroupId id);
  Node* FindNode(NodeId id);
  // See Sessions::IslandOf.
  absl::StatusOr<IslandId> IslandOf(const Session& session,
                                    const std::vector<int32_t>& devices) const;

  // ---- groups (groups.cc)
  // The session's stake on the island; makes it if it is new.
  Stake& StakeOf(Holdings& has, IslandId island) const;
  // Forgets the holdings of a session that has ended, once nothing is left of them.
  void ForgetHoldings(SessionId session);
  // A copy of `source` with the same cut on other devices, in the making: its view is not held.
  absl::StatusOr<Array> Copied(Session& session, const Array& source, const ArraySpec& target,
                               bool may_alias, Making& made);
  // One output of a remap.
  absl::StatusOr<Array> Remapped(const Session& session, const ArraySpec& spec,
                                 const std::vector<RemapPlan::From>& from,
                                 const std::vector<Array*>& in);

  // ---- nodes (nodes.cc; donation.cc)
  Node& MakeNode(SessionId session, NodeKind kind, IslandId island, std::string name);
  // The node is in no table yet and has no id.
  std::unique_ptr<Node> NewNode(SessionId session, NodeKind kind, IslandId island,
                                std::string name);
  Node& InsertNode(std::unique_ptr<Node> node);
  // Puts a node and its group into the tables. The caller must enqueue the node.
  Node& Insert(Session& session, Making::Made made);
  std::vector<Node*> InsertAll(Session& session, Making& made);
  // Puts a queued node into its island's queue, or parks it.
  void Submit(Node& node);
  // Whether a receive's sources lie on executors that are up.
  bool SourcesUp(const Node& node) const;
  // Registers the node as a reader of its inputs, and puts it into its island's queue, at once or
  // when they have ended. Call it last.
  void Enqueue(Node& node);
  void Move(Node& node, NodeState to);
  void Prepare(Node& node);
  void InputSettled(Node& node, const Group& input);
  void InputsEnded(Node& node);
  void ParticipantEnded(Node& node, size_t participant, absl::Status status);
  // It has failed, but a first cause may be reported soon (see Node::deferred).
  void Defer(Node& node, absl::Status failure);
  // The first failure among its participants, or OK.
  static absl::Status ResultOf(const Node& node);
  // A launch has ended on all its executors. Concludes it once its inputs have ended too.
  void LaunchEnded(Node& node);
  // Concludes the node: with the first cause if an input failed, else with `result`.
  void EndWith(Node& node, absl::Status result);
  // Takes prepared nodes back and queues them again, with the receives that read their outputs.
  void TakeBack(std::set<NodeId> taken, const absl::Status& cause);
  // Takes an unlaunched node back from its executors. It is then queued, but in no queue.
  void Unprepare(Node& node, const absl::Status& cause);
  // Ends an unlaunched node, or a receive at work, with an error.
  void Fail(Node& node, const absl::Status& status, NodeId cause);
  // Concludes the node with this result, and destroys it.
  void Conclude(Node& node, const absl::Status& status, NodeId cause);

  // ---- poison (poison.cc)
  // Fails the node with the error of its worst input, if one failed; a sequence only if no output
  // can be good. Returns whether it did.
  bool FailIfPoisoned(Node& node);
  // Settles its outputs. `charged`: what is reserved for them becomes theirs.
  void SettleOutputs(Node& node, const absl::Status& status, NodeId cause, bool charged);

  // ---- launches (execute.cc)

  absl::StatusOr<Arrays::PutResult> MakePut(Session& session, uint64_t out, const ArraySpec& spec,
                                            std::vector<int32_t> blob_of_shard, bool lazy);
  void Provide(NodeId upload, int32_t blob, const absl::StatusOr<BytesRef>& bytes);

  // ---- executors (executors.cc)
  // Whether something may still ask for the island's record.
  bool Needed(const Island& island) const;
  // INTERNAL: what islands count of sessions is wrong. For tests.
  absl::Status CheckIslands() const;

  // Admits and launches on the island what may go, until `units` reaches `until`.
  void Pump(Island& island, uint64_t until);

  // ---- work (work.cc)
  // The worklist of the session, which is in line for a turn.
  Worklist& WorkOf(SessionId session);
  // Does open work, unless a turn is to come anyway: an operation does not pay for what others
  // left.
  void Settle();
  // Does open work, until none is left or `units` reaches `until`.
  void DoWork(uint64_t until);
  bool HasWork() const { return !busy.empty() || !to_pump.empty() || unpark_after.has_value(); }
  // One slice of the session, which ends with the turn at the latest.
  void DoSlice(SessionId session, uint64_t turn_ends);
  void DoItem(SessionId session, Worklist& list);
  void TellLoaded(const Told& told);
  void TellEnded(Told told);
  // Gives up some more of what an ended session held.
  void GoOnClosing(Worklist& list);
  void Answered(SessionId session, uint64_t token, absl::Status status) {
    answers.push_back({session, token, std::move(status), nullptr, false, nullptr});
  }
  void Fetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes);
  void HandOver();
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
