// SPDX-License-Identifier: Apache-2.0
#include "graph/plan.h"

#include <algorithm>

namespace fairway {
namespace {

using Op = Instruction::Op;

// What is known of a register or output: an argument whose error it has, or one of these.
constexpr int32_t kWell = -1;     // an argument
constexpr int32_t kUnknown = -2;  // a step may fail by itself; a branch, or a long loop, decides

struct Known {
  std::vector<int32_t> registers, outputs;
  bool operator==(const Known&) const = default;
};

class Tracer {
 public:
  explicit Tracer(const Sequence& sequence) : sequence_(sequence) {}

  // Goes through these instructions and what lies in their blocks.
  void Trace(size_t begin, size_t end, Known& known) {
    for (size_t i = begin; i < end;) {
      if (--left_ < 0) return Forget(i, end, known);
      const Instruction& in = sequence_.instructions[i];
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
      if (in.op == Op::kRepeat) {
        TraceLoop(body, i, in.count, known);
      } else if (in.op == Op::kBranch && by == kUnknown) {
        Forget(body, i, known);
      }
    }
  }

 private:
  void TraceLoop(size_t begin, size_t end, int64_t count, Known& known) {
    constexpr int64_t kRounds = 16;  // nearly all are as they stay after one or two
    for (int64_t round = 0; round < std::min(count, kRounds); ++round) {
      const Known before = known;
      Trace(begin, end, known);
      if (known == before) return;
      if (left_ < 0) return Forget(begin, end, known);
    }
    if (count > kRounds) Forget(begin, end, known);
  }

  // What these instructions may make.
  void Forget(size_t begin, size_t end, Known& known) const {
    for (size_t i = begin; i < end; ++i) {
      const Instruction& in = sequence_.instructions[i];
      for (const int32_t o : in.outputs)
        (in.op == Op::kOutput ? known.outputs : known.registers)[o] = kUnknown;
    }
  }

  const Sequence& sequence_;
  int64_t left_ = 100'000;  // instructions; loops in loops take 16 times as many for each
};

}  // namespace

std::vector<int32_t> FailedBy(const Sequence& sequence, const std::vector<bool>& failed) {
  Known known{std::vector<int32_t>(sequence.registers, kWell),
              std::vector<int32_t>(sequence.outputs, kWell)};
  for (size_t a = 0; a < std::min(failed.size(), known.registers.size()); ++a) {
    if (failed[a]) known.registers[a] = static_cast<int32_t>(a);
  }
  Tracer(sequence).Trace(0, sequence.instructions.size(), known);
  for (int32_t& by : known.outputs) by = std::max(by, kWell);
  return std::move(known.outputs);
}

}  // namespace fairway
