// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/step_blocks.h"

#include <algorithm>
#include <climits>

namespace fairway {
namespace {

constexpr size_t kMostInstructions = 128;  // of a block
constexpr size_t kMostRegisters = 64;      // that one of them reads, writes and clears
using Op = Instruction::Op;

size_t RegistersOf(const Instruction& in) {
  return in.inputs.size() + in.outputs.size() + in.clears.size();
}

// Goes through the instructions of a block, round by round.
class Walk {
 public:
  Walk(const Sequence& sequence, SequencePlace place) : sequence_(sequence), place_(place) {}

  // Returns the next one and goes past it; nullptr: it belongs to no block. `more_rounds`: goes on
  // with the next round at the end of a round.
  const Instruction* Next(bool more_rounds) {
    if (place_.at == place_.end) {
      if (!more_rounds || place_.again == 0) return nullptr;
      --place_.again;
      ++rounds_;
      place_.at = place_.begin;
    }
    const Instruction& next = sequence_.instructions[place_.at];
    const bool fits = (next.op == Op::kRun || next.op == Op::kSet || next.op == Op::kClear) &&
                      RegistersOf(next) <= kMostRegisters;
    if (!fits || looked_++ == kMostInstructions) return nullptr;
    ++place_.at;
    return &next;
  }
  bool StepIsNext() const {
    return place_.at < place_.end && sequence_.instructions[place_.at].op == Op::kRun;
  }
  size_t at() const { return place_.at; }
  int64_t rounds() const { return rounds_; }

 private:
  const Sequence& sequence_;
  SequencePlace place_;
  size_t looked_ = 0;
  int64_t rounds_ = 0;
};

// Follows the values of a block through its registers.
class Builder {
 public:
  void Add(const Instruction& in) {
    if (in.op == Op::kRun) return AddCall(in);
    const int32_t value = in.op == Op::kSet ? Read(in.inputs[0]) : kNone;
    Clear(in);
    if (in.op == Op::kSet) holds_[in.outputs[0]] = value;
  }
  size_t steps() const { return block_->calls.size(); }

  // nullptr: a register gets an argument, or a step reads an empty one.
  std::shared_ptr<const StepBlock> Finish(const Walk& end) {
    if (!fits_) return nullptr;
    StepBlock& block = *block_;
    std::map<int32_t, int32_t> register_of;  // by output of a call
    for (const auto& [reg, value] : holds_) {
      if (value == kNone) {
        block.step.clears.push_back(reg);
      } else if (value < 0) {
        if (block.step.inputs[~value] != reg) return nullptr;
      } else if (const auto [first, fresh] = register_of.emplace(value, reg); fresh) {
        block.results.push_back(value);
        block.step.outputs.push_back(reg);
        block.step.types.push_back(types_[value]);
      } else {
        block.copies.emplace_back(reg, first->second);
      }
    }
    std::vector<size_t> last(types_.size());  // call that reads or makes each output
    for (size_t c = 0, made = 0; c < block.calls.size(); ++c) {
      for (int32_t i = 0; i < block.calls[c].outputs; ++i) last[made++] = c;
      for (const int32_t value : block.calls[c].inputs) {
        if (value >= 0) last[value] = c;
      }
    }
    // Until here arguments are ~0, ~1, ...; outputs count from 0.
    const auto arguments = static_cast<int32_t>(block.step.inputs.size());
    for (size_t v = 0; v < last.size(); ++v) {
      const auto value = static_cast<int32_t>(v);
      if (!register_of.contains(value)) block.calls[last[v]].ends.push_back(arguments + value);
    }
    const auto number = [&](int32_t& value) { value = value < 0 ? ~value : arguments + value; };
    for (StepBlock::Call& call : block.calls) std::ranges::for_each(call.inputs, number);
    std::ranges::for_each(block.results, number);
    block.next = end.at();
    block.rounds = end.rounds();
    return std::move(block_);
  }

 private:
  static constexpr int32_t kNone = INT32_MIN;  // an empty register

  int32_t Read(int32_t reg) {
    const auto [held, fresh] = holds_.emplace(reg, 0);
    if (fresh) {
      held->second = ~static_cast<int32_t>(block_->step.inputs.size());
      block_->step.inputs.push_back(reg);
    }
    return held->second;
  }
  void Clear(const Instruction& in) {
    for (const int32_t reg : in.clears) holds_[reg] = kNone;
  }
  void AddCall(const Instruction& in) {
    StepBlock::Call& call = block_->calls.emplace_back();
    call.executable = in.executable;
    for (const int32_t reg : in.inputs) {
      call.inputs.push_back(Read(reg));
      fits_ = fits_ && call.inputs.back() != kNone;
    }
    Clear(in);
    for (size_t o = 0; o < in.outputs.size(); ++o) {
      holds_[in.outputs[o]] = static_cast<int32_t>(types_.size());
      types_.push_back(in.types[o]);
      ++call.outputs;
    }
  }

  std::shared_ptr<StepBlock> block_ = std::make_shared<StepBlock>();
  std::map<int32_t, int32_t> holds_;  // by register that was read or written
  std::vector<int32_t> types_;        // of the outputs, in Sequence::types
  bool fits_ = true;
};

}  // namespace

size_t StepsFrom(const Sequence& sequence, SequencePlace place, size_t most) {
  if (place.at == place.end || sequence.instructions[place.at].op != Op::kRun) return 0;
  Walk walk(sequence, place);
  size_t steps = 0;
  while (steps < most) {
    const Instruction* const next = walk.Next(true);
    if (next == nullptr) break;
    if (next->op == Op::kRun) ++steps;
  }
  return steps;
}

std::shared_ptr<const StepBlock> MakeBlock(const Sequence& sequence, SequencePlace place,
                                           size_t steps, size_t most_registers) {
  Walk walk(sequence, place);
  Builder builder;
  size_t registers = 0;
  // What follows the last step clears and renames its results.
  while (builder.steps() < steps || !walk.StepIsNext()) {
    const bool last = builder.steps() == steps;
    const Instruction* const next = walk.Next(!last);
    if (next == nullptr && last) break;
    if (next == nullptr) return nullptr;
    registers += RegistersOf(*next);
    if (registers > most_registers) return nullptr;
    builder.Add(*next);
  }
  return builder.Finish(walk);
}

}  // namespace fairway
