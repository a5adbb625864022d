// SPDX-License-Identifier: Apache-2.0
// Where one run of a sequence stands (graph/plan.h, Sequence): the next instruction and what the
// registers hold. Pure; it starts nothing.
#ifndef FAIRWAY_WORKER_EXECUTOR_SEQUENCE_RUN_H_
#define FAIRWAY_WORKER_EXECUTOR_SEQUENCE_RUN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "graph/plan.h"

namespace fairway {

// A sequence that fits (CheckSequence), and what its runs need to know of it.
struct SequenceCode {
  explicit SequenceCode(std::shared_ptr<const Sequence> of);
  const std::shared_ptr<const Sequence> sequence;
  const std::map<size_t, int64_t> branch_steps;  // see BranchSteps
};

// Not thread-safe.
class SequenceRun {
 public:
  // A value: its shards on the devices of this executor, in their order. When nobody holds it any
  // more, neither a register nor a step at work, its group is in TakeGarbage.
  struct Value {
    std::vector<ShardRef> shards;
    bool own = false;       // made by a step of this run; else an argument
    bool exported = false;  // also an output
  };
  using ValueRef = std::shared_ptr<Value>;

  // `inputs`: as in PrepareLaunch. `kept`: arguments that are not to be donated.
  SequenceRun(std::shared_ptr<const SequenceCode> code,
              const std::vector<std::vector<ShardRef>>& inputs, const std::vector<int32_t>& kept);
  SequenceRun(const SequenceRun&) = delete;
  SequenceRun& operator=(const SequenceRun&) = delete;

  // The next instruction: kRun, kSet, kOutput or kBranch; nullptr: all have been passed. Stays the
  // same until Pass or Choose.
  const Instruction* Next();
  // Goes on behind it and clears what it is the last to read.
  void Pass();
  // kBranch: goes on in that block. Behind it all launch ids of the branch have been taken.
  void Choose(int64_t block);
  // kBranch: goes on behind all blocks, and clears what they would have. Takes the branch's launch
  // ids; returns how many.
  uint64_t SkipBlocks();

  const ValueRef& At(int32_t reg) const { return registers_[reg]; }
  void Set(int32_t reg, ValueRef value) { registers_[reg] = std::move(value); }
  // A value of its own, of that group, which has the shards of `part`.
  ValueRef Make(const GroupPart& part);
  // Whether the step may take over this argument of `run`: the run alone has it, and nobody reads
  // it again.
  bool MayDonate(const Instruction& run, int32_t argument) const;

  const Sequence::Type& TypeOf(const Instruction& instruction, size_t output) const {
    return sequence_->types[instruction.types[output]];
  }

  // Steps that were started and have not ended hold what they read and make.
  size_t at_work = 0;
  bool queued = false;                     // it will go on in this turn or a later one
  bool reading = false;                    // the scalar of a branch, or at the end what goes inline
  bool unreadable = false;                 // the scalar
  std::optional<int64_t> scalar;           // read for the next instruction, which is a branch
  std::vector<ValueRef> exported;          // until the end of the run
  std::map<int32_t, absl::Status> failed;  // arguments
  absl::Status abandoned;                  // why no further step is to begin
  uint64_t ids_taken = 0;                  // launch ids, by the steps and branches so far

  // Lets go of everything.
  void End();
  std::vector<GroupId> TakeGarbage() { return std::exchange(*garbage_, {}); }

 private:
  struct Frame {
    size_t begin, end, at;
    int64_t again;       // how often it runs once more
    uint64_t ids_after;  // of a branch: what is taken when its block ends; else 0
  };
  void Clear(const std::vector<int32_t>& registers);
  struct Branch {
    size_t begin = 0, end = 0;  // of its blocks
    uint64_t ids = 0;
  };
  // Of the branch that is next: goes on behind it.
  Branch PassBranch();

  const std::shared_ptr<const SequenceCode> code_;
  const Sequence* const sequence_;
  std::shared_ptr<std::vector<GroupId>> garbage_ = std::make_shared<std::vector<GroupId>>();
  std::vector<ValueRef> registers_;
  std::vector<ValueRef> kept_;  // arguments that are not to be donated
  std::vector<Frame> frames_;
};

// INVALID_ARGUMENT: registers, types, blocks or counts that are out of range or do not fit
// together; such a sequence is never run.
absl::Status CheckSequence(const Sequence& sequence);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_SEQUENCE_RUN_H_
