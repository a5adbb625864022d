// SPDX-License-Identifier: Apache-2.0
// What the controller's core remembers. Private to this folder.
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

#include <absl/container/btree_map.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/group.h"
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
#include "scheduler/admission.h"

namespace fairway {

// It is made of its owners. Those that know nothing of the others are bases: what they keep is used
// by its name alone. The others are members that refer back to it. What is left here is the
// dataflow: groups, nodes, what follows from each other, and its tables.
struct Cluster::State : Registry, Ledger, Turns {
  State(ClusterOptions o, ClusterActions* a) : Ledger(o.record_memory), options(o), actions(a) {}

  const ClusterOptions options;
  ClusterActions* const actions;
  Admission admission;
  std::map<SessionId, Session> sessions;
  std::unordered_map<SessionId, Holdings> holdings;  // of sessions and of those that have ended
  absl::btree_map<GroupId, std::unique_ptr<Group>> groups;
  std::map<NodeId, std::unique_ptr<Node>> nodes;
  std::map<ExecutableId, ExecutableSpec> executables;
  std::map<ExecutableId, CodeLayout> layouts;  // of each of them
  uint64_t next_node = 1;
  uint64_t next_group = 1;
  uint64_t next_session = 1;
  uint64_t next_watch = 1;
  uint64_t num_submitted = 0;
  uint64_t executions = 0;
  uint64_t inline_hits = 0;
  uint64_t executor_fetches = 0;

  // Queued receives that wait until the executors of their sources are back.
  std::set<NodeId> parked;
  std::optional<NodeId> unpark_after;  // those after it are looked at again
  std::set<NodeId> deferred;           // nodes with Node::deferred; some have ended
  std::set<ExecutorId> with_frees;
  std::map<std::pair<NodeState, NodeState>, uint64_t> transitions;

  Losses losses{*this};
  MemoryRoom memory{*this};
  ProgramRuns programs{*this};
  Requests requests{*this};
  Remaking remaking{*this};
  StoredGroups stored_groups{*this};
  Transfers transfers{*this};

  // ---- looking up (sessions.., in cluster.cc)
  // For its next operation: what it has under way is finished first.
  absl::StatusOr<Session*> FindSession(SessionId id);
  // The same while it may be busy: for what has nothing to do with arrays.
  absl::StatusOr<Session*> LookAt(SessionId id);
  absl::StatusOr<Array*> FindArray(SessionId session, uint64_t handle);
  absl::StatusOr<Array*> FindIn(Session& session, uint64_t handle);
  // What is counted of records is what there is.
  absl::Status CheckRecords() const;
  // Also one that has ended, while there is something left of it; nullptr: there is none.
  Session* RestOf(SessionId id);
  // A fresh result handle: `asked`, or one of the server's range when 0.
  absl::StatusOr<uint64_t> NewHandle(Session& session, uint64_t asked);
  // `count` of them, each for another array; `asked`: as many or none.
  absl::StatusOr<std::vector<uint64_t>> NewHandles(Session& session,
                                                   const std::vector<uint64_t>& asked,
                                                   size_t count);
  Group* FindGroup(GroupId id);
  Node* FindNode(NodeId id);
  // See Sessions::IslandOf.
  absl::StatusOr<IslandId> IslandOf(const Session& session,
                                    const std::vector<int32_t>& devices) const;

