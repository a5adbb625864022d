// SPDX-License-Identifier: Apache-2.0
// What simulated executors run.
#ifndef FAIRWAY_TESTS_SIM_RUNS_H_
#define FAIRWAY_TESTS_SIM_RUNS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/plan.h"
#include "tests/sim/code.h"
#include "worker/executor/step_blocks.h"

namespace fairway::sim {

class Machine;
struct Run;
struct BlockRun;

// All launches of one node. They meet as in a collective, which ends when all have come. Members of
// code without collectives do not meet.
struct Gang {
  const Code* code = nullptr;
  std::vector<std::pair<Machine*, uint64_t>> members;  // with the session of each
  std::vector<Machine*> places;                        // by position in the code's device list
  std::map<Machine*, std::shared_ptr<Run>> joined;
  Inputs inputs;
  bool broken = false;  // a member is gone
  bool complete = false;
  absl::Status cause;  // why it broke, if the members know

  // Whether each member ends or fails independently of the others.
  bool MembersAreApart() const { return members.size() > 1 && code->separable; }
};

// A launch on one machine.
struct Run {
  PrepareLaunch node;
  Launch launch;
  std::shared_ptr<Gang> gang;
  std::vector<size_t> positions;              // of this machine's devices in the code's device list
  std::vector<std::vector<uint64_t>> inputs;  // [device here][argument]
  std::vector<ShardRef> reads;                // buffers that must stay until the end
  uint64_t session = 0;
  bool behind = false;  // may start behind what computes its inputs on its devices
  bool joined = false;
  std::shared_ptr<BlockRun> block;  // of a step of a block
  bool counts = false;              // as a gang at work: a block does until its last step ends
  absl::Status failure;             // why it fails on this machine alone; or OK
};

// Steps of a sequence that are launched together, with the members of each one's code when they
// were linked.
struct LinkedBlock {
  StepBlock calls;
  bool follows = false;  // all its code does
  std::map<ExecutableId, std::vector<InstallExecutable::Member>> peers;
};

// One launch of a block. Each step is a Run, and they lie one behind the other in the queues.
struct BlockRun {
  PrepareLaunch node;
  std::shared_ptr<const LinkedBlock> linked;
  std::vector<GroupPart> values;      // that calls make, in order
  size_t started = 0;                 // calls that lie in the queues or have ended
  std::vector<absl::Status> results;  // of the calls that have ended
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_RUNS_H_
