// SPDX-License-Identifier: Apache-2.0
// The core's records of programs: placed, bound, and running. Private to this folder; others have a
// PlacedProgram by pointer (placed_program.h).
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
#include "controller/cluster/worklist.h"

namespace fairway {

// A program on a session's devices (placed_program.h).
struct PlacedProgram {
  std::string name;
  bool sequential = false;
  ProgramPlan plan;              // without its types and constants
  std::vector<ArraySpec> types;  // the plan's types, over virtual devices
  struct Part {
    size_t step = 0;  // its number in the plan
    ExecutableSpec spec;
    CodeLayout layout;
    size_t bytes = 0;  // counted for its sequence
  };
  std::vector<Part> parts;  // its sequences; the core takes them
  struct Constant {
    int32_t value = 0;
    std::vector<int32_t> blob_of_shard;
    std::vector<BytesRef> blobs;
  };
  std::vector<Constant> constants;
  size_t bytes = 0;  // about what the whole record holds

  const ArraySpec& TypeOf(int32_t value) const { return types[plan.values[value]]; }
};

// A program that a session has bound, or is binding (bind.cc).
struct BoundProgram {
  std::shared_ptr<PlacedProgram> placed;
  std::vector<ExecutableId> sequences;  // by step; a transfer has none
  std::map<int32_t, Array> constants;   // by value
  size_t bytes = 0;                     // counted for it; its sequences are counted apart
};

// A program that is being bound: made known to the core.
struct ProgramBind {
  uint64_t out = 0;
  std::unique_ptr<BoundProgram> program;
  size_t parts = 0;      // of its parts, those that are known
  size_t constants = 0;  // those that have been put
  absl::Status refusal;  // not OK: the parts and constants so far are given up
  uint64_t key = 0;      // the front door's, for the answer
};

// A run of a program, whose nodes are made a few steps in each turn. Its session takes no other
// operation meanwhile.
struct ProgramRun {
  BoundProgram* program = nullptr;  // one of the session's
  // The work, in this order.
  size_t next_constant = 0;
  struct Resharded {
    int32_t argument = 0;
    const Array* from = nullptr;  // in the session, which changes no array meanwhile
  };
  std::deque<Resharded> arguments;  // not sharded as the program takes them
  size_t next_step = 0;
  // Makes the current value: an argument, or the output of the next step, a transfer.
  std::unique_ptr<ValueRequest> making;
  size_t pieces = 0;                      // of the arguments so far
  std::deque<Array> values;               // of the plan, those that were made; their views are held
  std::vector<bool> ours;                 // by value: whether the run may take its buffers over
  std::vector<uint64_t> results;          // handles
  std::vector<uint64_t> donated;          // handles of the donated arguments
  uint64_t watch = 0;                     // 0: none
  std::optional<uint64_t> watch_results;  // called when the results exist
  bool ended = false;                     // all steps are made, the results exist
  absl::Status failed;                    // the error of results for which no node was made
  absl::Status refused;                   // an argument could not be made; the results hold this

  // Values are numbered in the order in which steps name them.
  Array& ValueOf(int32_t value) {
    while (values.size() <= static_cast<size_t>(value)) values.emplace_back();
    return values[value];
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RECORDS_H_
