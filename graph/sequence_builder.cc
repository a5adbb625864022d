// SPDX-License-Identifier: Apache-2.0
#include "graph/sequence_builder.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

namespace fairway {
namespace {

using Op = Instruction::Op;

constexpr int64_t kAllocationUnit = 64;  // the unit of device memory accounting, in bytes

int64_t Bytes(const Sequence::Type& type) {
  const int64_t bytes = ByteSize(type.dtype, type.shard).value_or(0);
  return (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
}

// Rounds of a loop that are walked: two at least, because the second meets the state that the first
// has left. Unless that is too much work, enough rounds to fill the window.
constexpr int64_t kLeastRounds = 2, kMostRounds = kSequenceWindow + 2;
constexpr int64_t kMuchWork = 100'000;

// The work of looking at an instruction once.
int64_t WorkOf(const Instruction& in) {
  return static_cast<int64_t>(1 + in.outputs.size() + in.clears.size());
}

int64_t Times(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}
int64_t Plus(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

// Walks through a sequence in the order of executors: loops often enough to fill the window, and
// all blocks of a branch.
class MemoryWalk {
 public:
  // `exported`: the values that are also outputs, in the order in which they are made.
  MemoryWalk(const Sequence& sequence, std::set<size_t> exported)
      : sequence_(sequence), exported_(std::move(exported)), registers_(sequence.registers) {
    Walk(0, sequence.instructions.size());
  }
  int64_t peak() const { return peak_; }
  const std::set<size_t>& outputs() const { return outputs_; }

 private:
  // By value; 0 for arguments and missing values.
  static constexpr size_t kNone = 0;

  void Walk(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Instruction& in = sequence_.instructions[i];
      size_t blocks = 0;
      for (const int32_t length : in.lengths) blocks += static_cast<size_t>(length);
      if (loops_ > 0) work_ += WorkOf(in);
      switch (in.op) {
        case Op::kRun:
          Clear(in.clears);
          BeginStep();
          for (size_t o = 0; o < in.outputs.size(); ++o) Make(in, o);
          break;
        case Op::kSet: {
          const size_t value = registers_[in.inputs[0]];
          if (value != kNone) ++holders_[value];
          Clear(in.clears);
          Assign(in.outputs[0], value);
          break;
        }
        case Op::kOutput:
          outputs_.insert(registers_[in.inputs[0]]);
          Clear(in.clears);
          break;
        case Op::kRepeat:
          ++loops_;
          for (int64_t round = 0; round < std::min(in.count, kMostRounds); ++round) {
            if (round >= kLeastRounds && work_ > kMuchWork) break;  // nested loops
            Walk(i + 1, i + 1 + blocks);
          }
          --loops_;
          break;
        case Op::kBranch:
          Clear(in.clears);
          Walk(i + 1, i + 1 + blocks);
          break;
        case Op::kClear:
          Clear(in.clears);
          break;
      }
      i += blocks;
    }
  }

  void BeginStep() {
    ++step_;
    while (!ended_.empty() && ended_.front().first + kSequenceWindow <= step_) {
      live_ -= ended_.front().second;
      ended_.pop_front();
    }
  }
  void Make(const Instruction& in, size_t output) {
    const size_t value = ++made_;
    bytes_.resize(value + 1, 0);
    holders_.resize(value + 1, 0);
    if (!exported_.contains(value)) bytes_[value] = Bytes(sequence_.types[in.types[output]]);
    live_ += bytes_[value];
    peak_ = std::max(peak_, live_);
    ++holders_[value];
    Assign(in.outputs[output], value);
  }
  // Records that the register holds `value`, whose bytes have been counted.
  void Assign(int32_t reg, size_t value) {
    Clear({reg});
    registers_[reg] = value;
  }
  void Clear(const std::vector<int32_t>& registers) {
    for (const int32_t reg : registers) {
      const size_t value = std::exchange(registers_[reg], kNone);
      if (value != kNone && --holders_[value] == 0) ended_.emplace_back(step_, bytes_[value]);
    }
  }

  const Sequence& sequence_;
  const std::set<size_t> exported_;
  std::vector<size_t> registers_;
  std::vector<int64_t> bytes_ = {0};
  std::vector<int> holders_ = {0};
  std::deque<std::pair<int64_t, int64_t>> ended_;  // (when it ended, bytes)
  std::set<size_t> outputs_;
  size_t made_ = 0;
  int64_t step_ = 0;
  int loops_ = 0;     // loops around this point
  int64_t work_ = 0;  // work in loops so far
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

// Computes the work with at most that many rounds of each loop. `times`: how often the outer loops
// go through these instructions; 0: there is no outer loop.
int64_t LoopWorkOf(const Sequence& sequence, size_t begin, size_t end, int64_t most_rounds,
                   int64_t times) {
  int64_t work = 0;
  for (size_t i = begin; i < end; ++i) {
    const Instruction& in = sequence.instructions[i];
    size_t blocks = 0;
    for (const int32_t length : in.lengths) blocks += static_cast<size_t>(length);
    work = Plus(work, Times(times, WorkOf(in)));
    const int64_t rounds = std::min(in.count, most_rounds);
    const int64_t inside =
        in.op == Op::kRepeat ? Times(std::max<int64_t>(times, 1), rounds) : times;
    work = Plus(work, LoopWorkOf(sequence, i + 1, i + 1 + blocks, most_rounds, inside));
    i += blocks;
  }
  return work;
}

// Counts instructions: only steps, or all. `branches`: if not nullptr, receives the numbers of the
// branches.
int64_t CountOf(const Sequence& sequence, size_t begin, size_t end, bool all,
                std::map<size_t, int64_t>* branches = nullptr) {
  int64_t steps = 0;
  for (size_t i = begin; i < end; ++i) {
    const Instruction& in = sequence.instructions[i];
    if (all || in.op == Op::kRun) steps = Plus(steps, 1);
    int64_t most = 0;
    size_t block = i + 1;
    for (const int32_t length : in.lengths) {
      const size_t block_end = block + static_cast<size_t>(length);
      most = std::max(most, CountOf(sequence, block, block_end, all, branches));
      block = block_end;
    }
    if (branches != nullptr && in.op == Op::kBranch) branches->emplace(i, most);
    steps = Plus(steps, in.op == Op::kRepeat ? Times(most, in.count) : most);
    i = block - 1;
  }
  return steps;
}

}  // namespace

int64_t PeakBytes(const Sequence& sequence) {
  const MemoryWalk first(sequence, {});
  return MemoryWalk(sequence, first.outputs()).peak();
}

Window WindowOf(const Sequence& sequence) {
  const int64_t steps = MaxSteps(sequence);
  if (steps <= kSequenceWindow) return {};
  int64_t largest = 0;
  for (const Instruction& in : sequence.instructions) {
    if (in.op != Op::kRun) continue;
    int64_t bytes = 0;
    for (const int32_t type : in.types) bytes = Plus(bytes, Bytes(sequence.types[type]));
    largest = std::max(largest, bytes);
  }
  for (int window = kBlocksWindow; window >= kWideWindow; window /= 2) {
    const int64_t more = std::min<int64_t>(steps, window) - kSequenceWindow;
    const int64_t bytes = Times(more, largest);
    if (bytes <= kWideBytes) return {window, bytes};
  }
  return {};
}

int64_t LoopWork(const Sequence& sequence) {
  const size_t all = sequence.instructions.size();
  return Plus(std::min(LoopWorkOf(sequence, 0, all, kMostRounds, 0), kMuchWork),
              LoopWorkOf(sequence, 0, all, kLeastRounds, 0));
}

int64_t MaxSteps(const Sequence& sequence) {
  return CountOf(sequence, 0, sequence.instructions.size(), false);
}

std::map<size_t, int64_t> BranchSteps(const Sequence& sequence) {
  std::map<size_t, int64_t> branches;
  CountOf(sequence, 0, sequence.instructions.size(), false, &branches);
  return branches;
}

int64_t MaxInstructions(const Sequence& sequence) {
  return CountOf(sequence, 0, sequence.instructions.size(), true);
}

SequenceBuilder::SequenceBuilder(const Program& program, const ProgramTypes& types,
                                 const ProgramBinding& binding, int32_t place,
                                 ValueRegisters& registers)
    : program_(program), types_(types), binding_(binding), place_(place), register_of_(registers) {
  sequence_->name = program.name;
  register_of_.BeginSequence();
}

void SequenceBuilder::AddInput(int32_t value) {
  if (register_of_.contains(value)) return;
  register_of_.Set(value, MakeIn(main_));
  run_.inputs.push_back(value);
}

void SequenceBuilder::AddNode(size_t graph, size_t node, const std::vector<int32_t>& inputs,
                              const std::vector<int32_t>& outputs) {
  std::vector<int32_t> registers;
  for (const int32_t value : inputs) registers.push_back(register_of_.at(value));
  registers = Emit(main_, graph, node, registers);
  for (size_t o = 0; o < outputs.size(); ++o) register_of_.Set(outputs[o], registers[o]);
}

void SequenceBuilder::AddOutput(int32_t value) {
  Item item;
  item.instruction.op = Op::kOutput;
  item.instruction.inputs = {register_of_.at(value)};
  item.instruction.outputs = {sequence_->outputs++};
  main_.items.push_back(std::move(item));
  run_.outputs.push_back(value);
}

absl::StatusOr<ProgramPlan::RunSequence> SequenceBuilder::Finish(int64_t& walk) {
  AddClears(main_);
  Flatten(main_);
  walk -= LoopWork(*sequence_);
  if (walk < 0)
    return InvalidArgument(
        "program {}: too much lies in loops within loops to compute their memory: each level "
        "doubles the work; nest less deeply, or run the program several times",
        program_.name);
  run_.executables.assign(executables_.begin(), executables_.end());
  run_.max_steps = MaxSteps(*sequence_);
  // One step whose devices do not wait for each other may be at work beside those whose devices do.
  constexpr int64_t kAtWork = kGangsAtWork + 1;
  run_.temp_bytes = Plus(Plus(PeakBytes(*sequence_), WindowOf(*sequence_).more_bytes),
                         Times(max_temp_, std::min(run_.max_steps, kAtWork)));
  run_.sequence = sequence_;
  return std::move(run_);
}

int32_t SequenceBuilder::MakeIn(Block& block) {
  const int32_t reg = NewRegister();
  block.made.push_back(reg);
  return reg;
}

void SequenceBuilder::Set(Block& block, int32_t to, int32_t from) {
  Item item;
  item.instruction.op = Op::kSet;
  item.instruction.inputs = {from};
  item.instruction.outputs = {to};
  block.items.push_back(std::move(item));
}

int32_t SequenceBuilder::TypeNumber(const Sequence::Type& type) {
  // A computation may have 65,536 results, each of another type.
  const auto [known, fresh] =
      numbers_of_types_.try_emplace({type.dtype, type.shard.dims, type.memory_kind},
                                    static_cast<int32_t>(sequence_->types.size()));
  if (fresh) sequence_->types.push_back(type);
  return known->second;
}

std::vector<int32_t> SequenceBuilder::Emit(Block& block, size_t graph, size_t node,
                                           const std::vector<int32_t>& inputs) {
  const auto& op = program_.graphs[graph].nodes[node].op;
  if (const auto* compute = std::get_if<ComputeNode>(&op)) return EmitRun(block, *compute, inputs);
  if (const auto* loop = std::get_if<LoopNode>(&op)) return EmitLoop(block, *loop, inputs);
  return EmitBranch(block, std::get<BranchNode>(op), inputs);
}

std::vector<int32_t> SequenceBuilder::EmitRun(Block& block, const ComputeNode& compute,
                                              const std::vector<int32_t>& inputs) {
  const BoundCode& code = binding_.code.at({compute.computation, place_});
  executables_.insert(code.executable);
  max_temp_ = std::max(max_temp_, code.temp_bytes);
  Item item;
  item.instruction.executable = code.executable;
  item.instruction.inputs = inputs;
  item.instruction.donates = code.donates;
  std::vector<int32_t>& types = types_of_[code.executable];
  for (size_t o = 0; o < code.outputs.size(); ++o) {
    item.instruction.outputs.push_back(MakeIn(block));
    if (types.size() == o) types.push_back(TypeNumber(code.outputs[o]));
  }
  item.instruction.types = types;
  std::vector<int32_t> outputs = item.instruction.outputs;
  block.items.push_back(std::move(item));
  return outputs;
}

std::vector<int32_t> SequenceBuilder::EmitLoop(Block& block, const LoopNode& loop,
                                               const std::vector<int32_t>& inputs) {
  std::vector<int32_t> carried;
  for (const int32_t input : inputs) {
    carried.push_back(MakeIn(block));
    Set(block, carried.back(), input);
  }
  Item item;
  item.instruction.op = Op::kRepeat;
  item.instruction.count = loop.count;
  item.uses = carried;
  Block& body = item.blocks.emplace_back();
  std::vector<int32_t> results = EmitBody(body, loop.body, carried);
  const auto is_carried = [&](int32_t reg) {
    return std::binary_search(carried.begin(), carried.end(), reg);
  };
  // Moves results that are arguments of the body aside first, because another argument may take
  // their place.
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == carried[i] || !is_carried(results[i])) continue;
    const int32_t aside = MakeIn(body);
    Set(body, aside, results[i]);
    results[i] = aside;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == carried[i]) continue;
    body.given.push_back(carried[i]);
    Set(body, carried[i], results[i]);
  }
  if (body.items.empty()) return carried;  // every round leaves all registers unchanged
  AddClears(body);
  block.items.push_back(std::move(item));
  return carried;
}

