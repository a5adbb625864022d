// SPDX-License-Identifier: Apache-2.0
// The controller's core: sessions, the array table, the dataflow graph of futures, admission and
// the islands' sequencers behind one set of client operations (docs/architecture.md, "Front doors
// and client operations").
//
// A pure state machine: operations and events in, actions out; no thread, no socket, no clock, no
// random source. Every operation returns at once; what must wait is a node of the graph.
// Loop-confined.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_
#define FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/device.h"
#include "core/remap.h"
#include "core/sharding.h"
#include "graph/callback.h"
#include "graph/lowering.h"
#include "graph/plan.h"
#include "wire/limits.h"

namespace fairway {

struct Array;          // state.h
struct BoundProgram;   // state.h
struct PlacedProgram;  // placed_program.h

using BytesRef = std::shared_ptr<const Blob>;

// Handles are the session's own numbers. Clients make theirs below kFirstServerHandle; 0 is never a
// handle.
inline constexpr uint64_t kFirstServerHandle = uint64_t{1} << 60;

// IFRT ArrayCopySemantics.
enum class CopySemantics : uint8_t { kAlwaysCopy, kReuseInput, kDonateInput };

// A device as a session sees it. Ids are dense from 0; `slice_index` numbers the islands the same
// way.
struct VirtualDevice {
  int32_t id = 0;
  int32_t slice_index = 0;
  int32_t local_ordinal = 0;  // within its executor
  std::string island;
  std::string worker;
  std::string runtime;  // "pjrt", "host", ...: what programs it runs
  std::string platform_name;
  std::string platform_version;
  std::string device_kind;
  std::vector<std::string> memory_kinds;  // the first is the default
  int64_t memory_bytes = 0;               // what admission gives out of it
  DeviceId device;                        // never shown to clients
  IslandId island_id;
  ExecutorId executor;
};

// The island of these of a session's devices. INVALID_ARGUMENT: they are of several.
absl::StatusOr<IslandId> IslandOf(const std::vector<VirtualDevice>& all,
                                  const std::vector<int32_t>& devices);

// One argument or result of compiled code, without its devices.
struct ValueType {
  DType dtype = DType::kInvalid;
  Shape global;
  Shape shard;
  // Row-major tile of each device position and pieces per dimension, as in Sharding::Tiled; empty:
  // replicated.
  std::vector<int64_t> tiles;
  std::vector<int64_t> tile_of;
  std::string memory_kind;
  bool donated = false;     // arguments: the code takes the buffer over
  bool per_device = false;  // tile_of are the contents of Sharding::PerDevice
};

// Compiled code as the core knows it; defined once, shared by sessions, installed at executors when
// first needed.
struct ExecutableSpec {
  ExecutableId id;
  std::string name;
  IslandId island;                // where it runs
  std::vector<DeviceId> devices;  // in the order of the device assignment; portable code: one
  std::vector<ValueType> parameters;
  std::vector<ValueType> outputs;
  int64_t temp_bytes = 0;  // peak temporary memory per device, besides arguments and results
  std::shared_ptr<const std::string> code;
  std::string checksum;
  // Instead of code: a part of a program, and the executables that its steps run.
  std::shared_ptr<const Sequence> sequence;
  std::vector<ExecutableId> parts;
  int64_t max_steps = 1;      // launch ids that one launch takes
  bool after_inputs = false;  // its launches are prepared when their inputs have ended, not before
};

// A program lowered onto devices (graph/lowering.h).
struct ProgramSource {
  std::string name;
  ProgramPlan plan;
  std::vector<std::vector<int32_t>> slices;  // virtual devices, of one island each
  // Nothing of a run is prepared before what it takes has ended, instead of all at once.
  bool sequential = false;
};

// What a session's executable or program takes and makes, as arrays of that session.
struct ExecutableSignature {
  std::string name;
  std::vector<ArraySpec> parameters;
  std::vector<bool> donated;  // of the parameters
  std::vector<ArraySpec> outputs;
};

struct ExecuteOptions {
  std::vector<int32_t> non_donatable;  // arguments to leave alone
  // OnWatched with this token when all of it has ended, with the error of the first of it that
  // failed; it may come from inside the call. Nothing comes if the call is refused.
  std::optional<uint64_t> watch;
  // Of programs: the same as Watch of the results, which are not there before all of it is made.
  std::optional<uint64_t> watch_results = std::nullopt;