  // ---- groups (groups.cc)
  Group& MakeGroup(SessionId session, IslandId island, DType dtype, const std::string& memory_kind);
  // In no table yet, and no loss is heard of it.
  std::unique_ptr<Group> NewGroup(SessionId session, IslandId island, DType dtype,
                                  const std::string& memory_kind);
  Group& InsertGroup(std::unique_ptr<Group> group);
  void EraseGroup(Group& group);
  // What a session has there, which begins to have something.
  Stake& StakeOf(Holdings& has, IslandId island) const;
  // Forgets what a session that has ended no longer has.
  void ForgetHoldings(SessionId session);
  // Its bytes are accounted for as the session's, or no more.
  static void SetCharged(Group& group, bool charged);
  // Gives the view its references; the opposite of DropView.
  void HoldView(const Array& array);
  void DropView(const Array& array);
  // The view's groups, each once.
  std::vector<GroupId> GroupsOf(const std::vector<ShardRef>& shards) const;
  void MarkDeleted(const std::vector<ShardRef>& shards);
  bool IsDeleted(const Array& array) const;
  // `source` as an array of the same cut elsewhere, in the making: its view is not held.
  absl::StatusOr<Array> Copied(Session& session, const Array& source, const ArraySpec& target,
                               bool may_alias, Making& made);
  // One output of a remap.
  absl::StatusOr<Array> Remapped(const Session& session, const ArraySpec& spec,
                                 const std::vector<RemapPlan::From>& from,
                                 const std::vector<Array*>& in);
  // The handle is as deleted from here on; other views of its shards are not.
  void GiveAway(Array& array);
  void AddReader(GroupId id, const Node& node);
  void DropReader(GroupId id);
  // A node that reads the group has memory now (or ends), or has none. Fetches need none.
  void HasMemory(const Node& reader, Group& group, bool has);
  void SetReady(Group& group);
  void SetFailed(Group& group, const absl::Status& error, NodeId cause);
  // Frees the bytes when nobody needs them, and forgets the group when nobody knows it.
  void Collect(Group& group);
  void ReleaseBytes(Group& group);
  // Of a report; ignored when `from` does not hold that shard, or they are not as many as it has.
  void StoreInlined(ExecutorId from, ShardRef ref, BytesRef bytes);
  BytesRef Inlined(const Group& group, int32_t shard) const;
  // OK, or why the array cannot be used: deleted.
  absl::Status CheckUsable(const Array& array, uint64_t handle) const;
  // It waits for one WatchEnded: until all that it is to wait for is registered.
  uint64_t AddWatch(Session& session, uint64_t token);
  void WatchEnded(SessionId session, uint64_t watch, size_t position, const absl::Status& status,
                  NodeId cause);
  // Watches the nodes from `first` on, which are those of one call, for ExecuteOptions::watch.
  // `known`: how it has ended already, as far as it has.
  void WatchNodes(Session& session, uint64_t token, NodeId first, const absl::Status& known);
  // The watch waits for the nodes from `first` on, too.
  void WatchFrom(Session& session, NodeId first, uint64_t watch);

  // ---- nodes (nodes.cc; donation.cc)
  Node& MakeNode(SessionId session, NodeKind kind, IslandId island, std::string name);
  // In no table yet, and without an id.
  std::unique_ptr<Node> NewNode(SessionId session, NodeKind kind, IslandId island,
                                std::string name);
  Node& InsertNode(std::unique_ptr<Node> node);
  // Puts a node and its group into the tables; the node is to be enqueued.
  Node& Insert(Session& session, Making::Made made);
  std::vector<Node*> InsertAll(Session& session, Making& made);
  // Puts a queued node into its island's queue, or parks it.
  void Submit(Node& node);
  // Whether a receive's sources lie on executors that are up.
  bool SourcesUp(const Node& node) const;
  // Registers its readers and puts it into the queue of its island, at once or when its inputs have
  // ended; to be called last.
  void Enqueue(Node& node);
  void Move(Node& node, NodeState to);
  void Prepare(Node& node);
  void PrepareLaunchOn(Node& node, size_t participant);
  // Has the executor load it, and the node wait for that.
  void InstallOn(Executor& executor, const ExecutableSpec& spec,
                 const std::vector<int32_t>& devices, Node& node);
  void InputSettled(Node& node, const Group& input);
  void InputsEnded(Node& node);
  // Reserves less for inputs that will certainly become outputs.
  void CreditDonations(Node& node);
  // Those of `arguments` (of a launch) that nothing but this node can read any more, by argument.
  std::vector<bool> CertainlyDonated(const Node& node, const std::vector<int32_t>& arguments);
  void MaybeArrived(Node& node);
  void DoLaunch(Node& node, LaunchId launch_id);
  // The donated input's memory becomes an output's: what is reserved for both is given back once,
  // less the credit.
  void TakeOver(Node& node, Group& input);
  // The outputs that are to come with the completion.
  std::vector<ShardRef> InlineOutputs(const Node& node) const;
  // Those that wait for its outputs, and run where it runs, may be launched behind it.
  void LaunchedOn(const Node& node);
  // It lost an executor, whose successor knows nothing of it: nothing may be launched behind it any
  // more.
  void LaunchLost(const Node& node);
  void ParticipantEnded(Node& node, size_t participant, absl::Status status);
  // It has failed, and the first cause may be told soon (see Node::deferred).
  void Defer(Node& node, absl::Status failure);
  // The first failure among its participants, or OK.
  static absl::Status ResultOf(const Node& node);
  // A launch has ended on all its executors; it is concluded when its inputs have ended too.
  void LaunchEnded(Node& node);
  // Concludes it: with the first cause if an input failed, else with `result`.
  void EndWith(Node& node, absl::Status result);
  // Takes prepared nodes back and queues them again, with the receives that read what they were to
  // make.
  void TakeBack(std::set<NodeId> taken, const absl::Status& cause);
  // Takes a node that was not launched back from its executors; it is then queued, but in no queue.
  void Unprepare(Node& node, const absl::Status& cause);
  // Ends a node that was not launched (or a receive at work) with an error.
  void Fail(Node& node, const absl::Status& status, NodeId cause);
  // Everything that follows from its end. Destroys the node.
  void Conclude(Node& node, const absl::Status& status, NodeId cause);
  std::vector<MemoryNeed> Needs(const Node& node) const;
  // Gives memory of the island's back; its queue may move.
  void Release(Island& island, DeviceId device, int64_t bytes);
  // To be called when what it looks at has changed: whether the group's bytes are given back when
  // work that has its memory has ended, whatever clients do.
  void CountLeaving(Group& group);
  // The same of what a node that has (`begins`) or had memory needs for itself.
  void CountTemporary(const Node& node, bool begins);
  // What the node reserves on a device, or nullptr. `position`: where it is to be looked for first.
  static Reservation* ReservationOn(Node& node, DeviceId device, size_t position);