std::vector<int32_t> SequenceBuilder::EmitBranch(Block& block, const BranchNode& branch,
                                                 const std::vector<int32_t>& inputs) {
  std::vector<int32_t> given;
  for (size_t i = 1; i < inputs.size(); ++i) {
    given.push_back(NewRegister());
    Set(block, given.back(), inputs[i]);
  }
  Item item;
  item.instruction.op = Op::kBranch;
  item.instruction.inputs = {inputs[0]};
  item.uses = given;
  for (const int32_t body : branch.bodies) {
    Block& inner = item.blocks.emplace_back();
    inner.given = given;
    const std::vector<int32_t> results = EmitBody(inner, body, given);
    if (item.instruction.outputs.empty()) {
      for (size_t r = 0; r < results.size(); ++r) {
        const ValueRef ref = program_.graphs[body].results[r];
        const SliceSpec& type = types_[body][ref.node][ref.output];
        item.instruction.outputs.push_back(MakeIn(block));
        item.instruction.types.push_back(
            TypeNumber({type.array.dtype,
                        type.array.sharding.ShardShape(type.array.shape, 0).value_or(Shape()),
                        type.array.sharding.memory_kind()}));
      }
    }
    for (size_t r = 0; r < results.size(); ++r) Set(inner, item.instruction.outputs[r], results[r]);
    AddClears(inner);
  }
  std::vector<int32_t> outputs = item.instruction.outputs;
  block.items.push_back(std::move(item));
  return outputs;
}

