// SPDX-License-Identifier: Apache-2.0
// Makes a sequence of nodes of a program that run at one place, in the order given.
#ifndef FAIRWAY_GRAPH_SEQUENCE_BUILDER_H_
#define FAIRWAY_GRAPH_SEQUENCE_BUILDER_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "graph/lowering.h"

namespace fairway {

// In which register the sequence that is being made has a value. One for all sequences of a plan:
// a plan may have millions of values.
class ValueRegisters {
 public:
  explicit ValueRegisters(size_t values) : slots_(values) {}
  void BeginSequence() { ++sequence_; }
  bool contains(int32_t value) const { return slots_[value].sequence == sequence_; }
  int32_t at(int32_t value) const { return slots_[value].number; }
  void Set(int32_t value, int32_t number) { slots_[value] = {sequence_, number}; }

 private:
  struct Slot {
    uint32_t sequence = 0;
    int32_t number = 0;
  };
  std::vector<Slot> slots_;
  uint32_t sequence_ = 0;
};

class SequenceBuilder {
 public:
  // The references must outlive it. `registers`: of no other one meanwhile.
  SequenceBuilder(const Program& program, const ProgramTypes& types, const ProgramBinding& binding,
                  int32_t place, ValueRegisters& registers);

  // Values of the plan that are taken, before the first AddNode; each once.
  void AddInput(int32_t value);
  // A ComputeNode, or a LoopNode or BranchNode whose bodies are of this place alone.
  void AddNode(size_t graph, size_t node, const std::vector<int32_t>& inputs,
               const std::vector<int32_t>& outputs);
  // A value that was made is an output.
  void AddOutput(int32_t value);
  // All but `slice` and `donated`. `walk`: what the loops of these and other sequences may still
  // take in LoopWork; this one's is taken from it. INVALID_ARGUMENT: it is not enough.
  absl::StatusOr<ProgramPlan::RunSequence> Finish(int64_t& walk);

 private:
  struct Block;
  // An instruction with what lies in its blocks.
  struct Item {
    Instruction instruction;
    std::vector<Block> blocks;
    std::vector<int32_t> uses;  // registers that the blocks read
  };
  struct Block {
    std::vector<Item> items;
    // Registers to be cleared behind their last reader: those that come to be in this block, and
    // those that it is given and may clear.
    std::vector<int32_t> made, given;  // ascending
  };

  int32_t NewRegister() { return sequence_->registers++; }
  int32_t MakeIn(Block& block);
  void Set(Block& block, int32_t to, int32_t from);
  int32_t TypeNumber(const Sequence::Type& type);
  // Adds the node's instructions; returns the registers of its outputs.
  std::vector<int32_t> Emit(Block& block, size_t graph, size_t node,
                            const std::vector<int32_t>& inputs);
  std::vector<int32_t> EmitRun(Block& block, const ComputeNode& compute,
                               const std::vector<int32_t>& inputs);
  std::vector<int32_t> EmitLoop(Block& block, const LoopNode& loop,
                                const std::vector<int32_t>& inputs);
  std::vector<int32_t> EmitBranch(Block& block, const BranchNode& branch,
                                  const std::vector<int32_t>& inputs);
  // The nodes of a body; returns the registers of its results.
  std::vector<int32_t> EmitBody(Block& block, size_t graph, const std::vector<int32_t>& arguments);
  void AddClears(Block& block);
  void Flatten(Block& block);

  const Program& program_;
  const ProgramTypes& types_;
  const ProgramBinding& binding_;
  const int32_t place_;
  std::shared_ptr<Sequence> sequence_ = std::make_shared<Sequence>();
  ProgramPlan::RunSequence run_;
  Block main_;
  std::map<ExecutableId, std::vector<int32_t>> types_of_;  // of its outputs, in Sequence::types
  ValueRegisters& register_of_;
  std::vector<uint32_t> seen_;  // by register: which AddClears has seen it
  uint32_t num_clears_ = 0;
  std::set<ExecutableId> executables_;
  int64_t max_temp_ = 0;
};

// Bytes on each device that the values inside a sequence take at most, arguments and outputs
// excepted; steps that have ended count until kSequenceWindow others have begun.
int64_t PeakBytes(const Sequence& sequence);
// How many instructions in loops, and registers that they write or clear, PeakBytes looks at, at
// most: each loop for two rounds at least, so what lies in n of them 2^n times.
int64_t LoopWork(const Sequence& sequence);
// How many launch ids it takes: one for each step, and for a branch as many as its longest block
// takes, whichever block runs.
int64_t MaxSteps(const Sequence& sequence);
// Of each branch, by where it stands in the instructions: the launch ids that it takes each time.
std::map<size_t, int64_t> BranchSteps(const Sequence& sequence);
// How many instructions an executor goes through at most, its steps among them.
int64_t MaxInstructions(const Sequence& sequence);

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_SEQUENCE_BUILDER_H_
