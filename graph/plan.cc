// SPDX-License-Identifier: Apache-2.0
#include "graph/plan.h"

#include <algorithm>

namespace fairway {
namespace {

using Op = Instruction::Op;

// The fact known of a register or output: the argument whose error it has, or one of these.
constexpr int32_t kWell = -1;     // an argument
constexpr int32_t kUnknown = -2;  // a step may fail by itself, or a branch or long loop decides

// The facts known at one point of a sequence.
struct Known {
  std::vector<int32_t> registers, outputs;
};

// Traces failed arguments through a sequence, within a budget of work.
class Tracer {
 public:
  explicit Tracer(const Sequence& sequence) : sequence_(sequence) {}

  // Traces these instructions and the contents of their blocks. False: that is too much work, and
  // nothing is known.
  bool Trace(size_t begin, size_t end, Known& known) {
    for (size_t i = begin; i < end;) {
      const Instruction& in = sequence_.instructions[i];
      if (!Spend(1 + in.inputs.size() + in.clears.size() + in.outputs.size())) return false;
      const size_t body = i + 1;
      i = body;
      for (const int32_t length : in.lengths) i += static_cast<size_t>(length);
      int32_t by = kWell;
      for (const int32_t reg : in.inputs) {
        if (by == kWell) by = known.registers[reg];
      }
      for (const int32_t reg : in.clears) known.registers[reg] = kWell;
      const bool decides = in.op == Op::kRun || in.op == Op::kBranch;
      if (decides && by == kWell) by = kUnknown;
      std::vector<int32_t>& made = in.op == Op::kOutput ? known.outputs : known.registers;
      for (const int32_t output : in.outputs) made[output] = by;
      if (in.op == Op::kRepeat && !TraceLoop(body, i, in.count, known)) return false;
      if (in.op == Op::kBranch && by == kUnknown) Forget(Made(body, i, known));
    }
    return true;
  }

 private:
  bool TraceLoop(size_t begin, size_t end, int64_t count, Known& known) {
    constexpr int64_t kRounds = 16;  // nearly all facts are final after one or two rounds
    const std::vector<int32_t*> made = Made(begin, end, known);
    std::vector<int32_t> before(made.size());
    for (int64_t round = 0; round < std::min(count, kRounds); ++round) {
      std::transform(made.begin(), made.end(), before.begin(), [](auto* value) { return *value; });
      if (!Spend(made.size()) || !Trace(begin, end, known)) return false;
      const auto same = [](const int32_t* now, int32_t then) { return *now == then; };
      if (std::equal(made.begin(), made.end(), before.begin(), same)) return true;
    }
    if (count > kRounds) Forget(made);
    return true;
  }

  // Returns where the facts stand of everything that these instructions may write.
  std::vector<int32_t*> Made(size_t begin, size_t end, Known& known) {
    std::vector<int32_t*> made;
    for (size_t i = begin; i < end; ++i) {
      const Instruction& in = sequence_.instructions[i];
      for (const int32_t o : in.outputs)
        made.push_back(&(in.op == Op::kOutput ? known.outputs : known.registers)[o]);
    }
    Spend(end - begin + made.size());
    return made;
  }

  static void Forget(const std::vector<int32_t*>& made) {
    for (int32_t* value : made) *value = kUnknown;
  }

  bool Spend(size_t work) { return (left_ -= static_cast<int64_t>(work)) >= 0; }

  const Sequence& sequence_;
  // Instructions and registers that may be looked at: the controller's loop waits for this, and
  // each level of nested loops costs 16 times as much. Some 20 for each of 100,000 instructions.
  int64_t left_ = 2'000'000;
};

}  // namespace

std::vector<int32_t> FailedBy(const Sequence& sequence, const std::vector<bool>& failed) {
  Known known{std::vector<int32_t>(sequence.registers, kWell),
              std::vector<int32_t>(sequence.outputs, kWell)};
  for (size_t a = 0; a < std::min(failed.size(), known.registers.size()); ++a) {
    if (failed[a]) known.registers[a] = static_cast<int32_t>(a);
  }
  if (!Tracer(sequence).Trace(0, sequence.instructions.size(), known))
    return std::vector<int32_t>(sequence.outputs, kWell);
  for (int32_t& by : known.outputs) by = std::max(by, kWell);
  return std::move(known.outputs);
}

}  // namespace fairway
