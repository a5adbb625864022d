// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/sequence_run.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <absl/container/inlined_vector.h>

#include "base/planted.h"
#include "graph/sequence_builder.h"

namespace fairway {
namespace {

constexpr size_t kMaxDepth = 64;        // of nested loops and branches
constexpr size_t kReleasedAtOnce = 64;  // values
using Op = Instruction::Op;

size_t BlockSize(const Instruction& in) {
  size_t size = 0;
  for (const int32_t length : in.lengths) size += static_cast<size_t>(length);
  return size;
}

bool Within(const std::vector<int32_t>& numbers, int32_t end) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int32_t n) { return n >= 0 && n < end; });
}

// The numbers of inputs, outputs and so on of an instruction; -1: any number.
struct Arity {
  int inputs, outputs, lengths;
};
Arity ArityOf(Op op) {
  switch (op) {
    case Op::kRun:
      return {-1, -1, 0};
    case Op::kSet:
    case Op::kOutput:
      return {1, 1, 0};
    case Op::kRepeat:
      return {0, 0, 1};
    case Op::kBranch:
      return {1, -1, -1};
    case Op::kClear:
      return {0, 0, 0};
  }
  return {0, 0, 0};
}

bool Fits(const Sequence& sequence, const Instruction& in, size_t room) {
  const Arity arity = ArityOf(in.op);
  const auto is = [](int want, size_t count) {
    return want < 0 || static_cast<size_t>(want) == count;
  };
  const bool made = in.op == Op::kRun || in.op == Op::kBranch;
  return is(arity.inputs, in.inputs.size()) && is(arity.outputs, in.outputs.size()) &&
         is(arity.lengths, in.lengths.size()) &&
         in.types.size() == (made ? in.outputs.size() : 0) &&
         Within(in.inputs, sequence.registers) && Within(in.clears, sequence.registers) &&
         Within(in.outputs, in.op == Op::kOutput ? sequence.outputs : sequence.registers) &&
         Within(in.types, static_cast<int32_t>(sequence.types.size())) &&
         Within(in.donates, static_cast<int32_t>(in.inputs.size())) &&
         Within(in.lengths, INT32_MAX) && BlockSize(in) <= room && in.count >= 0 &&
         (in.op != Op::kBranch || !in.lengths.empty()) && (in.op != Op::kRun || in.executable);
}

std::vector<ExecutableId> RunsOf(const Sequence& sequence) {
  std::set<ExecutableId> runs;
  for (const Instruction& in : sequence.instructions) {
    if (in.op == Op::kRun) runs.insert(in.executable);
  }
  return {runs.begin(), runs.end()};
}

