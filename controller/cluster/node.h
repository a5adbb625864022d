// SPDX-License-Identifier: Apache-2.0
// Nodes of the graph of futures: launches, receives and fetches. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_NODE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_NODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/actions.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/group.h"
#include "controller/cluster/worklist.h"
#include "graph/plan.h"

namespace fairway {

enum class NodeKind : uint8_t { kLaunch, kReceive, kFetch };

//   kWaiting -> kQueued -> kPrepared -> kLaunched -> kDone     (invariant: CanMove)
// kWaiting: for the client's bytes, or held back until its inputs have ended. kQueued: for memory
// (or, fetch: for the group). kPrepared: its executors know it; a receive works from here on.
// kLaunched: it will end, whatever comes: a receive is launched if its bytes went with its
// commands, or if its sources are there or launched, and a launch waits for it. kPrepared ->
// kQueued when an executor is lost. A node that stores ends as soon as it has its bytes: kWaiting
// -> kDone. All but kDone -> kDone on failure.
enum class NodeState : uint8_t { kWaiting, kQueued, kPrepared, kLaunched, kDone };
inline constexpr std::array kStateNames = {"waiting", "queued", "prepared", "launched", "done"};
bool CanMove(NodeState from, NodeState to);

// Whether a pull failed because the peer went away, or is a later incarnation than was asked.
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
  std::string name;  // for messages
  GroupIds reads;    // each once; invariant: all of them exist
  GroupIds outputs;  // invariant: all of them exist, and this is their producer
  // Invariant: what its devices count as used while it is prepared or launched. Each device once.
  Reservations reservations;
  absl::InlinedVector<Participant, 1> participants;
  // Invariant: of `reads`, those that are pending, and those of whose end it has not been told.
  int unsettled_inputs = 0;
  // Of `reads`: the failed ones, and those that are neither ready nor launched.
  int unlaunched_inputs = 0;
  // If not, it has been told of the ends of all its inputs, and none has failed.
  bool may_have_failed_inputs() const { return unsettled_inputs > 0 || unlaunched_inputs > 0; }
  // Invariant: those of `participants` that are not done. Of a launch for all: whether it is
  // launched, and it is not known how it ended.
  int open_participants = 0;
  bool inputs_ended = false;  // it has been told how all its inputs ended (Nodes::InputsEnded)
  bool after_inputs = false;  // it is queued only when its inputs have ended
  // A launch that has not got all its inputs and outputs yet (new_launch.h): nothing moves it.
  bool making = false;
  // Some input that it takes for launched is behind a transfer (Group::behind_transfer), or it is
  // a receive that was launched before its bytes had come.
  bool behind_transfer = false;
  bool large = false;      // it is prepared and launched alone; Island::large counts it
  bool abandoned = false;  // a launch: all participants that had not ended were told to abandon it
  bool held() const {
    return state == NodeState::kWaiting && open_blobs == 0 && !stores && !making;
  }
  // A launch that ends in turns (ending.h): whether it was prepared or launched.
  bool had_memory = false;
  bool has_memory() const {
    return state == NodeState::kPrepared || state == NodeState::kLaunched || had_memory;
  }
  bool taken_back = false;  // a TakingBack of its session is about to take it back
  uint64_t attempt = 0;     // how often it was taken back
  uint64_t submitted = 0;   // its number among all submissions to the lines for memory
  absl::Status failure;     // set when one of its executors was lost while it ran
  // The failure of a receive, or of a launch over several executors, because the peer went away or
  // before its inputs were known to have ended. If a lost executor or a failed input caused it,
  // that cause is told first.
  absl::Status deferred;
  int64_t deferred_since = -1;
  uint64_t watch = 0;  // the watch of the call that made it
  // About what the record holds. Invariant: Session::node_records is the sum of these.
  size_t record_bytes = 0;

