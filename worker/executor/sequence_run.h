// SPDX-License-Identifier: Apache-2.0
// The state of one run of a sequence (graph/plan.h, Sequence): the next instruction, and the values
// in the registers. Pure; it starts nothing.
#ifndef FAIRWAY_WORKER_EXECUTOR_SEQUENCE_RUN_H_
#define FAIRWAY_WORKER_EXECUTOR_SEQUENCE_RUN_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/step_blocks.h"

namespace fairway {

// A sequence that has passed CheckSequence, and facts about it that its runs need. Immutable.
struct SequenceCode {
  explicit SequenceCode(std::shared_ptr<const Sequence> of);
  // INVALID_ARGUMENT: it does not pass. Takes long for many instructions.
  static absl::StatusOr<std::shared_ptr<const SequenceCode>> Make(
      std::shared_ptr<const Sequence> of);
  const std::shared_ptr<const Sequence> sequence;
  const std::vector<ExecutableId> runs;          // what its steps run, each once
  const std::map<size_t, int64_t> branch_steps;  // see BranchSteps
  const size_t window;                           // see WindowOf
};

// Owned by its node in ExecutorCore. Not thread-safe.
class SequenceRun {
 public:
  // A value: its shards on the devices of this executor, in their order. When neither a register
  // of this run or the next one nor a step at work holds it any more, its group is garbage.
  struct Value {
    std::vector<ShardRef> shards;
    bool own = false;       // a step of this run made it; else it is an argument
    bool exported = false;  // also an output of the sequence
  };
  using ValueRef = std::shared_ptr<Value>;

  // The groups of values that nothing holds any more. Runs whose values others may hold share it.
  using Garbage = std::shared_ptr<std::vector<GroupId>>;

  // `kept`: arguments that must not be donated.
  SequenceRun(std::shared_ptr<const SequenceCode> code, const std::vector<int32_t>& kept,
              Garbage garbage);
  SequenceRun(const SequenceRun&) = delete;
  SequenceRun& operator=(const SequenceRun&) = delete;

  // Returns the next instruction; nullptr: none is left. Returns the same one until Pass, Choose or
  // SkipBlocks; but kRepeat was entered by this call, and is over. So a call goes past one
  // instruction at most: loops may have 2^30 rounds in which no step is.
  const Instruction* Next();
  // Where the instruction is that Next has returned.
  SequencePlace Place() const;
  // Goes past the instruction, and clears the registers that it is the last to read.
  void Pass();
  // Goes past the block, which begins here, and clears the registers that are empty behind it.
  void Pass(const StepBlock& block);
  // kBranch: goes on in that block. After the block all launch ids of the branch count as taken.
  void Choose(int64_t block);
  // kBranch: goes past all blocks, and clears the registers that they would clear. Takes the launch
  // ids of the branch.
  struct Skipped {
    uint64_t ids = 0;
    size_t looked = 0;  // instructions and registers that it has looked at
  };
  Skipped SkipBlocks();

  const Sequence& sequence() const { return *sequence_; }
  size_t num_registers() const { return registers_.size(); }
  // Puts an argument with these shards into its register.
  void SetArgument(int32_t argument, std::vector<ShardRef> shards);
  const ValueRef& At(int32_t reg) const { return registers_[reg]; }
  void Set(int32_t reg, ValueRef value) { registers_[reg] = std::move(value); }
  // Makes a value of this run with the group and the shards of `part`.
  ValueRef Make(const GroupPart& part);
  // Of the arguments that the code of `run` takes over, those that the step must not: others hold
  // them, or read them again.
  std::vector<int32_t> NotDonatable(const Instruction& run) const;

  const Sequence::Type& TypeOf(const Instruction& instruction, size_t output) const {
    return sequence_->types[instruction.types[output]];
  }

