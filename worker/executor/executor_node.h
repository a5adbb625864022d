// SPDX-License-Identifier: Apache-2.0
// What an executor's core keeps of its shards and nodes, and of the work that it has in hand. Data
// only.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_NODE_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_NODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/sequence_run.h"
#include "worker/executor/waiters.h"

namespace fairway {

//   kDeclared -> kReady | kFailed
enum class ShardState : uint8_t { kDeclared, kReady, kFailed };
struct ExecutorShard {
  ShardState state = ShardState::kDeclared;
  NodeId producer;
  absl::Status error;
};

struct ExecutorNode {
  std::variant<PrepareLaunch, PrepareReceive> command;
  bool started = false;
  bool follows = false;          // a started gang whose code follows (see InstallDone)
  bool shared = false;           // a launched gang that other executors run, too
  std::optional<Launch> launch;  // set when launched; until `started` it waits for inputs or turn
  size_t missing = 0;            // inputs of a launch that are still being computed here
  // The end of the launch, if it came before the end of an input.
  struct End {
    absl::Status status;
    std::vector<Report::Inlined> inlined;
    size_t brief = 0;
    std::vector<absl::Status> outputs = {};  // of each output, if they differ (see LaunchDone)
  };
  std::optional<End> end;
  NodeId looked_for;                         // the last launch that Follow looked for
  bool in_gangs = false;                     // ExecutorCore::gangs_ has it
  std::unique_ptr<SequenceRun> run;          // of a started sequence
  NodeId parent;                             // of a step: the sequence
  size_t steps = 1;                          // of a block: launch ids that it takes
  std::vector<SequenceRun::ValueRef> holds;  // of a step: the values that it reads and makes
  bool issued = false;                       // of a sequence: all steps were started
  size_t open = 0;                           // of a receive: sources that have not ended
  size_t at_work = 0;                        // those of `open` for which StartReceive was called
  // The failure of the lowest position that failed, and that position: of a receive's sources, or
  // of a launch's inputs (argument by argument, and in each device by device).
  absl::Status failure;
  size_t failed_at = 0;
  // Of a receive, for each shard of `out`.
  struct OutShard {
    size_t open = 0;  // pieces that have not ended; the sum over out_shards is ExecutorNode::open
    absl::Status failure;
  };
  std::vector<OutShard> out_shards;
  std::vector<Waiters::Entry> waits;  // of a receive: where it waits or has waited

  // `position` has failed.
  void FailedAt(size_t position, const absl::Status& why) {
    if (!failure.ok() && position >= failed_at) return;
    failure = why;
    failed_at = position;
  }
};

// This executor's part of code that it runs with others (InstallExecutable).
struct LocalPart {
  std::vector<int32_t> devices;
  std::vector<int32_t> positions;
  std::vector<GroupPart> outputs;  // of no group yet
  std::vector<bool> distinct;
};

// ---- Launches in hand: they may have many arguments and results, so each is done a part at a
// time.

// Its command came. The shards of these arguments were looked at: those of all devices before
// `device`, and there the first `argument`. Its node knows which are missing, and which have
// failed.
struct LaunchInHand {
  Launch command;
  std::vector<bool> failed;  // by argument: the command says so
  size_t device = 0, argument = 0;
};
// Its turn has come: ExecutorActions::ReadyLaunch has done `value` of its values.
struct StartInHand {
  NodeId node;
  size_t value = 0;
};
// It is over, and its node is in no table: its first `output` outputs were ended, or forgotten.
struct EndInHand {
  ExecutorNode node;
  ExecutorNode::End end;
  bool cancelled = false;
  size_t output = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_NODE_H_
