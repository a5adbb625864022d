// SPDX-License-Identifier: Apache-2.0
// What the controller's core remembers. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/records.h"
#include "scheduler/admission.h"

namespace fairway {

struct Cluster::State {
  State(ClusterOptions o, ClusterActions* a) : options(o), actions(a) {}

  const ClusterOptions options;
  ClusterActions* const actions;
  Admission admission;
  std::map<ExecutorId, Executor> executors;
  std::map<IslandId, Island> islands;
  size_t record_bytes =
      0;  // of all sessions' records; before them, since these count down at their end
  std::map<SessionId, Session> sessions;
  std::unordered_map<SessionId, Holdings> holdings;  // of sessions and of those that have ended
  std::unordered_map<GroupId, std::unique_ptr<Group>> groups;
  std::map<NodeId, std::unique_ptr<Node>> nodes;
  std::map<ExecutableId, ExecutableSpec> executables;
  std::map<ExecutableId, CodeLayout> layouts;  // of each of them
  uint64_t next_node = 1;
  uint64_t next_group = 1;
  uint64_t next_session = 1;
  uint64_t next_watch = 1;
  uint32_t next_executor = 1;
  uint32_t next_island = 1;
  uint32_t next_device = 1;
  std::multimap<uint32_t, uint32_t> free_devices;  // of forgotten executors: how many, the first
  size_t most_islands = 0;                         // that there were at one time
  uint64_t next_sequence = kFirstSequence;
  uint64_t num_submitted = 0;
  std::set<ExecutableId> retired;  // sequences that no program has any more, but nodes
  uint64_t executions = 0;
  uint64_t inline_hits = 0;
  uint64_t executor_fetches = 0;

  // Work that an event makes necessary is put here and done by Work, so that nothing recurses and
  // no turn is long (work.cc).
  std::unordered_map<SessionId, Worklist> work;
  std::deque<SessionId> busy;   // those that have some, in turn
  size_t slices_left = 0;       // of them, those that have a slice before islands are looked at
  std::set<IslandId> to_pump;   // islands where something may be admitted or launched
  std::deque<Answer> answers;   // of the operation that is under way
  uint64_t units = 0;           // of work, since the start
  uint64_t most_units = 0;      // of one operation or turn
  bool turn_wanted = false;     // Turn is to come: what is left waits for it
  uint64_t operation_ends = 0;  // the units at which the operation leaves what follows to a turn
  bool operating = false;       // an operation is under way: none may begin
  bool handing_over = false;    // answers are on their way
  bool reentered = false;       // an operation began while another one was under way: a bug
  // Queued receives that wait until the executors of their sources are back.
  std::set<NodeId> parked;
  std::optional<NodeId> unpark_after;  // those after it are looked at again
  uint64_t num_losses = 0;             // for Loss::number
  size_t open_losses = 0;              // in all worklists
  std::set<NodeId> deferred;           // nodes with Node::deferred; some have ended
  std::set<ExecutorId> with_frees;
  std::vector<Executor*> device_owner = {nullptr};  // by DeviceId
  std::map<std::pair<NodeState, NodeState>, uint64_t> transitions;

  // ---- looking up (sessions.., in cluster.cc)
  // For its next operation: what it has under way is finished first.
  absl::StatusOr<Session*> FindSession(SessionId id);
  // The same while it may be busy: for what has nothing to do with arrays.
  absl::StatusOr<Session*> LookAt(SessionId id);
  absl::StatusOr<Array*> FindArray(SessionId session, uint64_t handle);
  absl::StatusOr<Array*> FindIn(Session& session, uint64_t handle);
  // A fresh result handle: `asked`, or one of the server's range when 0.
  // What is counted of records is what there is.
  absl::Status CheckRecords() const;
  // RESOURCE_EXHAUSTED: there is no room for the records of so many more arrays of this session.
  absl::Status CheckRoom(const Session& session, size_t more) const;
  // The same of a program that takes so many bytes more.
  absl::Status CheckProgramRoom(const Session& session, const std::string& name,
                                size_t bytes) const;
  // Also one that has ended, while there is something left of it; nullptr: there is none.
  Session* RestOf(SessionId id);
  absl::StatusOr<uint64_t> NewHandle(Session& session, uint64_t asked);
  // `count` of them, each for another array; `asked`: as many or none.
  absl::StatusOr<std::vector<uint64_t>> NewHandles(Session& session,
                                                   const std::vector<uint64_t>& asked,
                                                   size_t count);
  Group* FindGroup(GroupId id);
  Node* FindNode(NodeId id);
  Executor* ExecutorOf(DeviceId device);
  const Executor* ExecutorOf(DeviceId device) const;
  bool IslandUp(const Island& island) const;
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
  // Nodes that were made for a request, each with the group that it is to make. They are in no
  // table before all of the request has been checked.
  struct Making {
    struct Made {
      std::unique_ptr<Node> node;
      std::unique_ptr<Group> group;
    };
    std::vector<Made> nodes;
    size_t pieces = 0;
  };
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