  // ---- poison (poison.cc)
  // Of the failed groups the one that the lowest node made fail; nullptr: none has failed.
  const Group* WorstOf(const std::vector<ShardRef>& shards) const;
  const Group* WorstInput(const Node& node) const;
  static const Group* Worse(const Group* worst, const Group& other);
  // Fails it with the error of its worst input, if one failed; a sequence only when no output can
  // be well. Returns whether.
  bool FailIfPoisoned(Node& node);
  static bool IsSequence(const Node& node) {
    return node.executable != nullptr && node.executable->sequence != nullptr;
  }
  // Of a sequence: see FailedBy. `lost_too`: also by inputs that were there and were lost.
  std::vector<int32_t> PoisonedBy(const Node& node, bool lost_too) const;
  // Of a sequence: that executor has told that these outputs failed. Of each the failure is told
  // that is an argument's, then that of the first executor: not which came first decides.
  static void OutputsFailed(Node& node, size_t participant,
                            std::map<int32_t, FailedOutput> failures);
  // An output that failed by itself because a peer went away; nullptr: none has.
  static const absl::Status* OutputWithoutPeer(const Node& node);
  // The end of what it was to make. `charged`: what is reserved for that becomes the groups'.
  void SettleOutputs(Node& node, const absl::Status& status, NodeId cause, bool charged);

  // ---- launches (execute.cc)
  // Makes code known; ignored when its id is known already.
  void Define(ExecutableSpec spec);
  void Undefine(ExecutableId id);
  // A node that runs `spec` on these arrays, which fit, enqueued; with `poison` it has failed.
  // `donatable`: arguments that it takes over.
  LaunchedNode MakeLaunch(Session& session, const ExecutableSpec& spec,
                          const std::vector<const Array*>& arguments,
                          const std::vector<int32_t>& donatable, const OutputTypes& outputs,
                          const absl::Status& poison);
  // RESOURCE_EXHAUSTED: executors could not be sent what a launch of it takes.
  absl::Status CheckSendable(const ExecutableSpec& spec) const;

  absl::StatusOr<Arrays::PutResult> MakePut(Session& session, uint64_t out, const ArraySpec& spec,
                                            std::vector<int32_t> blob_of_shard, bool lazy);
  void Provide(NodeId upload, int32_t blob, const absl::StatusOr<BytesRef>& bytes);

  // ---- executors (executors.cc)
  void SendTo(Executor& executor, Command command);
  void FlushFrees(Executor& executor);
  std::string Where(const Node& node) const;  // "island i0, worker w0"
  // Whether something may still ask for what the island was.
  bool Needed(const Island& island) const;
  // What islands count of sessions is what there is.
  absl::Status CheckIslands() const;

  // Admits and launches what may go there, until `units` reaches `until`.
  void Pump(Island& island, uint64_t until);

  // ---- work (work.cc)
  // The worklist of the session, which has its turn when it comes.
  Worklist& WorkOf(SessionId session);
  // Does what is left to do, unless a turn is to come anyway: an operation does not pay for what
  // others left.
  void Settle();
  // Does what is left to do, until there is nothing or `units` has reached `until`.
  void DoWork(uint64_t until);
  bool HasWork() const { return !busy.empty() || !to_pump.empty() || unpark_after.has_value(); }
  // One slice, which ends with the turn.
  void DoSlice(SessionId session, uint64_t turn_ends);
  void DoItem(SessionId session, Worklist& list);
  void TellLoaded(const Told& told);
  void TellEnded(Told told);
  // Gives up some more of what a session that has ended held.
  void GoOnClosing(Worklist& list);
  // Tells some of those that wait for a settled group; returns whether all know.
  bool TellWaiters(GroupId id);
  void Answered(SessionId session, uint64_t token, absl::Status status) {
    answers.push_back({session, token, std::move(status), nullptr, false, nullptr});
  }
  void Fetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes);
  void HandOver();
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