  // Which of so many arguments these are.
  std::vector<bool> Kept(size_t arguments) const {
    std::vector<bool> kept(arguments);
    for (const int32_t a : non_donatable) {
      if (a >= 0 && static_cast<size_t>(a) < arguments) kept[a] = true;
    }
    return kept;
  }
};

struct ExecuteResult {
  NodeId node;                    // of a program: the first one that it makes
  std::vector<uint64_t> handles;  // of the outputs
  std::vector<ArraySpec> specs;
};

// What the core asks of its shell. Only OnWatched and OnFetched may call the core: they come when
// the operation that made the answer is over.
class ClusterActions {
 public:
  virtual ~ClusterActions() = default;

  // In order per executor. Sent to the incarnation that is registered now.
  virtual void Send(ExecutorId executor, Command command) = 0;

  // Serve blobs[i] as shard i of `transfer` on the controller's data port, until WithdrawUpload.
  virtual void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) = 0;
  virtual void WithdrawUpload(TransferId transfer) = 0;
  // Pull shard `index` of `transfer` (`bytes` long) from the executor's data port, then
  // Cluster::FetchArrived.
  virtual void PullToHost(TransferId transfer, ExecutorId executor, int32_t index,
                          int64_t bytes) = 0;

  // The answers to Watch, ExecuteOptions::watch and Fetch. A session that was closed gets none.
  virtual void OnWatched(SessionId session, uint64_t token, absl::Status status) = 0;
  virtual void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) = 0;

  // Work is left: call Cluster::Turn soon, after others had their turn in the loop. Comes once
  // before each Turn.
  virtual void WantTurn() = 0;

  // Has another thread destroy what the core has no use for any more, if that takes long.
  virtual void Discard(std::shared_ptr<const void> garbage) { garbage.reset(); }
};

// Bytes in use on one device, for status pages and messages.
struct DeviceUsage {
  DeviceId device;
  IslandId island;
  ExecutorId executor;
  int32_t local_ordinal = 0;
  int64_t used = 0;
  int64_t limit = 0;  // 0: none
};

struct IslandStatus {
  IslandId id;
  std::string name;
  bool up = false;
  size_t executors_up = 0;
  size_t sessions = 0;  // that were opened while it was up, and are not over
  uint64_t epoch = 0;
  uint64_t gangs_launched = 0;
  size_t queued = 0;  // nodes that wait for memory
  size_t prepared = 0;
  size_t in_flight = 0;   // launched and not finished
  uint64_t given_up = 0;  // nodes that failed because they would never have fitted
  NodeId last_given_up;   // of these, and the device on which it did not fit
  DeviceId given_up_for;
};

struct ExecutorStatus {
  ExecutorId id;
  IslandId island;
  ExecutorSpec spec;
  bool up = false;
  std::string last_error;  // why it was lost the last time
};

struct ClusterCounts {
  size_t sessions = 0;
  size_t arrays = 0;
  size_t groups = 0;
  size_t nodes = 0;  // unfinished
  uint64_t nodes_made = 0;
  size_t executables = 0;
  uint64_t executions = 0;  // requests to run a computation or a program
  // Fetches answered from results that came with their completion, or from uploads that lie here.
  uint64_t inline_hits = 0;
  size_t stored_bytes = 0;        // of these uploads
  uint64_t executor_fetches = 0;  // fetches that went to an executor
  uint64_t units = 0;             // of work (Cluster::units), since the start
  uint64_t most_units = 0;        // of one operation or turn
};