  // ---- groups that the controller has (stored.cc)
  // Nothing but blob_of_shard is set yet; the bytes are charged.
  void BeginStored(Session& session, Group& group, std::vector<int32_t> blob_of_shard);
  // Whether so much more may be stored for the session.
  bool RoomToStore(const Session& session, size_t more) const;
  // Whether the new array of these blobs is to be stored.
  bool MayStore(const Session& session, const std::vector<int32_t>& blob_of_shard,
                const std::vector<int64_t>& bytes) const;
  // If all that the node reads is stored, and small, so is what it makes. Returns whether.
  bool BeginToStore(Session& session, Making::Made& made);
  // The inputs of one that stores are there.
  void Store(Node& node);
  BytesRef StoredPart(const Node& node, const Group& out, int32_t shard) const;
  // Makes shards of stored groups those on their devices, which are put there by nodes that are
  // made now, if they are not there or on their way. Returns whether there were any.
  bool PlaceShards(std::vector<ShardRef>& shards);
  GroupId PlacedOf(Group& stored);
  // The bytes of what a node places.
  void TakeStored(Node& node);
  // Whether the upload's bytes go with its commands.
  bool IsInline(const Node& upload) const;
  // It refers to its placed group no more.
  void LetGoOfPlaced(Group& stored);
  // Its bytes are not needed any more.
  void Unstore(Group& group);

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
  // Chooses younger nodes that have not begun, to be taken back so that `node` fits. Returns
  // whether it will.
  bool MakeRoom(const Node& node);
  // Takes some of the island's victims back, until `units` reaches `until`. Returns whether all
  // are.
  bool TakeVictims(Island& island, uint64_t until);
  // Whether the node's end may free memory there; with `device`, on that one.
  bool HoldsMemoryOf(const Node& node, IslandId island, DeviceId device = DeviceId()) const;
  bool AnotherWillFree(IslandId island, const std::set<NodeId>& live) const;
  // Whether something that was there before it began to wait, and ends, may free memory for it.
  bool WillBeFreed(const Admission::Shortage& first, const Island::Stuck& stuck,
                   const Island& island, const std::set<NodeId>& live) const;
  // The same of what runs already, of which there is little: no need to look further.
  bool RunsBefore(const Admission::Shortage& first, const Island::Stuck& stuck,
                  const Island& island) const;
  // The nodes that will end without anything being freed by clients: all others wait for memory,
  // directly or not.
  std::set<NodeId> LiveNodes();
  // Takes a node that was not launched back from its executors; it is then queued, but in no queue.
  void Unprepare(Node& node, const absl::Status& cause);
  // Ends a node that was not launched (or a receive at work) with an error.
  void Fail(Node& node, const absl::Status& status, NodeId cause);
  // Everything that follows from its end. Destroys the node.
  void Conclude(Node& node, const absl::Status& status, NodeId cause);
  std::vector<MemoryNeed> Needs(const Node& node) const;
  // Gives memory of the island's back; its queue may move.
  void Release(Island& island, DeviceId device, int64_t bytes);
  // Fails what has waited for memory for a grace that nothing under way will free.
  void GiveUpStuck(int64_t now_ms);
  void FailStuck(Island& island, const Admission::Shortage& stuck, uint64_t through);
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
  // What makes it fail by itself, of what its executors have told; `status`: of the last one.
  static absl::Status FirstFailure(const Node& node, const absl::Status& status);
  // The end of what it was to make. `charged`: what is reserved for that becomes the groups'.
  void SettleOutputs(Node& node, const absl::Status& status, NodeId cause, bool charged);

  // ---- launches (execute.cc)
  // Makes code known; ignored when its id is known already.
  void Define(ExecutableSpec spec);
  void Undefine(ExecutableId id);
  struct LaunchedNode {
    NodeId node;
    std::vector<Array> outputs;  // their views are held
  };
  struct OutputTypes {
    const ArraySpec* types = nullptr;
    // Of a sequence: its outputs, and of each value its type. nullptr: `types` are by output.
    const int32_t* values = nullptr;
    const int32_t* type_of = nullptr;
    const ArraySpec& operator[](size_t output) const {
      return types[values == nullptr ? output : type_of[values[output]]];
    }
  };
  // A node that runs `spec` on these arrays, which fit, enqueued; with `poison` it has failed.
  // `donatable`: arguments that it takes over.
  LaunchedNode MakeLaunch(Session& session, const ExecutableSpec& spec,
                          const std::vector<const Array*>& arguments,
                          const std::vector<int32_t>& donatable, const OutputTypes& outputs,
                          const absl::Status& poison);

