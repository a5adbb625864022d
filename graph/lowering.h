// SPDX-License-Identifier: Apache-2.0
// Lowers a program onto bound devices: into sequences that islands run by themselves, and transfers
// between them (docs/design/0040-programs.md). Pure.
#ifndef FAIRWAY_GRAPH_LOWERING_H_
#define FAIRWAY_GRAPH_LOWERING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/plan.h"
#include "graph/program.h"

namespace fairway {

// A computation, compiled for the devices of a slice.
struct BoundCode {
  ExecutableId executable;
  std::vector<Sequence::Type> outputs;  // on each device
  std::vector<int32_t> donates;         // parameters that it takes over
  int64_t temp_bytes = 0;               // per device
};

// What binding gives a program: a place for each slice, and compiled code for each computation
// there.
struct ProgramBinding {
  // For each slice. Slices on the same devices in the same order have the same place.
  std::vector<int32_t> places;
  std::map<std::pair<int32_t, int32_t>, BoundCode> code;  // by computation and place
};

// A plan: a program, lowered onto the places of one binding.
struct ProgramPlan {
  struct RunSequence {
    int32_t slice = 0;  // one of the slices at its place
    std::shared_ptr<const Sequence> sequence;
    std::vector<int32_t> inputs;   // values
    std::vector<int32_t> outputs;  // values
    std::vector<int32_t> donated;  // inputs that nothing later reads, by position
    std::vector<ExecutableId> executables;
    int64_t temp_bytes = 0;  // per device: intermediate values and what the code needs
    int64_t max_steps = 0;   // the launch ids that it takes, at most
  };
  struct Transfer {
    int32_t input = 0;   // value
    int32_t output = 0;  // value
  };
  struct Constant {
    int32_t value = 0;
    std::shared_ptr<const std::string> bytes;
  };
  using Step = std::variant<RunSequence, Transfer>;

  // The values that steps and the caller take and make: the type of each, as an index into `types`.
  // Values within one sequence are not listed. The arguments come first.
  std::vector<int32_t> values;
  std::vector<SliceSpec> types;  // each once
  int32_t arguments = 0;
  std::vector<bool> donated;        // for each argument
  std::vector<Constant> constants;  // to be put on the devices before the first run
  std::vector<Step> steps;          // each after the steps whose values it takes
  std::vector<int32_t> results;     // values

  const SliceSpec& TypeOf(int32_t value) const { return types[values[value]]; }
};

// `types`: the result of CheckProgram. INVALID_ARGUMENT names the node: a branch over several
// slices, or a loop over several slices that is too long to be unrolled (kMaxUnrolled steps). Or it
// names the program: its loops are too long or nested too deep, or its steps wait for too many
// different sets of transfers.
absl::StatusOr<ProgramPlan> Lower(const Program& program, const ProgramTypes& types,
                                  const ProgramBinding& binding);

// Returns about the bytes of memory that Lower takes at most.
size_t LoweringBytes(const Program& program);
// Returns about the bytes that a plan holds.
size_t PlanBytes(const ProgramPlan& plan);

inline constexpr size_t kMaxUnrolled = 100'000;
// The most values that these steps take and make, all together.
inline constexpr size_t kMaxUnrolledValues = size_t{1} << 18;

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_LOWERING_H_
