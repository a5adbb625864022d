// SPDX-License-Identifier: Apache-2.0
// Blocks: steps of a sequence that are launched together (docs/design/0063-push-exchange.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_STEP_BLOCKS_H_
#define FAIRWAY_WORKER_EXECUTOR_STEP_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "graph/plan.h"

namespace fairway {

// Steps that come one behind the other, without a branch, an output or the begin of a loop between
// them. They may be of several rounds of a loop. Immutable.
struct StepBlock {
  // The block's values: first its arguments, then the outputs of each call, in order.
  struct Call {
    ExecutableId executable;
    std::vector<int32_t> inputs;
    int32_t outputs = 0;
    std::vector<int32_t> ends;  // values that calls make and that nothing reads after this one
  };
  std::vector<Call> calls;
  std::vector<int32_t> results;  // values that registers hold after the block; calls make them
  // The block as one step, without executable: its inputs are the registers of the arguments, its
  // outputs those of the results. It donates nothing.
  Instruction step;
  std::vector<std::pair<int32_t, int32_t>> copies;  // (to, from): registers that get a result, too
  // Where the run is after it: the next instruction, and how many rounds of the innermost loop it
  // has ended.
  size_t next = 0;
  int64_t rounds = 0;
};

// The place of a run in its innermost loop or branch, of instructions `begin` to `end`. After this
// round `again` more follow.
struct SequencePlace {
  size_t begin = 0, end = 0, at = 0;
  int64_t again = 0;
};

// Returns how many steps follow each other from `place` on, `most` at most, as a block could have
// them. 0: the instruction there is no step.
size_t StepsFrom(const Sequence& sequence, SequencePlace place, size_t most);

// Returns the block of the first `steps` steps, which StepsFrom has counted, and of what is between
// and right behind them. nullptr: they read, write and clear more than `most_registers` registers,
// counted for each instruction, a register gets an argument, or a step reads an empty register.
std::shared_ptr<const StepBlock> MakeBlock(const Sequence& sequence, SequencePlace place,
                                           size_t steps, size_t most_registers);

// What an executor knows of a sequence from its runs. It is dropped with the sequence, thus also
// when another executor that runs it is lost; and when kMostSequences others were used since.
struct LinkedBlocks {
  struct Linked {
    std::shared_ptr<const StepBlock> block;  // nullptr: there is none here
    ExecutableId code;                       // see ExecutorActions::LinkSteps
  };
  static constexpr size_t kMost = 64;  // of a sequence
  static constexpr size_t kMostSequences = 64;
  std::map<std::pair<size_t, size_t>, Linked> by_place;  // by the first instruction and the steps
  size_t window = kSequenceWindow;  // of the last run that ended; see SequenceRun::Widen
  uint64_t used = 0;                // later than those with a lower number

  bool full() const { return by_place.size() >= kMost; }
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_STEP_BLOCKS_H_