  // ---- programs that a session has (bind.cc)
  static constexpr uint64_t kFirstSequence = uint64_t{1} << 62;  // above all compiled code's ids
  // Counts it, or refuses it.
  std::unique_ptr<ProgramBind> NewBind(Session& session, uint64_t key, uint64_t out,
                                       std::shared_ptr<PlacedProgram> program);
  // Some more of it; whether it is over: then the session has it, or `refusal` says why not.
  bool GoOnBind(Session& session, ProgramBind& bind);
  absl::Status DefineSequence(Session& session, BoundProgram& program, PlacedProgram::Part& part);
  // Of the session's first bind.
  void GoOnBind(Session& session, Worklist& list);
  // Gives up some more of a program; whether nothing is left of it.
  bool GoOnRetiring(Session& session, BoundProgram& program);
  void GoOnRetiring(SessionId session, Worklist& list);
  // Takes it from the session, to be given up.
  absl::Status ReleaseProgram(Session& session, uint64_t handle);
  // Forgets a retired sequence that no node runs any more.
  void Forget(ExecutableId sequence);
  // Puts a constant that is not there.
  absl::Status PutConstant(Session& session, BoundProgram& program,
                           const PlacedProgram::Constant& constant);

  // ---- their runs (programs.cc)
  // Looks at an argument: whether it is as the program takes it, or is to be resharded.
  absl::StatusOr<bool> TakesAsItIs(const PlacedProgram& program, int32_t argument,
                                   const Array& array, uint64_t handle) const;
  // An array that is an error from the start, as one with failed shards on the devices of `spec`;
  // its view is held.
  Array FailedArray(const Session& session, const ExecutableSpec& spec, const Array& error);
  // Does some more of a run, or begins to make one of its values; whether its steps are made.
  bool GoOnRun(Session& session, ProgramRun& run);
  void GoOnMaking(Session& session, ProgramRun& run);
  // Makes the next step, which is a sequence; what it makes goes into the run's values, held.
  void RunStep(Session& session, const ProgramPlan::RunSequence& step, ProgramRun& run);
  // Checks the arguments, and takes those that are as the program takes them. On failure nothing
  // of it is left.
  absl::Status BeginRun(Session& session, BoundProgram& program, const std::vector<uint64_t>& args,
                        const ExecuteOptions& options, ProgramRun& run);
  // What comes for two arguments, or is a constant too, is taken over by no step: another one, or
  // the caller, has it as well.
  void KeepShared(ProgramRun& run);
  // All its steps are made: gives the session the results.
  void EndRun(Session& session, ProgramRun& run);
  absl::StatusOr<Arrays::PutResult> MakePut(Session& session, uint64_t out, const ArraySpec& spec,
                                            std::vector<int32_t> blob_of_shard, bool lazy);
  void Provide(NodeId upload, int32_t blob, const absl::StatusOr<BytesRef>& bytes);

  // ---- resharding (reshard.cc)
  // An array with another sharding or type, in the making: shard by shard, because each may be of
  // many pieces.
  struct SourcePiece {
    int32_t source = 0;  // position in the source's devices
    bool made = false;   // in the target's, of an earlier one in the same executor
    Piece piece;         // `out` is not looked at
  };
  // For one position of the target's devices.
  using PiecesOf = std::function<std::vector<SourcePiece>(int32_t position)>;
  struct Remake;
  absl::StatusOr<Remake> BeginRemake(const Session& session, const Array& source,
                                     const ArraySpec& target, std::string name, bool may_alias,
                                     PiecesOf pieces_of, const Making& made);
  // Its next shard; whether it was the last one.
  absl::StatusOr<bool> GoOnRemake(const Session& session, Remake& remake, Making& made);
  // `source` and `target` stay where they are until it is over.
  absl::StatusOr<Remake> Resharded(const Session& session, const Array& source,
                                   const ArraySpec& target, bool may_alias, const Making& made);
  absl::StatusOr<Remake> Bitcasted(const Session& session, const Array& source,
                                   const ArraySpec& target, bool may_alias, const Making& made);
  // Its last node is complete.
  void EndNode(const Making::Made& made) const;
  absl::StatusOr<std::vector<uint64_t>> RemakeAtOnce(SessionId session, bool bitcast,
                                                     const std::vector<uint64_t>& in,
                                                     const std::vector<ArraySpec>& targets,
                                                     CopySemantics semantics,
                                                     const std::vector<uint64_t>& out);
  void RemakeMany(SessionId session, bool bitcast, std::vector<uint64_t> in,
                  Arrays::Targets targets, CopySemantics semantics, std::vector<uint64_t> out,
                  Done done, Each each);
  class ValueRemake;
  // `source` and `target` stay where they are until it is over; `pieces`: of those before it.
  std::unique_ptr<ValueRequest> NewValue(const Array& source, const ArraySpec& target,
                                         bool after_inputs, size_t pieces);