struct ClusterOptions {
  int64_t admission_grace_ms = 2000;
  int64_t inline_upload_bytes =
      64 << 10;  // an uploaded shard up to this size travels with the command
  // An uploaded array up to this size stays with the controller until something uses it, as long as
  // those of its session are not more than the other; as do copies of it (stored.cc).
  int64_t stored_array_bytes = 64 << 10;
  size_t stored_session_bytes = size_t{64} << 20;
  // Launched and unfinished: far enough ahead that executors need not wait for the controller
  // (docs/design/0031-launching-ahead.md).
  int max_gangs_in_flight = 16;  // per island
  int max_singles_per_device = 32;
  int64_t inline_output_bytes = 64 << 10;   // an output up to this size comes with its completion,
  int64_t inline_gang_bytes = 256 << 10;    // as long as those of one gang are not more than this,
  int64_t inline_session_bytes = 64 << 20;  // and the session's latest ones not more than this
  // Units of work (Cluster::units) after which an operation or a turn leaves the rest to the next
  // turn, but for what cannot be interrupted.
  uint64_t turn_units = 2000;
  // What the records of all sessions may hold of the controller's memory, about. One session's
  // arrays and programs may hold as much as is left: beyond, no more are made. One session's
  // unfinished work may, too: beyond, no more of its requests are read (SessionCaps).
  size_t record_memory = size_t{768} << 20;
  // Shards that are made of more pieces together are made by several nodes.
  size_t node_pieces = 512;
  // What needs a larger command fails: executors would be lost by it.
  size_t command_bytes = kMaxCommandBytes;
};

class Cluster {
 public:
  Cluster(ClusterOptions options, ClusterActions* actions);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // ---- Executors
  // ----------------------------------------------------------------------------------------------

  // An executor registered. Its name keeps its id and devices over restarts. The shell reports an
  // earlier incarnation as lost first. Sends nothing, because the shell does not know the id yet:
  // what waits goes with the next event or Tick. ALREADY_EXISTS: a live executor has that name
  // already. INVALID_ARGUMENT: the number of devices or the island differs from before, or the
  // runtimes of one island differ.
  absl::StatusOr<ExecutorId> ExecutorUp(const ExecutorSpec& spec);
  // Its process died, hung or was fenced. Ends the island's epoch: what had a shard or a launched
  // gang there gets DATA_LOSS with `cause`; what waits and has lost nothing waits for its return.
  void ExecutorLost(ExecutorId executor, const absl::Status& cause);
  // The island will not come back soon: what waits for it fails with `cause`.
  void IslandGivenUp(IslandId island, const absl::Status& cause);
  // None of its executors is up, and it will not come back: its names may be taken anew, and the
  // status lists show it no more. What sessions that know it want there fails with `cause`; what
  // registers under its name is another island, which they do not see. Returns whether nothing of
  // it is left: until no session knows it and no executable is of it, call it again.
  bool ForgetIsland(IslandId island, const absl::Status& cause);
  void OnReport(ExecutorId executor, Incarnation incarnation, Report report);

  // ---- Sessions
  // -----------------------------------------------------------------------------------------------

  // UNAVAILABLE: no island with a compiler-capable runtime has registered.
  absl::StatusOr<SessionId> OpenSession(const std::string& tenant);
  // Frees all it owned. Launched work runs to its end.
  void CloseSession(SessionId session);
  // Fixed for the session's life.
  const std::vector<VirtualDevice>& Devices(SessionId session) const;
  // The same for other threads.
  SharedVector<VirtualDevice> SharedDevices(SessionId session) const;

  // ---- Arrays. NOT_FOUND names an unknown handle; ALREADY_EXISTS a result handle in use or
  // outside the client's range. `out` handles of 0 are made by the core (below: "0 = make one");
  // the handle used is returned. ----------

  // An array from host bytes: shard i is blob blob_of_shard[i], dense and major to minor, each
  // given by ProvideUpload, before or after. The bytes are released when they are on the device;
  // those of a small array are kept, and go to devices when something there reads it.
  // Never fails for want of memory: the error goes into the array. Returns the node for
  // ProvideUpload.
  struct PutResult {
    uint64_t handle = 0;
    NodeId upload;
  };
  absl::StatusOr<PutResult> Put(SessionId session, uint64_t out, const ArraySpec& spec,
                                std::vector<int32_t> blob_of_shard);
  // Blob `blob` of `upload`, or the error that its array is to hold. Unknown uploads (freed
  // meanwhile) are ignored.
  void ProvideUpload(NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes);

