// SPDX-License-Identifier: Apache-2.0
// Work that operations and events leave behind, kept by session and done in bounded turns. Private
// to this folder.
//
// One event may make much work: a failed upload fails the 100,000 computations that follow it. So
// an event only notes its consequences, and Cluster::Turn works on them, a slice of each busy
// session after the other. Arrays never cross sessions (rule T1), so the consequences of a
// session's work are its own: its neighbours wait for a slice of them, never for all.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_WORKLIST_H_
#define FAIRWAY_CONTROLLER_CLUSTER_WORKLIST_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/stake.h"

namespace fairway {

// Units of work, about a microsecond each: a node, group, handle, piece or command that is touched,
// 256 shards that are walked, or 2 shards that an upload puts or a command names.
inline constexpr uint64_t kShardsPerUnit = 256;
inline constexpr uint64_t kNamedShardsPerUnit = 2;
// Also 4 ends that a report tells, and 4 KiB that go with a command or come with a report.
inline constexpr uint64_t kEndsPerUnit = 4;
inline constexpr uint64_t kBytesPerUnit = 4096;
// Looks at nodes, or what they read: each is a step, and so are 16 of their devices.
inline constexpr size_t kStepsPerUnit = 4;
inline constexpr size_t kDevicesPerStep = 16;
// The units that one session may use before the next one has its slice.
inline constexpr uint64_t kSliceUnits = 125;
// A node of more pieces than this, or a launch of more arguments and results, is prepared alone. So
// such a launch goes.
inline constexpr size_t kLargePieces = 32;
inline constexpr size_t kLargeValues = 256;
// To prepare a launch takes a unit for so many of its results; then, as its commands are made, one
// for so many arguments and results, and for so many of their shards; to launch it, one for so many
// arguments.
inline constexpr size_t kReservedPerUnit = 64;
inline constexpr size_t kValuesPerUnit = 8;
inline constexpr size_t kLaunchShardsPerUnit = 32;
inline constexpr size_t kLaunchedPerUnit = 32;

// A failed output of a sequence whose other outputs are good.
struct FailedOutput {
  absl::Status status;
  int32_t argument = -1;   // the argument whose error it has; -1: it failed by itself
  size_t participant = 0;  // the node's participant that reports it
};

// An executor's message that it has loaded code, or could not: to the nodes of a session that wait
// for it.
struct Loaded {
  struct Waiter {
    NodeId node;
    uint64_t attempt = 0;  // of the node; if it differs, the node was taken back and waits anew
  };
  absl::Status status;
  std::vector<Waiter> waiters;
  size_t num_told = 0;  // the first ones
};

// A node that was launched, and the first of its outputs whose waiters have not been told.
struct LaunchedNode {
  NodeId node;
  size_t output = 0;
};

// An executor's message that a node has ended.
struct Told {
  NodeId node;
  absl::Status status;
  // The node's attempt when its end was reported. Each registration of an executor counts `seq`
  // anew, so these alone may be those of a later attempt.
  uint64_t attempt = 0;
  ExecutorId executor;
  size_t participant = 0;
  uint64_t seq = 0;
  std::map<int32_t, FailedOutput> failed_outputs;
  // Of a launch for all: it failed on `executor`; or it has ended on all.
  enum class All : uint8_t { kNo, kFailed, kEnded };
  All all = All::kNo;
};

// The loss that a session has yet to be told: lost executors, or an island that was given up. It
// concerns first each of its groups there, then each of its nodes; then the nodes that are to be
// done again are taken back. Meanwhile nothing else happens to these.
struct Loss {
  uint64_t number = 0;
  IslandId island;
  struct Lost {
    size_t order = 0;  // its place in the order of losses
    absl::Status status;
  };
  std::map<ExecutorId, Lost> executors;
  absl::Status given_up;  // OK: executors were lost

