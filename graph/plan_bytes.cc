// SPDX-License-Identifier: Apache-2.0
// The memory of programs: for lowering them, and for holding them.
#include <algorithm>

#include "graph/lowering.h"

namespace fairway {
namespace {

size_t BytesOf(const Sequence& sequence) {
  size_t numbers = 0;
  for (const Instruction& in : sequence.instructions)
    numbers += in.inputs.size() + in.outputs.size() + in.types.size() + in.clears.size() +
               in.donates.size() + in.lengths.size();
  size_t bytes = sequence.instructions.size() * (sizeof(Instruction) + 64);
  for (const Sequence::Type& type : sequence.types)
    bytes += sizeof(type) + 32 + type.shard.dims.size() * sizeof(int64_t);
  return bytes + numbers * sizeof(int32_t);
}

}  // namespace

size_t LoweringBytes(const Program& program) {
  constexpr size_t kUnit = 400, kValue = 160;
  struct Size {
    size_t units = 0, values = 0;
    void Add(const Size& other, size_t times, const Size& most) {
      const auto all = [times](size_t one, size_t bound) {
        return one != 0 && times > bound / one ? bound : times * one;
      };
      units += all(other.units, most.units);
      values += all(other.values, most.values);
    }
  };
  // The total size of unrolled loops is bounded.
  constexpr Size kWritten{2 * kMaxNodes, 16 * kMaxNodes};
  constexpr Size kUnrolled{kMaxUnrolled, kMaxUnrolledValues};
  std::vector<Size> sizes(program.graphs.size());
  for (size_t g = sizes.size(); g-- > 0;) {
    Size& size = sizes[g];
    size.values = program.graphs[g].results.size();
    for (const ProgramNode& node : program.graphs[g].nodes) {
      ++size.units;
      size.values += InputsOf(node).size();
      const auto* compute = std::get_if<ComputeNode>(&node.op);
      size.values += compute == nullptr ? BodiesOf(node).size()
                                        : program.computations[compute->computation].results.size();
      const auto* loop = std::get_if<LoopNode>(&node.op);
      for (const int32_t body : BodiesOf(node)) {
        size.Add(sizes[body], 1, kWritten);
        if (loop != nullptr && loop->count > 1)
          size.Add(sizes[body], static_cast<size_t>(loop->count - 1), kUnrolled);
      }
    }
  }
  return sizes.empty() ? 0 : sizes[0].units * kUnit + sizes[0].values * kValue;
}

size_t PlanBytes(const ProgramPlan& plan) {
  size_t numbers = plan.values.size() + plan.results.size();
  size_t bytes = plan.donated.size() / 8;
  for (const SliceSpec& type : plan.types)
    bytes += sizeof(type) + 32 + type.array.shape.dims.size() * sizeof(int64_t);
  for (const ProgramPlan::Step& step : plan.steps) {
    bytes += sizeof(step);
    const auto* run = std::get_if<ProgramPlan::RunSequence>(&step);
    if (run == nullptr) continue;
    numbers += run->inputs.size() + run->outputs.size() + run->donated.size() +
               2 * run->executables.size();
    bytes += 128 + BytesOf(*run->sequence);
  }
  for (const ProgramPlan::Constant& constant : plan.constants)
    bytes += sizeof(constant) + constant.bytes->size();
  return bytes + numbers * sizeof(int32_t);
}

}  // namespace fairway