  // ---- requests of many arrays (many.h)
  class ManyRequest;
  class ResultHandles;
  class MakeRequest;
  class CopyRequest;
  class RemakeRequest;
  class RemapRequest;
  class DeleteRequest;
  class DestructRequest;
  class ReleaseRequest;
  class WatchRequest;
  class ErrorsRequest;
  // Does the first slice of it; the session is busy until the rest is done.
  void Begin(Session& session, std::unique_ptr<LongRequest> request, Cluster::Done done,
             Cluster::Each each = nullptr);
  // The same of a request that makes nothing; nothing when there is no such session.
  void BeginEnding(SessionId session, std::unique_ptr<LongRequest> request, Cluster::Ended ended,
                   Cluster::Each each);
  // Does all of it.
  absl::StatusOr<std::vector<uint64_t>> AtOnce(Session& session, LongRequest& request);
  std::unique_ptr<LongRequest> NewWatch(Session& session, uint64_t token,
                                        std::vector<uint64_t> handles);
  void AnswerRequest(SessionId session, LongRequest& request);
  void AnswerAtOnce(SessionId session, Cluster::Done done, absl::Status refusal);
  void GoOnRequest(SessionId session, Worklist& list);
  // Does all that is left of what the session is busy with, in this turn.
  void FinishBusy(SessionId session);

  // ---- transfers and fetches (transfers.cc)
  void PrepareReceiveOn(Node& node, size_t participant);
  ShardSource SourceOf(const Node& node, size_t i, const Executor& receiver);
  // The sources and pieces of a remade shard, the last one of command.out.
  void AddPieces(const Node& node, int32_t shard, PrepareReceive& command);
  void PrepareSends(Node& node);
  void EndTransfer(const Node& node);
  void StartFetch(Node& node);

  // ---- executors (executors.cc)
  void SendTo(Executor& executor, Command command);
  void FlushFrees(Executor& executor);
  std::string Where(const Node& node) const;  // "island i0, worker w0"
  // Bytes and shard buffers of each session on a device.
  using Held = std::map<SessionId, std::pair<int64_t, int>>;
  Held HeldOn(DeviceId device) const;
  static std::string WhoHolds(const Held& held, SessionId asking);
  absl::Status Exhausted(const Admission::Shortage& shortage, std::string_view why) const;

  // Devices for an executor: those of one that was forgotten, or new ones.
  DeviceId NewDevices(uint32_t count);
  // Whether something may still ask for what the island was.
  bool Needed(const Island& island) const;
  // The tables of islands, executors and devices fit each other.
  absl::Status CheckIslands() const;

  // Admits and launches what may go there, until `units` reaches `until`.
  void Pump(Island& island, uint64_t until);

  // ---- losses (losses.cc)
  // Has all sessions with something on the island hear of it: of the executor, or, without, that it
  // was given up.
  void BeginLoss(Island& island, Executor* lost, const absl::Status& status);
  // Some more of what one session hears of it.
  void GoOnLoss(SessionId session, Worklist& list);
  void LoseGroups(SessionId session, Loss& loss);
  void LoseNode(Node& node, Loss& loss);
  void LoseLaunched(Node& node, const Loss& loss);
  // The session has heard it.
  void LossHeard(const Loss& loss);
  // All have: code that ran there too is loaded anew.
  void DropShared(const std::vector<Executor*>& lost);
  bool HasLosses(SessionId session) const;
  // Has the session hear of all losses now, in this turn.
  void FinishLosses(SessionId session);
  // Parks one that was admitted until its session has heard of all losses, if they may be of what
  // it takes; else prepares it.
  void AfterLosses(Node& node);
  // Looks again at some of the parked.
  void Unpark();

  // ---- work (work.cc)
  void Charge(uint64_t more) { units += more; }
  void ChargeShards(size_t shards) { units += 1 + shards / kShardsPerUnit; }
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
  // Makes the next steps of the session's program.
  void GoOn(SessionId session, Worklist& list);
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

// One operation or event of the core. When it is over, the answers that it made are handed over:
// they may begin another one.
class Cluster::Operation {
 public:
  explicit Operation(State& state);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  State& state_;
  const uint64_t began_;  // State::units then
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