  // A step that is being made, or a branch that has failed.
  struct Making {
    // Looks at what it reads; makes its outputs; writes down what it waits for.
    enum class Phase { kNone, kReads, kMakes, kWaits };
    struct Missing {
      ShardRef shard;
      size_t position = 0;  // as in ExecutorNode::failed_at
    };
    Phase phase = Phase::kNone;
    size_t at = 0;             // in this phase: inputs, outputs, or `missing` that are done
    uint64_t steps_ended = 0;  // when kReads began
    const Instruction* instruction = nullptr;
    std::shared_ptr<const StepBlock> block;  // `instruction` is that of a block; nullptr: it is not
    size_t steps = 1;                        // launch ids that it takes
    PrepareLaunch command;
    Launch launch;
    NodeId made;  // kWaits: the step
    std::vector<Missing> missing;
    std::vector<ValueRef> holds;  // what it reads and makes
    absl::Status failed;          // why it does not run
  };
  Making making;
  // What EndSequence has done.
  struct Ending {
    std::map<std::string, int32_t, std::less<>> argument_of;  // by the error
    size_t failed = 0, output = 0;                            // those before it were looked at
    std::vector<Report::Failure> failures;                    // told with the end
    bool released = false;                                    // End was called
  };
  Ending ending;

  size_t taken = 0;  // arguments that it has, or knows to have failed
  size_t told = 0;   // those of Launch::failed among them
  // Steps started and not ended; they hold the values that they read and make.
  size_t at_work = 0;
  // Whether `steps` more, launched together, may be at work. Each brief one that ends lets one
  // more, up to the window of the code, and to what two brief launches have; any other lets
  // kSequenceWindow, as its neighbours wait for what is at work. Single ones take longer than
  // blocks, so fewer may be.
  bool HasRoomFor(size_t steps) const {
    return at_work + steps <= (steps > 1 ? window_ : std::min<size_t>(window_, kWideWindow));
  }
  // How many steps may be launched together. More than one after brief ones, and half the window at
  // most, so that others are at work when they end.
  size_t Together() const { return window_ > kSequenceWindow ? std::bit_floor(window_ / 2) : 1; }
  // `brief`: see LaunchOutputs.
  void StepsEnded(size_t steps, size_t brief);
  size_t window() const { return window_; }
  // Goes on with the window that an earlier run had at its end.
  void Widen(size_t window) { window_ = window; }
  uint64_t steps_ended = 0;  // and arguments that were still being computed
  bool queued = false;       // ExecutorCore::advance_ has it
  // a read is under way: of a branch's scalar, or of the outputs that go inline
  bool reading = false;
  bool unreadable = false;         // the scalar of the next branch
  std::optional<int64_t> scalar;   // the scalar of the next instruction, which is a branch
  std::vector<ValueRef> exported;  // by output; nullptr: not set. Held until the end of the run
  std::vector<std::pair<int32_t, absl::Status>> failed;  // arguments that failed, in order
  std::vector<int32_t> early;  // arguments that were still being computed when the run took them
  absl::Status abandoned;      // not OK: why no further step may start
  uint64_t ids_taken = 0;      // launch ids that steps and branches have taken so far

  // Releases these values, or all of them. If they are many, LetGo releases them.
  void Release(std::vector<ValueRef> values);
  void End();
  bool HasLeftovers() const { return !leftovers_.empty(); }
  // Releases some of the values that are left. Returns how many.
  size_t LetGo();

 private:
  struct Frame {
    size_t begin, end, at;
    int64_t again;       // how many more times the block runs
    uint64_t ids_after;  // of a branch: ids_taken after its block; else 0
  };
  void Clear(const std::vector<int32_t>& registers);
  struct Branch {
    size_t begin = 0, end = 0;  // of its blocks
    uint64_t ids = 0;
  };
  // Goes past the branch that is next.
  Branch PassBranch();

  const std::shared_ptr<const SequenceCode> code_;
  const Sequence* const sequence_;
  size_t window_ = kSequenceWindow;  // steps at work, at most
  const Garbage garbage_;
  std::vector<ValueRef> registers_;
  std::vector<bool> keeps_;     // by argument, may be shorter: it must not be donated
  std::vector<ValueRef> kept_;  // those arguments
  std::deque<ValueRef> leftovers_;
  std::vector<Frame> frames_;
};

// INVALID_ARGUMENT: registers, types, blocks or counts are out of range or do not fit together.
// Such a sequence never runs.
absl::Status CheckSequence(const Sequence& sequence);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_SEQUENCE_RUN_H_
