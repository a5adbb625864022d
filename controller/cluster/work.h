// SPDX-License-Identifier: Apache-2.0
// Work that operations and events leave behind, kept by session and done in bounded turns. Private
// to this folder.
//
// One event may make much necessary: a failed upload fails the 100,000 computations behind it. So
// an event only writes down what follows, and Cluster::Turn does it, a slice of each busy session
// after the other. Arrays never cross sessions (rule T1), so what follows from a session's work is
// that session's: its neighbours wait for a slice of it, never for all of it.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_WORK_H_
#define FAIRWAY_CONTROLLER_CLUSTER_WORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/cluster.h"

namespace fairway {

// Units of work, about a microsecond each: one node, group, handle, piece or command that is
// touched, 256 shards that are walked, or 2 that an upload puts or a command names.
inline constexpr uint64_t kShardsPerUnit = 256;
inline constexpr uint64_t kNamedShardsPerUnit = 2;
// What one session may use before the next one has its slice.
inline constexpr uint64_t kSliceUnits = 125;
// A node of more pieces is prepared alone.
inline constexpr size_t kLargePieces = 32;

// An output of a sequence that failed while others went well.
struct FailedOutput {
  absl::Status status;
  int32_t argument = -1;   // the argument whose error it has; -1: it failed by itself
  size_t participant = 0;  // of the node, that says so
};

// What an executor said of a node.
struct Told {
  enum class What : uint8_t { kLoaded, kEnded };
  What what = What::kEnded;
  NodeId node;
  absl::Status status;
  uint64_t attempt = 0;  // kLoaded: of the node when it began to wait
  // kEnded: who ended it.
  ExecutorId executor;
  size_t participant = 0;
  uint64_t seq = 0;
  std::map<int32_t, FailedOutput> failed_outputs;
};

// What a session is yet to hear of an island: executors were lost, or it was given up. It hears of
// each of its groups there, then of its nodes, and then those are taken back that are to be done
// again. Meanwhile nothing else becomes of what it has.
struct Loss {
  uint64_t number = 0;
  IslandId island;
  struct Lost {
    size_t order = 0;  // of the losses
    absl::Status status;
  };
  std::map<ExecutorId, Lost> executors;
  absl::Status given_up;  // OK: executors were lost

  enum class Phase : uint8_t { kBegin, kGroups, kNodes, kTakeBack, kDone };
  Phase phase = Phase::kBegin;
  NodeId heard;  // this node and those before it
  struct Again {
    NodeId node;
    uint64_t attempt = 0;  // of it
  };
  std::vector<Again> again;  // prepared nodes to be taken back, the youngest last
};

struct Closing;      // session.h: what is left of a session that has ended
struct ProgramBind;  // program_records.h: a program that is being made known
struct ProgramRun;   // program_records.h: a program whose steps are being made
struct Session;      // session.h

// A request that names many arrays, or makes one of many pieces (many.h). Its session takes no
// other operation meanwhile.
class LongRequest {
 public:
  virtual ~LongRequest() = default;
  LongRequest(const LongRequest&) = delete;
  LongRequest& operator=(const LongRequest&) = delete;

  // Does some more of it; whether it is over.
  virtual bool GoOn(Session& session) = 0;
  // Gives up some of what it holds; whether nothing is left. After that it is over.
  virtual bool GiveUp() = 0;

  // When it is over: the handles of what it made, or why it was refused.
  absl::StatusOr<std::vector<uint64_t>> result = std::vector<uint64_t>();
  Cluster::Done done;
  Cluster::Each each;
  // Groups that it has made and no array has yet: a reference of each is its own.
  std::vector<GroupId> held;

 protected:
  LongRequest() = default;
};

// A value of a program's run that is being resharded from another one. When it is over, `array` is
// there with its view held, or `result` says why not.
class ValueRequest : public LongRequest {
 public:
  Array array;
  size_t pieces = 0;  // that it and those before it are made of
};

// What is left to do for one session. Done in this order; `told` may add to `settled`, and that to
// `ended_inputs`.
struct Worklist {
  Worklist();
  ~Worklist();

  std::deque<Loss> losses;
  std::deque<NodeId> held;  // parked receives, until it has heard of the losses
  std::deque<Told> told;
  std::deque<GroupId> settled;      // groups whose waiters have not been told
  std::deque<NodeId> ended_inputs;  // nodes none of whose inputs is open any more
  std::deque<std::unique_ptr<BoundProgram>> retiring;  // programs that are being given up
  std::deque<std::unique_ptr<ProgramBind>> binds;
  std::unique_ptr<ProgramRun> run;
  std::unique_ptr<LongRequest> request;
  std::unique_ptr<Closing> closing;
  bool queued = false;  // whether State::busy has it

  // Whether something follows from what has happened already.
  bool follows() const { return !told.empty() || !settled.empty() || !ended_inputs.empty(); }
  // Whether it takes no operation: one is not over, or it is yet to hear of a loss.
  bool busy() const {
    return run != nullptr || request != nullptr || !losses.empty() || !retiring.empty();
  }
  bool empty() const {
    return held.empty() && !follows() && !busy() && binds.empty() && closing == nullptr;
  }
};

// An answer to a client that waits for the end of the operation that made it.
struct Answer {
  SessionId session;
  uint64_t token = 0;
  absl::Status status;
  BytesRef bytes;  // of a fetch that went well
  bool fetch = false;
  std::function<void()> done;  // set: to be called instead
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_WORK_H_
