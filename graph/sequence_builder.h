// SPDX-License-Identifier: Apache-2.0
// Makes a sequence of program nodes that run at one place, in the given order.
#ifndef FAIRWAY_GRAPH_SEQUENCE_BUILDER_H_
#define FAIRWAY_GRAPH_SEQUENCE_BUILDER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "graph/lowering.h"

namespace fairway {

// The register of each value in the sequence under construction. One object serves all sequences of
// a plan, because a plan may have millions of values.
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

// Builds one sequence: inputs first, then nodes, then outputs, then Finish. Used once; not
// thread-safe.
class SequenceBuilder {
 public:
  // The references must outlive the builder. `registers` serves no other builder in the meantime.
  SequenceBuilder(const Program& program, const ProgramTypes& types, const ProgramBinding& binding,
                  int32_t place, ValueRegisters& registers);

  // Adds a value of the plan that the sequence takes; each once, before the first AddNode.
  void AddInput(int32_t value);
  // Adds a ComputeNode, or a LoopNode or BranchNode all of whose bodies are at this place.
  void AddNode(size_t graph, size_t node, const std::vector<int32_t>& inputs,
               const std::vector<int32_t>& outputs);
  // Makes a value of the sequence an output.
  void AddOutput(int32_t value);
  // Returns the sequence, with all fields but `slice` and `donated`. `walk`: the LoopWork that
  // remains for this and further sequences; this sequence's is taken from it. INVALID_ARGUMENT: too
  // little remains.
  absl::StatusOr<ProgramPlan::RunSequence> Finish(int64_t& walk);

 private:
  struct Block;
  // An instruction with the contents of its blocks.
  struct Item {
    Instruction instruction;
    std::vector<Block> blocks;
    std::vector<int32_t> uses;  // registers that the blocks read
  };
  struct Block {
    std::vector<Item> items;
    // Registers to clear after their last reader: those made in this block, and those given to it
    // that it may clear.
    std::vector<int32_t> made, given;  // ascending
  };

  int32_t NewRegister() { return sequence_->registers++; }
  int32_t MakeIn(Block& block);
  void Set(Block& block, int32_t to, int32_t from);
  int32_t TypeNumber(const Sequence::Type& type);
  // Adds the node's instructions. Returns the registers of its outputs.
  std::vector<int32_t> Emit(Block& block, size_t graph, size_t node,
                            const std::vector<int32_t>& inputs);
  std::vector<int32_t> EmitRun(Block& block, const ComputeNode& compute,
                               const std::vector<int32_t>& inputs);
  std::vector<int32_t> EmitLoop(Block& block, const LoopNode& loop,
                                const std::vector<int32_t>& inputs);
  std::vector<int32_t> EmitBranch(Block& block, const BranchNode& branch,
                                  const std::vector<int32_t>& inputs);
  // Adds the nodes of a body. Returns the registers of its results.
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
  // types of its outputs, in Sequence::types
  std::map<ExecutableId, std::vector<int32_t>> types_of_;
  std::map<std::tuple<DType, std::vector<int64_t>, std::string>, int32_t> numbers_of_types_;
  ValueRegisters& register_of_;
  std::vector<uint32_t> seen_;  // by register: the call of AddClears that has seen it last
  uint32_t num_clears_ = 0;
  std::set<ExecutableId> executables_;
  int64_t max_temp_ = 0;
};

// Returns the bytes on each device that the values inside a sequence take at most, without
// arguments and outputs. A step that has ended counts until kSequenceWindow others have begun.
int64_t PeakBytes(const Sequence& sequence);
// Returns how many steps may be at work at the same time, and the bytes that those beyond
// kSequenceWindow make on each device at most: from kBlocksWindow down to kWideWindow, the largest
// of which that is no more than kWideBytes. Brief steps are handed over in larger batches then.
struct Window {
  int steps = kSequenceWindow;
  int64_t more_bytes = 0;
};
inline constexpr int64_t kWideBytes = 64 << 10;
Window WindowOf(const Sequence& sequence);
// Returns how many instructions in loops, and registers that they write or clear, PeakBytes looks
// at, at most. It walks each loop for at least two rounds, so the contents of n nested loops 2^n
// times.
int64_t LoopWork(const Sequence& sequence);
// Returns how many launch ids the sequence takes: one for each step, and for a branch as many as
// its longest block, whichever block runs.
int64_t MaxSteps(const Sequence& sequence);
// Returns for each branch, by its index among the instructions, the launch ids that it takes each
// time.
std::map<size_t, int64_t> BranchSteps(const Sequence& sequence);
// Returns how many instructions an executor goes through at most, including steps.
int64_t MaxInstructions(const Sequence& sequence);

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_SEQUENCE_BUILDER_H_