  absl::StatusOr<uint64_t> MakeError(SessionId session, uint64_t out, const ArraySpec& spec,
                                     absl::Status error);

  // What names many arrays takes long. The forms with `done` (or `ended`) are for front doors: they
  // are done in several turns, and the session is busy meanwhile. `done` is told when all of it was
  // done or refused; it may call the core, and comes not at all when the session was closed before.
  // `each` is told each handle as it is made or given up; it may not call the core. The forms
  // without do all of it at once: for tests, and for a few arrays.
  using Done = std::function<void(absl::StatusOr<std::vector<uint64_t>>)>;
  using Ended = std::function<void(absl::Status)>;
  using Each = std::function<void(uint64_t)>;

  // Of handles that nothing else has: errors of which not even the type is known, results of
  // requests that were refused. What takes such an array is refused with its error, but for
  // executions, whose results hold it. Handles in use keep what they have.
  void MakeErrors(SessionId session, std::vector<uint64_t> handles, absl::Status error);
  // OK, or the error of an array that MakeErrors made.
  absl::Status CheckKnown(SessionId session, uint64_t handle) const;

  // Arrays with the same shards on other devices or in other memories: aliases where nothing moves,
  // otherwise transfers. All `in` must have the same device list. `devices`: virtual ids, nothing:
  // keep.
  absl::StatusOr<std::vector<uint64_t>> Copy(SessionId session, const std::vector<uint64_t>& in,
                                             const std::optional<std::vector<int32_t>>& devices,
                                             const std::optional<std::string>& memory_kind,
                                             CopySemantics semantics,
                                             const std::vector<uint64_t>& out);
  void Copy(SessionId session, std::vector<uint64_t> in,
            std::optional<std::vector<int32_t>> devices, std::optional<std::string> memory_kind,
            CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);
  // One array from single-device arrays, shard i = in[i]. spec.dtype may be kInvalid: that of the
  // inputs.
  absl::StatusOr<uint64_t> Assemble(SessionId session, ArraySpec spec,
                                    const std::vector<uint64_t>& in, CopySemantics semantics,
                                    uint64_t out);
  absl::StatusOr<std::vector<uint64_t>> Disassemble(SessionId session, uint64_t in,
                                                    CopySemantics semantics,
                                                    const std::vector<uint64_t>& out);
  // INVALID_ARGUMENT: not fully replicated.
  absl::StatusOr<uint64_t> FullyReplicatedShard(SessionId session, uint64_t in,
                                                CopySemantics semantics, uint64_t out);

  // Arrays made of shards of `in` that stay where they are. kDonateInput: `in` are as deleted
  // afterwards. INVALID_ARGUMENT: number, element type, shape or devices of `in` are not those of
  // the plan, a shard lies on another device, or in another memory, or has another shape than the
  // output's sharding says, or kAlwaysCopy, which this is not. An output made of an error array is
  // one.
  absl::StatusOr<std::vector<uint64_t>> Remap(SessionId session, const std::vector<uint64_t>& in,
                                              const RemapPlan& plan, CopySemantics semantics,
                                              const std::vector<uint64_t>& out);
  void Remap(SessionId session, std::vector<uint64_t> in, RemapPlan plan, CopySemantics semantics,
             std::vector<uint64_t> out, Done done, Each each = nullptr);

  // The same values with another sharding, on the same islands or others: shards that stay what and
  // where they are are shared, unless kAlwaysCopy; the others are made of boxes of the old ones,
  // from executor to executor. kDonateInput: `in` are as deleted afterwards. INVALID_ARGUMENT:
  // element type or shape differ, or one of the two shardings does not tell where its shards lie
  // and the cuts differ.
  absl::StatusOr<std::vector<uint64_t>> Reshard(SessionId session, const std::vector<uint64_t>& in,
                                                const std::vector<ArraySpec>& targets,
                                                CopySemantics semantics,
                                                const std::vector<uint64_t>& out);
  // The bytes of the same shards on the same devices as another type. INVALID_ARGUMENT: devices,
  // memory or bytes of a shard differ.
  absl::StatusOr<std::vector<uint64_t>> Bitcast(SessionId session, const std::vector<uint64_t>& in,
                                                const std::vector<ArraySpec>& targets,
                                                CopySemantics semantics,
                                                const std::vector<uint64_t>& out);
  // What each array is to become.
  struct Targets {
    size_t count = 0;
    std::function<absl::StatusOr<ArraySpec>(size_t i, const ArraySpec& source)> of;
  };
  void Reshard(SessionId session, std::vector<uint64_t> in, Targets targets,
               CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);
  void Bitcast(SessionId session, std::vector<uint64_t> in, Targets targets,
               CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);

