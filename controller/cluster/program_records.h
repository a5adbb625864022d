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
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/new_launch.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/result_handles.h"
#include "controller/cluster/worklist.h"

namespace fairway {

// A program on a session's devices (placed_program.h).
struct PlacedProgram {
  std::string name;
  bool sequential = false;
  ProgramPlan plan;               // without its types and constants
  std::vector<ArraySpec> types;   // the plan's types, over virtual devices
  std::vector<IslandId> islands;  // of its slices, each once
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

// A run of a program. It is checked, and its nodes are made, a few items in each turn. Its session
// takes no other operation meanwhile.
struct ProgramRun {
  ProgramRun(BoundProgram* program, std::vector<uint64_t> args, const ExecuteOptions& options,
             std::vector<uint64_t> out)
      : program(program),
        args(std::move(args)),
        kept(options.Kept(this->args.size())),
        token(options.watch),
        watch_results(options.watch_results),
        handles(std::move(out)) {}

  BoundProgram* const program;  // one of the session's
  const std::vector<uint64_t> args;
  const std::vector<bool> kept;         // by argument: whether it must not be donated; empty: none
  const std::optional<uint64_t> token;  // of the watch of the whole run
  const std::optional<uint64_t> watch_results;  // of a watch that begins when the results exist
  CallHold hold;                                // of the program's islands, if it goes on in slices
  ResultHandles handles;
  Cluster::Done done;  // nullptr: nobody asks
  Cluster::Each each;

  // Handles and arguments are checked. If the check fails, the results hold the error if their
  // handles were asked for. From kConstants on nothing can be refused any more.
  enum class Stage : uint8_t {
    kHandles,
    kArguments,
    kConstants,
    kReshards,  // arguments that are not sharded as the program takes them
    kShared,    // which values may be taken over
    kSteps,
    kResults,
    kDonations,
    kValues,  // are dropped
    kOver
  };
  Stage stage = Stage::kHandles;
  size_t next = 0;       // of the stage's items
  bool checked = false;  // kConstants was reached
  struct Resharded {
    int32_t argument = 0;
    const Array* from = nullptr;  // in the session, which changes no array meanwhile
  };
  std::deque<Resharded> arguments;
  // Makes the current value: an argument, or the output of the next step, a transfer.
  std::unique_ptr<ValueRequest> making;
  size_t pieces = 0;                  // of the arguments so far
  std::unique_ptr<NewLaunch> launch;  // of the next step, a sequence
  std::deque<Array> errors;           // inputs of that step that have failed; their views are held
  std::deque<Array> values;           // of the plan, those that were made; their views are held
  std::vector<bool> ours;             // by value: whether the run may take its buffers over
  absl::btree_map<GroupId, size_t> holders;  // kShared: the first value with the group
  absl::btree_set<GroupId> returned;         // the groups of the results
  std::vector<uint64_t> donated;             // handles of the donated arguments
  uint64_t watch = 0;                        // open until all steps are made; 0: none
  absl::Status failed;                       // the error of results for which no node was made
  absl::Status
      refused;  // the check failed, or an argument could not be made; the results hold this

  // Values are numbered in the order in which steps name them.
  Array& ValueOf(int32_t value) {
    while (values.size() <= static_cast<size_t>(value)) values.emplace_back();
    return values[value];
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RECORDS_H_