absl::Status CheckBlock(const Sequence& sequence, size_t begin, size_t end, size_t depth) {
  if (depth > kMaxDepth)
    return InvalidArgument("sequence {}: more than {} loops and branches within each other",
                           sequence.name, kMaxDepth);
  for (size_t i = begin; i < end; ++i) {
    const Instruction& in = sequence.instructions[i];
    if (!Fits(sequence, in, end - i - 1))
      return InvalidArgument("sequence {}: instruction {} does not fit", sequence.name, i);
    for (const int32_t length : in.lengths) {
      FAIRWAY_RETURN_IF_ERROR(CheckBlock(sequence, i + 1, i + 1 + length, depth + 1));
      i += static_cast<size_t>(length);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSequence(const Sequence& sequence) {
  if (sequence.registers < 0 || sequence.outputs < 0)
    return InvalidArgument("sequence {}: {} registers, {} outputs", sequence.name,
                           sequence.registers, sequence.outputs);
  return CheckBlock(sequence, 0, sequence.instructions.size(), 0);
}

SequenceCode::SequenceCode(std::shared_ptr<const Sequence> of)
    : sequence(std::move(of)),
      runs(RunsOf(*sequence)),
      branch_steps(BranchSteps(*sequence)),
      window(static_cast<size_t>(WindowOf(*sequence).steps)) {}

absl::StatusOr<std::shared_ptr<const SequenceCode>> SequenceCode::Make(
    std::shared_ptr<const Sequence> of) {
  FAIRWAY_RETURN_IF_ERROR(CheckSequence(*of));
  return std::make_shared<const SequenceCode>(std::move(of));
}

SequenceRun::SequenceRun(std::shared_ptr<const SequenceCode> code, const std::vector<int32_t>& kept,
                         Garbage garbage)
    : exported(code->sequence->outputs),
      code_(std::move(code)),
      sequence_(code_->sequence.get()),
      garbage_(std::move(garbage)),
      registers_(sequence_->registers) {
  if (!kept.empty()) keeps_.resize(registers_.size());
  for (const int32_t a : kept) {
    if (a >= 0 && static_cast<size_t>(a) < keeps_.size()) keeps_[a] = true;
  }
  frames_.push_back({0, sequence_->instructions.size(), 0, 0, 0});
}

void SequenceRun::StepsEnded(size_t steps, size_t brief) {
  at_work -= steps;
  steps_ended += steps;
  window_ = std::min({window_ + steps, 2 * brief, code_->window});
  window_ = std::max<size_t>(window_, kSequenceWindow);
}

void SequenceRun::SetArgument(int32_t argument, std::vector<ShardRef> shards) {
  auto value = std::make_shared<Value>();
  value->shards = std::move(shards);
  if (static_cast<size_t>(argument) < keeps_.size() && keeps_[argument]) kept_.push_back(value);
  registers_[argument] = std::move(value);
}

const Instruction* SequenceRun::Next() {
  while (!frames_.empty()) {
    Frame& top = frames_.back();
    if (top.at == top.end) {
      if (top.again > 0) {
        --top.again;
        top.at = top.begin;
      } else {
        ids_taken = std::max(ids_taken, top.ids_after);
        frames_.pop_back();
      }
      continue;
    }
    const Instruction& next = sequence_->instructions[top.at];
    if (next.op != Op::kRepeat) return &next;
    const size_t body = top.at + 1;
    const size_t end = body + static_cast<size_t>(next.lengths[0]);
    top.at = end;
    if (next.count > 0 && body < end) frames_.push_back({body, end, body, next.count - 1, 0});
    return &next;
  }
  return nullptr;
}

void SequenceRun::Clear(const std::vector<int32_t>& registers) {
  const bool many = registers.size() > kReleasedAtOnce;
  for (const int32_t reg : registers) {
    if (many) leftovers_.push_back(std::move(registers_[reg]));
    registers_[reg] = nullptr;
  }
}

void SequenceRun::Release(std::vector<ValueRef> values) {
  if (values.size() > kReleasedAtOnce) std::ranges::move(values, std::back_inserter(leftovers_));
}

size_t SequenceRun::LetGo() {
  const size_t count = std::min(leftovers_.size(), kReleasedAtOnce);
  leftovers_.erase(leftovers_.begin(), leftovers_.begin() + static_cast<ptrdiff_t>(count));
  return count;
}

void SequenceRun::Pass() {
  const Instruction& done = sequence_->instructions[frames_.back().at++];
  Clear(done.clears);
}

void SequenceRun::Pass(const StepBlock& block) {
  Frame& top = frames_.back();
  top.at = block.next;
  top.again -= block.rounds;
  Clear(block.step.clears);
}

SequencePlace SequenceRun::Place() const {
  const Frame& top = frames_.back();
  return {top.begin, top.end, top.at, top.again};
}

SequenceRun::Branch SequenceRun::PassBranch() {
  unreadable = false;
  size_t& at = frames_.back().at;
  const Instruction& branch = sequence_->instructions[at];
  Branch passed;
  if (!Planted(Bug::kIdsOfTheBlock)) passed.ids = static_cast<uint64_t>(code_->branch_steps.at(at));
  passed.begin = at + 1;
  passed.end = at = passed.begin + BlockSize(branch);
  scalar.reset();
  Clear(branch.clears);
  return passed;
}

SequenceRun::Skipped SequenceRun::SkipBlocks() {
  const Branch branch = PassBranch();
  Skipped skipped{branch.ids, branch.end - branch.begin};
  for (size_t i = branch.begin; i < branch.end; ++i) {
    Clear(sequence_->instructions[i].clears);
    skipped.looked += sequence_->instructions[i].clears.size();
  }
  ids_taken += branch.ids;
  return skipped;
}

void SequenceRun::Choose(int64_t block) {
  const Instruction& branch = sequence_->instructions[frames_.back().at];
  const Branch passed = PassBranch();
  size_t begin = passed.begin;
  const uint64_t ids_after = ids_taken + passed.ids;
  block = std::clamp<int64_t>(block, 0, static_cast<int64_t>(branch.lengths.size()) - 1);
  for (int64_t i = 0; i < block; ++i) begin += static_cast<size_t>(branch.lengths[i]);
  const size_t end = begin + static_cast<size_t>(branch.lengths[block]);
  if (begin < end) {
    frames_.push_back({begin, end, begin, 0, ids_after});
  } else {
    ids_taken = ids_after;
  }
}

SequenceRun::ValueRef SequenceRun::Make(const GroupPart& part) {
  ValueRef value(new Value, [garbage = garbage_, group = part.group](Value* gone) {
    delete gone;
    garbage->push_back(group);
  });
  value->own = true;
  for (const LocalShard& shard : part.shards) value->shards.push_back({part.group, shard.shard});
  return value;
}

void SequenceRun::End() {
  Release(std::exchange(registers_, {}));
  Release(std::exchange(kept_, {}));
  Release(std::exchange(exported, {}));
  frames_.clear();
}

std::vector<int32_t> SequenceRun::NotDonatable(const Instruction& run) const {
  std::vector<int32_t> out;
  if (run.donates.empty()) return out;
  // A step may have 65,536 arguments: a search for each among all would cost the square.
  absl::InlinedVector<int32_t, 16> clears(run.clears.begin(), run.clears.end());
  absl::InlinedVector<int32_t, 16> inputs(run.inputs.begin(), run.inputs.end());
  std::sort(clears.begin(), clears.end());
  std::sort(inputs.begin(), inputs.end());
  for (const int32_t argument : run.donates) {
    const int32_t reg = run.inputs[argument];
    const ValueRef& value = registers_[reg];
    const auto [first, last] = std::equal_range(inputs.begin(), inputs.end(), reg);
    const bool may = std::binary_search(clears.begin(), clears.end(), reg) && last - first == 1 &&
                     value != nullptr && !value->exported && value.use_count() == 1;
    if (!may) out.push_back(argument);
  }
  return out;
}

}  // namespace fairway