  // Deletes the shard buffers: all arrays that share them are deleted. The handles stay.
  absl::Status Delete(SessionId session, const std::vector<uint64_t>& handles);
  void Delete(SessionId session, std::vector<uint64_t> handles, Ended ended);
  absl::StatusOr<bool> IsDeleted(SessionId session, uint64_t handle) const;
  // Gives the handles up. Unknown ones are named in NOT_FOUND after the others were given up.
  absl::Status Destruct(SessionId session, const std::vector<uint64_t>& handles);
  void Destruct(SessionId session, std::vector<uint64_t> handles, Ended ended, Each each = nullptr);
  // nullptr: unknown handle. Valid until the next operation.
  const ArraySpec* Spec(SessionId session, uint64_t handle) const;

  // OnWatched once all are ready, or with the error of the first failed one in the order given;
  // NOT_FOUND and deleted arrays count as failed. Of many it is done in several turns.
  void Watch(SessionId session, uint64_t token, std::vector<uint64_t> handles);
  // OnFetched with the dense bytes of an array with one shard, or of a fully replicated one.
  void Fetch(SessionId session, uint64_t token, uint64_t handle);

  // ---- Executables
  // --------------------------------------------------------------------------------------------

  // The island of these virtual devices. INVALID_ARGUMENT: unknown ids, none, or several islands:
  // the text names them and says what to do.
  absl::StatusOr<IslandId> IslandOf(SessionId session, const std::vector<int32_t>& devices) const;
  // Makes code known, by id; a second definition of the same id is ignored.
  void DefineExecutable(ExecutableSpec spec);
  bool HasExecutable(ExecutableId id) const { return FindExecutable(id) != nullptr; }
  // nullptr: unknown. Valid until it is forgotten.
  const ExecutableSpec* FindExecutable(ExecutableId id) const;
  // Those that a session has a handle for, or that unfinished work or an executor's loading needs.
  std::set<ExecutableId> ExecutablesInUse() const;
  // Forgets code that is not in use; the executors that loaded it drop it.
  void ForgetExecutable(ExecutableId id);
  // A session's handle for defined code over these virtual devices. Several handles may share one
  // executable.
  absl::StatusOr<uint64_t> BindExecutable(SessionId session, uint64_t out, ExecutableId id,
                                          const std::vector<int32_t>& devices);
  absl::Status ReleaseExecutable(SessionId session, uint64_t handle);
  // Executables and programs.
  void Release(SessionId session, std::vector<uint64_t> handles, Ended ended, Each each = nullptr);
  absl::StatusOr<ExecutableSignature> Signature(SessionId session, uint64_t executable) const;

  // Runs it once. Fire and forget: with `out` handles given, every error is also put into them.
  // INVALID_ARGUMENT: number, dtype, shape, devices or shards of the arguments are not those of the
  // executable (the text says which argument, what came and what was expected);
  // FAILED_PRECONDITION: an argument was deleted or donated.
  absl::StatusOr<ExecuteResult> Execute(SessionId session, uint64_t executable,
                                        const std::vector<uint64_t>& args,
                                        const ExecuteOptions& options,
                                        const std::vector<uint64_t>& out);

  // ---- Programs (docs/design/0040-programs.md)

