// SPDX-License-Identifier: Apache-2.0
// Programs as the core keeps them: placed, bound, and at work. Private to this folder; others have
// a PlacedProgram by pointer (placed_program.h).
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RECORDS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/work.h"

namespace fairway {

// A program on a session's devices (placed_program.h).
struct PlacedProgram {
  std::string name;
  bool sequential = false;
  ProgramPlan plan;              // but for its types and constants
  std::vector<ArraySpec> types;  // of the plan's values, over virtual devices
  struct Part {
    size_t step = 0;  // of the plan
    ExecutableSpec spec;
    CodeLayout layout;
    size_t bytes = 0;  // of it
  };
  std::vector<Part> parts;  // its sequences; the core takes them
  struct Constant {
    int32_t value = 0;
    std::vector<int32_t> blob_of_shard;
    std::vector<BytesRef> blobs;
  };
  std::vector<Constant> constants;
  size_t bytes = 0;  // that all of it holds, about

  const ArraySpec& TypeOf(int32_t value) const { return types[plan.values[value]]; }
};

// A program that a session has, or is getting (bind.cc).
struct BoundProgram {
  std::shared_ptr<PlacedProgram> placed;
  std::vector<ExecutableId> sequences;  // by step: its executable; none for a transfer
  std::map<int32_t, Array> constants;   // by value
  size_t bytes = 0;                     // counted for it; its sequences count by themselves
};

// A program that is being made known to the core.
struct ProgramBind {
  uint64_t out = 0;
  std::unique_ptr<BoundProgram> program;
  size_t parts = 0;      // of it that are known
  size_t constants = 0;  // that have been put
  absl::Status refusal;  // not OK: what is there of it is given up
  Cluster::Programs::Bound bound;
};

// A program whose steps are being made, a few in each turn. Its session takes no other operation
// meanwhile.
struct ProgramRun {
  BoundProgram* program = nullptr;  // of the session
  // Done in this order.
  size_t next_constant = 0;
  struct Resharded {
    int32_t argument = 0;
    const Array* from = nullptr;  // of the session, which changes none meanwhile
  };
  std::deque<Resharded> arguments;  // that are not there as the program takes them
  size_t next_step = 0;
  // The value that is being made: an argument, or what the next step, a transfer, makes.
  std::unique_ptr<ValueRequest> making;
  size_t pieces = 0;              // of the arguments so far
  std::deque<Array> values;       // of the plan, as far as they are made; their views are held
  std::vector<bool> ours;         // by value: whether its buffers may be taken over
  std::vector<uint64_t> results;  // handles
  std::vector<uint64_t> donated;  // handles of arguments
  uint64_t watch = 0;             // 0: none
  std::optional<uint64_t> watch_results;  // when they are there
  bool ended = false;                     // all steps are made, the results are there
  absl::Status failed;                    // of what no node was made for
  absl::Status refused;                   // an argument could not be made: the results hold this

  // They are numbered in the order in which steps name them.
  Array& ValueOf(int32_t value) {
    while (values.size() <= static_cast<size_t>(value)) values.emplace_back();
    return values[value];
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RECORDS_H_