std::vector<int32_t> SequenceBuilder::EmitBody(Block& block, size_t graph,
                                               const std::vector<int32_t>& arguments) {
  const Graph& in = program_.graphs[graph];
  std::vector<std::vector<int32_t>> made(in.nodes.size());
  size_t next = 0;
  for (size_t n = 0; n < in.nodes.size(); ++n) {
    if (std::holds_alternative<ArgumentNode>(in.nodes[n].op)) {
      made[n] = {arguments[next++]};
      continue;
    }
    std::vector<int32_t> inputs;
    for (const ValueRef ref : InputsOf(in.nodes[n])) inputs.push_back(made[ref.node][ref.output]);
    made[n] = Emit(block, graph, n, inputs);
  }
  std::vector<int32_t> results;
  for (const ValueRef ref : in.results) results.push_back(made[ref.node][ref.output]);
  return results;
}

void SequenceBuilder::AddClears(Block& block) {
  // Read, or made without a reader, later on.
  seen_.resize(sequence_->registers);
  const uint32_t mark = ++num_clears_;
  const auto sees = [&](int32_t reg) { return std::exchange(seen_[reg], mark) != mark; };
  const auto has = [](const std::vector<int32_t>& registers, int32_t reg) {
    return std::binary_search(registers.begin(), registers.end(), reg);
  };
  std::vector<Item> backwards;
  for (auto item = block.items.rbegin(); item != block.items.rend(); ++item) {
    Instruction& in = item->instruction;
    Instruction clear;
    clear.op = Op::kClear;
    const bool writes = in.op != Op::kOutput;
    for (const int32_t reg : in.outputs) {
      if (writes && has(block.made, reg) && sees(reg)) clear.clears.push_back(reg);
    }
    // The values that a loop carries exist after it; the inputs of a branch do not.
    for (const int32_t reg : item->uses) {
      if (sees(reg) && in.op == Op::kRepeat) clear.clears.push_back(reg);
    }
    for (const int32_t reg : in.inputs) {
      const bool ours = has(block.made, reg) || has(block.given, reg);
      if (!ours || !sees(reg)) continue;
      in.clears.push_back(reg);
    }
    if (!clear.clears.empty()) backwards.push_back({std::move(clear), {}, {}});
    backwards.push_back(std::move(*item));
  }
  // The inputs that were never read.
  Instruction unread;
  unread.op = Op::kClear;
  for (const int32_t reg : block.given) {
    if (seen_[reg] != mark) unread.clears.push_back(reg);
  }
  if (!unread.clears.empty()) backwards.push_back({std::move(unread), {}, {}});
  block.items.assign(std::make_move_iterator(backwards.rbegin()),
                     std::make_move_iterator(backwards.rend()));
}

void SequenceBuilder::Flatten(Block& block) {
  for (Item& item : block.items) {
    const size_t at = sequence_->instructions.size();
    for (auto* numbers : {&item.instruction.inputs, &item.instruction.outputs,
                          &item.instruction.types, &item.instruction.clears})
      numbers->shrink_to_fit();
    sequence_->instructions.push_back(std::move(item.instruction));
    for (Block& inner : item.blocks) {
      const size_t begin = sequence_->instructions.size();
      Flatten(inner);
      sequence_->instructions[at].lengths.push_back(
          static_cast<int32_t>(sequence_->instructions.size() - begin));
    }
  }
}

}  // namespace fairway