  using Bound = std::function<void(absl::StatusOr<uint64_t>)>;
  // From now on `bytes` of memory are taken by a program of this session that is being bound; 0:
  // none. `key`: the caller's, which tells its programs apart; `name`: for messages.
  // RESOURCE_EXHAUSTED: the session may not have so many more (ClusterOptions::record_memory); it
  // keeps what it had.
  absl::Status ReserveForProgram(SessionId session, uint64_t key, const std::string& name,
                                 size_t bytes);
  // Ends that, and makes the program known, in several turns: meanwhile the session takes other
  // operations. Its constants are put on their devices. `bound` gets the session's handle for it,
  // `out` unless that is 0; it is not called when the session ends before. Its bytes are counted,
  // and its computations stay defined, until it is released. RESOURCE_EXHAUSTED as above;
  // ALREADY_EXISTS: the handle is in use; NOT_FOUND: there is no code of a computation.
  void BindProgram(SessionId session, uint64_t key, uint64_t out,
                   std::shared_ptr<PlacedProgram> program, Bound bound);
  // Does all of it at once, for tests. INVALID_ARGUMENT as PlaceProgram.
  absl::StatusOr<uint64_t> BindProgram(SessionId session, uint64_t out, ProgramSource source);
  // A large one is given up in several turns: meanwhile the session is busy.
  absl::Status ReleaseProgram(SessionId session, uint64_t handle);
  absl::StatusOr<ExecutableSignature> ProgramSignature(SessionId session, uint64_t program) const;
  // Runs it once; runs may overlap. A long program is made in several turns: until all its steps
  // are made the session is busy, and the results are not there. Arguments that lie elsewhere or
  // are cut in another way are resharded. Donated arguments (but options.non_donatable) are
  // deleted. Fire and forget as Execute.
  absl::StatusOr<ExecuteResult> RunProgram(SessionId session, uint64_t program,
                                           const std::vector<uint64_t>& args,
                                           const ExecuteOptions& options,
                                           const std::vector<uint64_t>& out);

  // ---- Events of the shell
  // ------------------------------------------------------------------------------------

  void FetchArrived(TransferId transfer, absl::StatusOr<BytesRef> bytes);
  // Does some of the work that is left (see ClusterActions::WantTurn).
  void Turn();
  // Time passes; call it a few times a second. What waits for memory fails when it has made no
  // progress for options.admission_grace_ms (rule B2): frees may be on their way.
  void Tick(int64_t now_ms);

  // Whose launch it is that an executor runs, and its device as that session sees it. NOT_FOUND:
  // nothing of that id is launched there.
  // Whose node it is; nothing when there is no such node.
  std::optional<SessionId> SessionOf(NodeId node) const;
  absl::StatusOr<CallbackCaller> CallerOf(ExecutorId executor, LaunchId launch,
                                          int32_t ordinal) const;

  // Whether an operation of the session is not over yet. The next one first waits until it is, in
  // one turn, however long: front doors take the session's next request when it is not busy.
  bool Busy(SessionId session) const;
  // Units of work that all operations, events and turns have taken so far: one for each node,
  // group, handle, piece or command that was touched, about a microsecond.
  uint64_t units() const;

  // ---- Looking
  // ------------------------------------------------------------------------------------------------

  // Queued and running work of a session, for the caps of rule B3.
  struct Backlog {
    size_t nodes = 0;
    size_t record_bytes = 0;  // of what is unfinished
    size_t record_room = 0;   // bytes that records of all sessions may take beside those there are
    // The oldest one not launched waits for memory, or for bytes of the client's, rather than for
    // device time.
    bool waits_for_memory = false;
    bool waits_for_bytes = false;
  };
  Backlog SessionBacklog(SessionId session) const;
  size_t RecordRoom() const;  // as Backlog::record_room
  ClusterCounts counts() const;
  std::vector<IslandStatus> Islands() const;
  std::vector<ExecutorStatus> Executors() const;
  std::vector<DeviceUsage> Usage() const;
  // How often each move of a node's state machine was made, "kQueued -> kPrepared"; for coverage.
  std::map<std::string, uint64_t> Transitions() const;
  // One line per unfinished node, for reports on what waits.
  std::vector<std::string> Unfinished() const;
  // Checks the rules that hold between any two events; the text names the first that does not.
  absl::Status CheckInvariants() const;

 private:
  struct State;
  class Operation;
  std::unique_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_