  enum class Phase : uint8_t { kBegin, kGroups, kNodes, kTakeBack, kDone };
  Phase phase = Phase::kBegin;
  NodeId heard;  // this node and lower ones are done
  struct Again {
    NodeId node;
    uint64_t attempt = 0;  // of the node
  };
  // Outputs of lost launches for which nodes wait that take them for launched. They are told before
  // the next node is.
  std::vector<GroupId> unlaunched;
  std::vector<Again> again;  // prepared nodes to be taken back; the youngest is last
};

// A prepared node that is taken back, to be queued again, or to fail. The receives that read what
// it makes wait for it, so they go before it, as do those that read what these make. They are
// parked, and queued again when all are taken back.
struct TakingBack {
  struct Step {
    NodeId node;
    uint64_t attempt = 0;  // of the node; if it differs, it was taken back already
    size_t output = 0;     // the first of its outputs whose readers are left
  };
  absl::Status cause;
  std::vector<Step> steps;     // the last one is next; the first is the node itself
  std::vector<NodeId> parked;  // of its readers
  // It fails with `cause`, which is that of this node.
  std::optional<NodeId> fails_by = std::nullopt;
};

struct Ending;       // ending.h: a launch of many arguments or results that has concluded
struct Closing;      // session.h: the rest of a session that has ended
struct ProgramBind;  // program_records.h: a program that is being bound
struct ProgramRun;   // program_records.h: a program whose steps are being made
struct Session;      // session.h

// A request that names many arrays, or makes one of many pieces (many.h). Its session takes no
// other operation meanwhile.
class LongRequest {
 public:
  virtual ~LongRequest() = default;
  LongRequest(const LongRequest&) = delete;
  LongRequest& operator=(const LongRequest&) = delete;

  // Does some more of the request. Returns whether it is over.
  virtual bool GoOn(Session& session) = 0;
  // Gives up some of what it holds. Returns whether nothing is left; then the request is over.
  virtual bool GiveUp() = 0;

  // Once it is over: the handles of the arrays that it made, or why it was refused.
  absl::StatusOr<std::vector<uint64_t>> result = std::vector<uint64_t>();
  Cluster::Done done;
  Cluster::Each each;
  // The bytes of the records that it has made and that are in no table yet. Counted in the total of
  // all sessions.
  virtual size_t made_bytes() const { return 0; }
  // The islands on which it computes, if it is a call.
  virtual std::vector<IslandId> ComputesOn() const { return {}; }
  // Of these, if it goes on in slices; and of those for which it makes arrays.
  CallHold hold;
  // Groups that it has made, but no array has yet. It holds one reference to each.
  std::vector<GroupId> held;

 protected:
  LongRequest() = default;
};

// A value of a program's run, resharded from another value. Once it is over, `array` holds the
// value, with its view held, or `result` says why not.
class ValueRequest : public LongRequest {
 public:
  Array array;
  size_t pieces = 0;  // of this value and those before it
};

// The work left for one session, in the order in which it is done. `loaded` and `told` may add to
// `settled`, and that to `ended_inputs`.
struct Worklist {
  Worklist();
  ~Worklist();

  // Before losses, which look at results that are settled. A list takes nothing while it is empty.
  std::list<std::unique_ptr<Ending>> endings;
  std::list<TakingBack> taking_back;  // before losses, which take nodes back themselves
  std::deque<Loss> losses;
  std::deque<NodeId> held;  // parked receives, until the losses have been told
  std::list<Loaded> loaded;
  std::deque<Told> told;
  std::deque<GroupId> settled;  // groups whose waiters have not been told
  std::deque<LaunchedNode> launched;
  std::deque<NodeId> ended_inputs;                     // nodes whose inputs have all ended
  std::deque<std::unique_ptr<BoundProgram>> retiring;  // programs that are being given up
  std::deque<std::unique_ptr<ProgramBind>> binds;
  std::unique_ptr<ProgramRun> run;
  std::unique_ptr<LongRequest> request;
  std::unique_ptr<Closing> closing;
  bool queued = false;  // whether Turns::busy has it

  // Whether some consequence of past events is left to do.
  bool follows() const {
    return !endings.empty() || !taking_back.empty() || !loaded.empty() || !told.empty() ||
           !settled.empty() || !ended_inputs.empty() || !launched.empty();
  }
  // Whether the session takes no operation: one is not over, or a loss has yet to be told.
  bool busy() const {
    return run != nullptr || request != nullptr || !losses.empty() || !retiring.empty();
  }
  bool empty() const {
    return held.empty() && !follows() && !busy() && binds.empty() && closing == nullptr;
  }
};

// An answer to a session, which waits for the end of the operation that made it (SessionSink).
struct Answer {
  struct Watched {
    uint64_t token = 0;
    absl::Status status;
  };
  struct Fetched {
    uint64_t token = 0;
    absl::StatusOr<BytesRef> bytes;
  };
  struct Bound {
    uint64_t key = 0;
    absl::StatusOr<uint64_t> program;
  };
  struct Ended {  // a LongRequest
    Cluster::Done done;
    absl::StatusOr<std::vector<uint64_t>> result;
  };

  SessionId session;
  std::variant<Watched, Fetched, Bound, Ended> what;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_WORKLIST_H_
