// SPDX-License-Identifier: Apache-2.0
// Compiled code and programs as the core knows them, and what a run of them is asked and answers.
// Plain values: any thread may have them.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLE_SPEC_H_
#define FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLE_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "core/sharding.h"
#include "graph/lowering.h"
#include "graph/plan.h"

namespace fairway {

// One argument or result of compiled code, without its devices.
struct ValueType {
  DType dtype = DType::kInvalid;
  Shape global;
  Shape shard;
  // Row-major tile of each device position and pieces per dimension, as in Sharding::Tiled; empty:
  // replicated.
  std::vector<int64_t> tiles;
  std::vector<int64_t> tile_of;
  std::string memory_kind;
  bool donated = false;     // arguments: the code takes the buffer over
  bool per_device = false;  // tile_of are the contents of Sharding::PerDevice
};

// Compiled code as the core knows it; defined once, shared by sessions, installed at executors when
// first needed.
struct ExecutableSpec {
  ExecutableId id;
  std::string name;
  IslandId island;                // where it runs
  std::vector<DeviceId> devices;  // in the order of the device assignment; portable code: one
  std::vector<ValueType> parameters;
  std::vector<ValueType> outputs;
  int64_t temp_bytes = 0;  // peak temporary memory per device, besides arguments and results
  std::shared_ptr<const std::string> code;
  std::string checksum;
  // Instead of code: a part of a program, and the executables that its steps run.
  std::shared_ptr<const Sequence> sequence;
  std::vector<ExecutableId> parts;
  int64_t max_steps = 1;      // launch ids that one launch takes
  bool after_inputs = false;  // its launches are prepared when their inputs have ended, not before
};

// A program lowered onto devices (graph/lowering.h).
struct ProgramSource {
  std::string name;
  ProgramPlan plan;
  std::vector<std::vector<int32_t>> slices;  // virtual devices, of one island each
  // Nothing of a run is prepared before what it takes has ended, instead of all at once.
  bool sequential = false;
};

// What a session's executable or program takes and makes, as arrays of that session.
struct ExecutableSignature {
  std::string name;
  std::vector<ArraySpec> parameters;
  std::vector<bool> donated;  // of the parameters
  std::vector<ArraySpec> outputs;
};

struct ExecuteOptions {
  std::vector<int32_t> non_donatable;  // arguments to leave alone
  // OnWatched with this token when all of it has ended, with the error of the first of it that
  // failed; it may come from inside the call. Nothing comes if the call is refused.
  std::optional<uint64_t> watch;
  // Of programs: the same as Watch of the results, which are not there before all of it is made.
  std::optional<uint64_t> watch_results = std::nullopt;

  // Which of so many arguments these are.
  std::vector<bool> Kept(size_t arguments) const {
    std::vector<bool> kept(arguments);
    for (const int32_t a : non_donatable) {
      if (a >= 0 && static_cast<size_t>(a) < arguments) kept[a] = true;
    }
    return kept;
  }
};

// What one call may take and make, and each launch that it is made of: the loops of the controller
// and of executors go through it in one go (docs/design/0058-bounded-turns.md).
inline constexpr size_t kMaxCallValues = size_t{1} << 16;
// RESOURCE_EXHAUSTED: `what` takes and makes more than that together.
absl::Status CheckCallValues(std::string_view what, size_t arguments, size_t results);

struct ExecuteResult {
  NodeId node;                    // of a program: the first one that it makes
  std::vector<uint64_t> handles;  // of the outputs
  std::vector<ArraySpec> specs;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLE_SPEC_H_