  // kLaunch
  const ExecutableSpec* executable = nullptr;
  CodeLayout* layout = nullptr;    // that of `executable`
  std::vector<ShardList> inputs;   // by argument
  std::vector<int32_t> donatable;  // arguments that the code takes over and the client gives
  int open_installs = 0;
  // Of a prepared launch: its executors have not been told all that it reads and makes.
  // Invariant: Island::preparing has it.
  bool telling = false;
  LaunchId launch_id;
  // Its executors get it as one LaunchAll, once it is launched; until then they know nothing of it.
  // It has no participants.
  bool for_all = false;
  // The failure on the executor with the lowest part of those that reported one; and that part.
  absl::Status part_failure;
  int32_t failed_part = 0;
  std::map<int32_t, FailedOutput> failed_outputs;  // of a sequence: the other outputs are good
  std::vector<GroupId> taken;                      // inputs that compiled code takes over

  // kReceive
  std::vector<ShardRef> sources;  // one per shard of outputs[0], or per piece; empty for uploads
  std::vector<Piece> pieces;      // empty, or one per source; Piece::out is a shard of outputs[0]
  std::vector<BytesRef> blobs;    // uploads: by blob number
  std::vector<int32_t> blob_of_shard;
  int open_blobs = 0;
  bool is_upload = false;  // with `reads`: puts a stored group on its devices
  bool stores = false;     // its output is stored with the controller: no executor takes part
  bool remade = false;     // its shards are made of pieces, or some have no bytes
  // The shard of outputs[0] that sources[i] is for.
  size_t OutOf(size_t i) const { return pieces.empty() ? i : pieces[i].out; }
  NodeId upload;  // uploads: the first node of the same put

  // kFetch
  ShardRef fetched;
  uint64_t token = 0;
  int64_t pulling = 0;  // bytes under way to the controller; Session::fetching counts them
  // To Session::fetched, from the fetch's beginning until its bytes hold it.
  std::shared_ptr<void> charge;
  // Waits until its session has fewer under way: Transfers::waiting_ has it. It may wait for a
  // client, so nobody counts on the memory that its end would free.
  bool paced = false;
};

// About what a node's record holds, in the tables and in the messages about it.
inline size_t RecordBytesOf(const Node& node) {
  constexpr size_t kNode = 768, kPiece = 336;
  const size_t arguments = node.inputs.size() * (node.inputs.empty() ? 0 : node.inputs[0].size());
  return kNode + (node.sources.size() + arguments) * sizeof(ShardRef) +
         node.pieces.size() * kPiece +
         node.reservations.size() * (sizeof(Reservation) + sizeof(Place));
}

// Whether the launch runs on several executors.
inline bool IsSpread(const Node& node) { return node.for_all || node.participants.size() > 1; }

// Whether the node launches a sequence of a program.
inline bool IsSequence(const Node& node) {
  return node.executable != nullptr && node.executable->sequence != nullptr;
}

// The nodes made for a request, each with the group that it makes. They enter the tables once the
// whole request has been checked.
struct Making {
  // `records`: the bytes of all sessions' records together.
  explicit Making(size_t* records) : bytes(records) {}

  struct Made {
    std::unique_ptr<Node> node;
    std::unique_ptr<Group> group;
    size_t bytes = 0;  // counted for it
  };
  std::vector<Made> nodes;
  size_t pieces = 0;
  RecordCount bytes;  // invariant: the sum of Made::bytes of those that are left

  // Counts the nodes from number `first` on, as large as they are now.
  void Weigh(size_t first);
  // The next one that enters the tables; from there on it is counted as a node and a group.
  Made Take(size_t number);
  // Destroys the last one.
  void DropLast();
};

// The types of a launch's outputs.
struct OutputTypes {
  const ArraySpec* types = nullptr;
  // Of a sequence: the value of each output, and the type of each value. nullptr: see `types`.
  const int32_t* values = nullptr;
  const int32_t* type_of = nullptr;
  const ArraySpec& operator[](size_t output) const {
    return types[values == nullptr ? output : type_of[values[output]]];
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_NODE_H_
