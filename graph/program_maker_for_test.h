// SPDX-License-Identifier: Apache-2.0
// Makes programs, and what is bound to their slices, for tests of lowering.
#ifndef FAIRWAY_GRAPH_PROGRAM_MAKER_FOR_TEST_H_
#define FAIRWAY_GRAPH_PROGRAM_MAKER_FOR_TEST_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/lowering.h"
#include "graph/specs_for_test.h"

namespace fairway {

// The plan of a program that is in order; fails the test otherwise.
inline ProgramPlan LoweredOrFail(const Program& program, const ProgramBinding& binding) {
  const auto types = CheckProgram(program);
  EXPECT_TRUE(types.ok()) << types.status();
  auto plan = Lower(program, *types, binding);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Slices "a" and "b" of two devices each; "c" is bound to the devices of "a". Computations are
// f32[4] x inputs -> f32[4] on both devices.
struct Maker {
  Maker() {
    program.name = "test";
    program.slices = {{"a", 2}, {"b", 2}, {"c", 2}};
    program.graphs.resize(1);
    binding.places = {0, 1, 0};
  }
  int Computation(const std::string& name, int inputs, int outputs = 1,
                  std::vector<int32_t> donates = {}) {
    fairway::Computation made;
    made.name = name;
    made.code = std::make_shared<const std::string>("code");
    made.parameters.assign(inputs, Whole(4, 2));
    made.results.assign(outputs, Whole(4, 2));
    program.computations.push_back(made);
    const auto number = static_cast<int32_t>(program.computations.size()) - 1;
    for (const int place : {0, 1}) {
      const ExecutableId id(10 * (number + 1) + place);
      binding.code[{number, place}] = {
          id, std::vector<Sequence::Type>(outputs, {DType::kF32, Shape{{4}}, ""}), donates, 64};
      names[id] = name;
    }
    return number;
  }
  template <typename Op>
  ValueRef Add(Op op, int graph = 0) {
    program.graphs[graph].nodes.push_back({"", "", std::move(op)});
    return {static_cast<int32_t>(program.graphs[graph].nodes.size()) - 1, 0};
  }
  ValueRef Argument(int slice, int graph = 0, bool donated = false) {
    return Add(ArgumentNode{{slice, Whole(4, 2)}, donated}, graph);
  }
  ValueRef Compute(int computation, int slice, std::vector<ValueRef> inputs, int graph = 0) {
    return Add(ComputeNode{computation, slice, std::move(inputs)}, graph);
  }
  ProgramPlan Lowered() const { return LoweredOrFail(program, binding); }

  Program program;
  ProgramBinding binding;
  std::map<ExecutableId, std::string> names;
  // The failed outputs of sequences that FailedBy knew, and all of them.
  mutable int foreseen = 0, seen = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_PROGRAM_MAKER_FOR_TEST_H_
