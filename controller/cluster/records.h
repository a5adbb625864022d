// SPDX-License-Identifier: Apache-2.0
// The records of the controller's core: shard groups, arrays, nodes, executors, islands, sessions.
// Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_RECORDS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_RECORDS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/planted.h"
#include "base/shared_vector.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/virtual_device.h"
#include "controller/cluster/work.h"
#include "core/device.h"
#include "scheduler/sequencer.h"

namespace fairway {

inline constexpr int64_t kAllocationUnit = 64;  // device memory is accounted in these
inline int64_t Rounded(int64_t bytes) {
  return (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
}

// Where one shard of a group lies.
struct Place {
  ExecutorId executor;
  int32_t ordinal = 0;  // of the device within its executor
  DeviceId device;
  int64_t bytes = 0;  // of the shard, dense
};

// What a node reserves on one device.
struct Reservation {
  DeviceId device;
  int64_t output = 0;
  int64_t temp = 0;
  int64_t credit = 0;  // of donated inputs that certainly become outputs: not reserved again
  int64_t total() const { return output + temp - credit; }
};

// What an executable needs to be known of where it runs, worked out once: launches are many, and of
// many devices.
struct CodeLayout {
  // What runs on one executor.
  struct Part {
    ExecutorId executor;
    std::vector<int32_t> positions;  // in the executable's devices
    std::vector<int32_t> ordinals;   // of these devices
  };
  struct Output {
    SharedVector<Place> places;        // by position
    SharedVector<int32_t> replica_of;  // as in Group
  };
  std::vector<Part> parts;                // in the order of the executors' first devices
  std::vector<int32_t> part_of;           // by position
  std::vector<Output> outputs;            // by result
  std::vector<Reservation> reservations;  // of a launch
  size_t runs = 0;                        // nodes that run it and have not ended
  // Of a program's sequence: whose it is, and what it counts there until it is forgotten.
  SessionId session;
  size_t record_bytes = 0;
};

// Where a device is.
struct DeviceSeat {
  ExecutorId executor;
  int32_t ordinal = 0;  // within it
};
// `seats`: of the executable's devices.
CodeLayout LayoutOf(const ExecutableSpec& spec, const std::vector<DeviceSeat>& seats);
// Adds to what is reserved on a device, which is looked for first at `position`.
void AddReservation(std::vector<Reservation>& reservations, DeviceId device, int64_t output,
                    int64_t temp, size_t position = SIZE_MAX);

//   kPending -> kReady -> kFailed (its executor was lost)      kPending -> kFailed
enum class GroupState : uint8_t { kPending, kReady, kFailed };

struct Group;

// Of a group whose bytes lie with the controller and not on its devices (stored.cc): a small
// upload, or what is made of such without computing.
struct Stored {
  std::vector<int32_t> blob_of_shard;
  std::vector<BytesRef> blobs;  // none: they have not come, or nobody needs them any more
  size_t bytes = 0;             // charged to the session
  // The same shards on the devices, since something there has read them. It refers to that group.
  GroupId placed;
};

// What a session has on one island.
struct Stake {
  size_t nodes = 0;         // of the island, unfinished
  Group* groups = nullptr;  // the first of a list
  Group* walk = nullptr;    // the next one that hears of a loss
  // What of it is accounted for, by device from the island's first one on.
  struct Held {
    int64_t bytes = 0;
    int shards = 0;
  };
  uint32_t first_device = 0;
  std::vector<Held> held;
};

// What a session has that may outlive it: launched work runs to its end.
struct Holdings {
  std::set<NodeId> nodes;  // unfinished
  std::map<IslandId, Stake> stakes;
};

// Shard buffers made together by one producer, all on one island, with one reference count.
struct Group {
  GroupId id;
  SessionId session;  // whose memory it is
  IslandId island;
  DType dtype = DType::kInvalid;
  std::string memory_kind;
  std::vector<Shape> shapes;  // one for all shards, or one per shard
  SharedVector<Place> places;
  SharedVector<int32_t> replica_of;  // the first shard of the same tile; empty: each its own

  GroupState state = GroupState::kPending;
  absl::Status error;  // kFailed
  NodeId cause;        // kFailed: the node that failed first
  NodeId producer;     // until it has ended

  int handle_refs = 0;        // views of client handles
  int readers = 0;            // unfinished nodes that read it
  int queued_readers = 0;     // of `readers`, those that have no memory yet; no fetches
  bool charged = false;       // its bytes are reserved on its devices
  bool reserved = false;      // its producer has reserved them
  bool leaving = false;       // counted by Admission::WillRelease; see State::CountLeaving
  bool declared = false;      // executors know it
  bool launched = false;      // its producer was launched
  std::vector<bool> deleted;  // per shard; empty: none
  size_t num_deleted = 0;
  std::map<int32_t, BytesRef> inlined;  // bytes that came with the completion, by shard
  std::unique_ptr<Stored> stored;       // nullptr: it lies in its places

  struct Watcher {
    uint64_t watch;
    size_t position;
  };
  // Nodes that wait until it is settled; some have ended. When it is settled the first `num_told`
  // of them know, and the worklist of its session has it until all do.
  std::vector<NodeId> waiters;
  size_t num_told = 0;
  std::deque<Watcher> watchers;
  uint64_t lost_in = 0;    // Loss::number of the loss that made it fail
  Stake* stake = nullptr;  // its session's on its island, which lists it:
  Group* previous = nullptr;
  Group* next = nullptr;

  const Shape& shape(int32_t shard) const { return shapes[shapes.size() == 1 ? 0 : shard]; }
  bool settled() const { return state != GroupState::kPending; }
  bool all_deleted() const { return num_deleted == places.size() && !places.empty(); }
  bool is_deleted(int32_t shard) const { return !deleted.empty() && deleted[shard]; }
};

enum class NodeKind : uint8_t { kLaunch, kReceive, kFetch };

//   kWaiting -> kQueued -> kPrepared -> kLaunched -> kDone
//   kWaiting: for the client's bytes, or held back until its inputs have ended. kQueued: for memory
//   (or, fetch: for the group). kPrepared: its executors know it; a receive is at work from here
//   on, and is launched if its bytes went with its commands. kPrepared -> kQueued when an executor
//   is lost. What stores ends as soon as it has its bytes: kWaiting -> kDone. All but kDone ->
//   kDone on failure.
enum class NodeState : uint8_t { kWaiting, kQueued, kPrepared, kLaunched, kDone };
bool CanMove(NodeState from, NodeState to);

// What a pull says when the peer went away, or is a later incarnation than the one that was asked.
inline bool PeerGone(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kAborted;
}

struct Participant {
  ExecutorId executor;
  uint64_t seq = 0;
  bool done = false;
  absl::Status status;
};

struct Node {
  NodeId id;
  SessionId session;
  NodeKind kind = NodeKind::kLaunch;
  NodeState state = NodeState::kWaiting;
  IslandId island;
  std::string name;            // for messages
  std::vector<GroupId> reads;  // each once
  std::vector<GroupId> outputs;
  std::vector<Reservation> reservations;
  std::vector<Participant> participants;
  int unsettled_inputs = 0;
  int unlaunched_inputs =
      0;  // of `reads`, those that have failed, or are neither ready nor launched
  int open_participants = 0;
  bool inputs_ended = false;  // it has heard how all its inputs ended (State::InputsEnded)
  bool after_inputs = false;  // queued when its inputs have ended, not before
  bool held() const { return state == NodeState::kWaiting && open_blobs == 0 && !stores; }
  uint64_t attempt = 0;    // how often it was taken back
  uint64_t submitted = 0;  // numbers what enters the queues for memory
  absl::Status failure;    // of an executor that was lost in the middle
  // A receive that failed because the peer went away, or before its inputs were known to have
  // ended: if the cause is the loss of an executor or the failure of an input, that is told first.
  absl::Status deferred;
  int64_t deferred_since = -1;
  uint64_t watch = 0;       // of the call that made it
  size_t record_bytes = 0;  // what the record itself holds, about: of launches and reshards

  // kLaunch
  const ExecutableSpec* executable = nullptr;
  CodeLayout* layout = nullptr;               // of it
  std::vector<std::vector<ShardRef>> inputs;  // [argument][position]
  std::vector<int32_t> donatable;  // arguments that the code takes over and the client gave
  int open_installs = 0;
  LaunchId launch_id;
  std::map<int32_t, FailedOutput> failed_outputs;  // of a sequence: the others went well
  std::vector<GroupId> taken;                      // donated to it by the launch

  // kReceive
  std::vector<ShardRef> sources;  // one per shard of outputs[0], or per piece; empty for uploads
  std::vector<Piece> pieces;      // empty, or one per source; Piece::out is a shard of outputs[0]
  std::vector<BytesRef> blobs;    // uploads: by blob number
  std::vector<int32_t> blob_of_shard;
  int open_blobs = 0;
  bool is_upload = false;  // one that reads a group puts that, which is stored, on its devices
  bool stores = false;     // its output is stored: no executor takes part
  bool remade = false;     // its shards are made of pieces, or have no bytes
  // The shard of outputs[0] that sources[i] is for.
  size_t OutOf(size_t i) const { return pieces.empty() ? i : pieces[i].out; }
  NodeId upload;  // uploads: the first node of the same put

  // kFetch
  ShardRef fetched;
  uint64_t token = 0;
  bool pulling = false;
};

struct Executor {
  ExecutorId id;
  IslandId island;
  ExecutorSpec spec;
  bool up = false;
  DeviceId first_device;
  std::string last_error;
  uint64_t next_seq = 1;
  struct Open {
    NodeId node;
    size_t participant = 0;  // of the node, which this executor is
  };
  std::map<uint64_t, Open> open;  // prepared and not reported as ended, by seq
  struct Install {
    bool installed = false;
    struct Waiter {
      NodeId node;
      uint64_t attempt = 0;  // of the node; another one: it was taken back, and waits anew
    };
    std::vector<Waiter> waiters;
  };
  std::map<ExecutableId, Install> installs;
  std::map<ExecutableId, int> dropped;  // before the answer to their installation has come
  std::vector<GroupId> frees;           // to go with the next command
  // Of a lost incarnation: sessions that have not heard of it. Until all have, its successor gets
  // nothing.
  size_t telling = 0;
  std::map<uint64_t, Open> lost_open;
  std::vector<ExecutableId> lost_installs;
  bool serves() const { return up && (telling == 0 || Planted(Bug::kServeTooSoon)); }
};

struct Island {
  IslandId id;
  std::string name;
  uint64_t epoch = 0;
  std::vector<ExecutorId> executors;
  DeviceId first_device;  // the lowest of them
  // That were opened while it was up, and are not over.
  size_t sessions = 0;
  bool forgotten = false;  // found by sessions that know it, and not by name
  Sequencer sequencer{SequencerOptions{}};
  std::set<NodeId> prepared;  // its prepared launches and receives
  // Sessions that have not heard of a loss there, each counted once for each. Until all have,
  // nothing is prepared or launched.
  size_t telling = 0;
  // Prepared nodes that are taken back to make room for an older one, the next one last. Until all
  // are, nothing is admitted or launched.
  struct Victim {
    NodeId node;
    uint64_t attempt = 0;  // of it
  };
  std::vector<Victim> victims;
  // Set while it is down for good: the error of what comes to it.
  absl::Status gone;
  // The first node of a session that waits for memory there.
  struct Stuck {
    NodeId node;
    NodeId before;         // nodes below it were there when it became the first
    int64_t since = 0;     // its grace runs from here; begins anew with progress
    uint64_t through = 0;  // of Node::submitted: what came later waits for a grace of its own
    int64_t lacks = 0;     // bytes; progress is a `step` less
    int64_t step = 1;
  };
  std::map<SessionId, Stuck> stuck;
  size_t large = 0;       // nodes there that are made of many pieces
  uint64_t moves = 0;     // grows when memory is given back or a node gets some
  uint64_t given_up = 0;  // nodes that failed because they would never have fitted
  NodeId last_given_up;   // of these
  DeviceId given_up_for;  // the device on which it did not fit
};

struct Binding {
  ExecutableId executable;
  std::vector<int32_t> devices;  // virtual
  std::vector<ArraySpec> outputs;
};

// A program on a session's devices (placed_program.h).
struct PlacedProgram {
  std::string name;
  bool sequential = false;
  ProgramPlan plan;              // but for its types and constants
  std::vector<ArraySpec> types;  // of the plan's values, over virtual devices
  struct Part {
    size_t step = 0;  // of the plan
    ExecutableSpec spec;
    CodeLayout layout;
    size_t bytes = 0;  // of it
  };
  std::vector<Part> parts;  // its sequences; the core takes them
  struct Constant {
    int32_t value = 0;
    std::vector<int32_t> blob_of_shard;
    std::vector<BytesRef> blobs;
  };
  std::vector<Constant> constants;
  size_t bytes = 0;  // that all of it holds, about

  const ArraySpec& TypeOf(int32_t value) const { return types[plan.values[value]]; }
};

// A program that a session has, or is getting (bind.cc).
struct BoundProgram {
  std::shared_ptr<PlacedProgram> placed;
  std::vector<ExecutableId> sequences;  // by step: its executable; none for a transfer
  std::map<int32_t, Array> constants;   // by value
  size_t bytes = 0;                     // counted for it; its sequences count by themselves
};

// A program that is being made known to the core.
struct ProgramBind {
  uint64_t out = 0;
  std::unique_ptr<BoundProgram> program;
  size_t parts = 0;      // of it that are known
  size_t constants = 0;  // that have been put
  absl::Status refusal;  // not OK: what is there of it is given up
  Cluster::Programs::Bound bound;
};

struct PendingWatch {
  uint64_t token = 0;
  size_t open = 0;
  size_t failed_at = SIZE_MAX;
  NodeId failed_by;  // of several failed groups of one array the lowest node's error is told
  absl::Status failure;
};

struct Session {
  // `records`: what all sessions' records hold together.
  explicit Session(size_t* records)
      : arrays(records), node_records(records), program_records(records), stored(records) {}

  SessionId id;
  std::string tenant;
  SharedVector<VirtualDevice> devices;
  ArrayTable arrays;
  std::unordered_map<uint64_t, Binding> executables;
  std::unordered_map<uint64_t, std::unique_ptr<BoundProgram>> programs;
  uint64_t next_handle = kFirstServerHandle;
  std::unordered_map<uint64_t, PendingWatch> watches;
  RecordCount node_records;  // of unfinished nodes
  // Of programs, their sequences until they are forgotten, and of what is being bound.
  RecordCount program_records;
  std::unordered_map<uint64_t, size_t> binding;  // bytes, by key
  RecordCount stored;                            // bytes of Group::stored
  struct InlinedEntry {
    ShardRef shard;
    int64_t bytes = 0;
  };
  std::deque<InlinedEntry> inlined;  // oldest first; some of groups that are gone
  int64_t inlined_bytes = 0;         // of `inlined`
};

// A program whose steps are being made, a few in each turn. Its session takes no other operation
// meanwhile.
struct ProgramRun {
  BoundProgram* program = nullptr;  // of the session
  // Done in this order.
  size_t next_constant = 0;
  struct Resharded {
    int32_t argument = 0;
    const Array* from = nullptr;  // of the session, which changes none meanwhile
  };
  std::deque<Resharded> arguments;  // that are not there as the program takes them
  size_t next_step = 0;
  // The value that is being made: an argument, or what the next step, a transfer, makes.
  std::unique_ptr<ValueRequest> making;
  size_t pieces = 0;              // of the arguments so far
  std::deque<Array> values;       // of the plan, as far as they are made; their views are held
  std::vector<bool> ours;         // by value: whether its buffers may be taken over
  std::vector<uint64_t> results;  // handles
  std::vector<uint64_t> donated;  // handles of arguments
  uint64_t watch = 0;             // 0: none
  std::optional<uint64_t> watch_results;  // when they are there
  bool ended = false;                     // all steps are made, the results are there
  absl::Status failed;                    // of what no node was made for
  absl::Status refused;                   // an argument could not be made: the results hold this

  // They are numbered in the order in which steps name them.
  Array& ValueOf(int32_t value) {
    while (values.size() <= static_cast<size_t>(value)) values.emplace_back();
    return values[value];
  }
};

// What is left of a session that has ended; no handle leads there any more.
struct Closing {
  explicit Closing(Session ended) : session(std::move(ended)) {}

  Session session;
  std::unique_ptr<ProgramRun> run;
  std::unique_ptr<LongRequest> request;
  NodeId below{UINT64_MAX};  // its nodes that may go on are those from here on
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_RECORDS_H_
