// SPDX-License-Identifier: Apache-2.0
// Compiled code and programs as the core knows them, and the options and results of their runs.
// Plain values: any thread may hold them.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLE_SPEC_H_
#define FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLE_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/shared_vector.h"
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

// Compiled code as the core knows it. It is defined once, shared by sessions, and installed at
// executors when first needed.
struct ExecutableSpec {
  ExecutableId id;
  std::string name;
  IslandId island;                 // where it runs
  SharedVector<DeviceId> devices;  // in the order of the device assignment; of portable code: one
  std::vector<ValueType> parameters;
  std::vector<ValueType> outputs;
  int64_t temp_bytes = 0;  // peak temporary memory per device, besides arguments and results
  std::shared_ptr<const std::string> code;
  std::string checksum;
  std::optional<uint32_t> code_crc = std::nullopt;  // as InstallExecutable::code_crc
  // Set: a part of a program, whose steps run the executables listed next. `code` is it, encoded
  // (InstallSequence::bytes), or nullptr.
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
  // A node of a run is prepared once its inputs have ended; otherwise all are prepared at once.
  bool sequential = false;
};

// The arguments and results of a session's executable or program, as arrays of that session.
struct ExecutableSignature {
  std::string name;
  std::vector<ArraySpec> parameters;
  std::vector<bool> donated;  // of the parameters
  std::vector<ArraySpec> outputs;
};

// The type of each result of a call. Any thread may hold and call it.
using ResultTypes = std::function<const ArraySpec&(size_t result)>;

struct ExecuteOptions {
  std::vector<int32_t> non_donatable;  // arguments that must not be donated
  // Calls OnWatched with this token when the whole run has ended, with the error of its first
  // failed node. That may happen within the call. Nothing comes if the call is refused.
  std::optional<uint64_t> watch;
  // Of programs: watches the results, which exist only once all nodes of the run are made.
  std::optional<uint64_t> watch_results = std::nullopt;

  // Marks the arguments, of `arguments` in all, that must not be donated. Empty: all may be.
  std::vector<bool> Kept(size_t arguments) const {
    if (non_donatable.empty()) return {};
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
  NodeId node;                    // of a program: the first node that it makes
  std::vector<uint64_t> handles;  // of the outputs
  std::vector<ArraySpec> specs;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLE_SPEC_H_
