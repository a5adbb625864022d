// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/metadata.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/dtype.h"

namespace fairway {
namespace {

constexpr int kTupleElement = 13;                      // xla.PrimitiveType
constexpr int kTupleSharding = 2, kTiledSharding = 3;  // xla.OpSharding.Type
constexpr int64_t kHostMemorySpace = 5;                // xla::Layout::kHostMemorySpace

// Only the configuration's shape has the layouts and memory spaces that hold at the program's
// border. The others stand in if it is missing.
const hlo::ProgramShape& EntryShape(const hlo::HloModuleWithConfig& program) {
  const hlo::HloModule& module = program.hlo_module();
  if (program.config().entry_computation_layout().has_result()) {
    return program.config().entry_computation_layout();
  }
  for (const hlo::HloComputation& computation : module.computations()) {
    if (computation.id() == module.entry_computation_id() && computation.has_program_shape()) {
      return computation.program_shape();
    }
  }
  return module.host_program_shape();
}

std::vector<const hlo::Shape*> Leaves(const hlo::Shape& shape) {
  std::vector<const hlo::Shape*> leaves;
  if (shape.element_type() != kTupleElement) return {&shape};
  for (const hlo::Shape& part : shape.tuple_shapes()) leaves.push_back(&part);
  return leaves;
}

// Returns the sharding of each of `count` values from one that may be a tuple of shardings.
absl::StatusOr<std::vector<std::string>> SplitSharding(const std::string& bytes, int count) {
  hlo::OpSharding sharding;
  if (!sharding.ParseFromString(bytes)) {
    return Error(absl::StatusCode::kInternal, "unreadable sharding in the optimized program");
  }
  // XLA gives the empty tuple one sharding, a leaf.
  if (count == 0) return std::vector<std::string>();
  if (sharding.type() != kTupleSharding) return std::vector<std::string>(count, bytes);
  if (sharding.tuple_shardings_size() != count) {
    return Error(absl::StatusCode::kInternal, "{} shardings for {} values",
                 sharding.tuple_shardings_size(), count);
  }
  std::vector<std::string> parts;
  for (const hlo::OpSharding& part : sharding.tuple_shardings())
    parts.push_back(part.SerializeAsString());
  return parts;
}

// Returns the pieces per dimension; all 1 if it is not tiled.
absl::StatusOr<std::vector<int64_t>> Tiles(const std::string& bytes, int rank) {
  std::vector<int64_t> tiles(rank, 1);
  hlo::OpSharding sharding;
  if (!sharding.ParseFromString(bytes)) {
    return Error(absl::StatusCode::kInternal, "unreadable sharding in the optimized program");
  }
  if (sharding.type() != kTiledSharding) return tiles;
  if (sharding.tile_assignment_dimensions_size() < rank) {
    return Error(absl::StatusCode::kInternal, "a sharding of rank {} for a value of rank {}",
                 sharding.tile_assignment_dimensions_size(), rank);
  }
  for (int i = 0; i < rank; ++i) tiles[i] = sharding.tile_assignment_dimensions(i);
  return tiles;
}

absl::Status Describe(const hlo::Shape& shape, const std::string& sharding, v1::ValueSpec& spec) {
  const std::optional<DType> dtype = DTypeFromPrimitiveType(shape.element_type());
  if (!dtype.has_value()) {
    return Error(absl::StatusCode::kUnimplemented, "a value of XLA's element type {}",
                 shape.element_type());
  }
  if (shape.layout().tiles_size() > 0) {
    return Error(absl::StatusCode::kUnimplemented,
                 "a layout with tiles is not served, only the order of dimensions is");
  }
  spec.set_dtype(static_cast<int32_t>(*dtype));
  // JAX has an empty array of bools for it; the plugin takes a token
  if (*dtype == DType::kToken) {
    spec.set_dtype(static_cast<int32_t>(DType::kPred));
    spec.set_token(true);
    spec.add_shard_dims(0);
    spec.add_global_dims(0);
    spec.set_op_sharding(sharding);
    return absl::OkStatus();
  }
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<int64_t> tiles, Tiles(sharding, shape.dimensions_size()));
  for (int i = 0; i < shape.dimensions_size(); ++i) {
    int64_t global = 0;
    if (__builtin_mul_overflow(shape.dimensions(i), tiles[i], &global)) {
      return Error(absl::StatusCode::kInternal, "{} tiles of an extent of {}", tiles[i],
                   shape.dimensions(i));
    }
    spec.add_shard_dims(shape.dimensions(i));
    spec.add_global_dims(global);
  }
  spec.set_op_sharding(sharding);
  *spec.mutable_minor_to_major() = shape.layout().minor_to_major();
  if (shape.layout().memory_space() == kHostMemorySpace) spec.set_memory_kind("pinned_host");
  return absl::OkStatus();
}

absl::Status MarkDonated(const hlo::HloModule& module, bool tupled,
                         v1::ExecutableMetadata& metadata) {
  auto mark = [&](int64_t parameter, const auto& index) {
    if (tupled) parameter = index.empty() ? -1 : index[0];
    if (parameter < 0 || parameter >= metadata.parameters_size()) {
      return Error(absl::StatusCode::kInternal, "parameter {} of {} is donated", parameter,
                   metadata.parameters_size());
    }
    metadata.mutable_parameters(static_cast<int>(parameter))->set_donated(true);
    return absl::OkStatus();
  };
  for (const auto& entry : module.input_output_alias().entries()) {
    FAIRWAY_RETURN_IF_ERROR(mark(entry.parameter_number(), entry.parameter_shape_index()));
  }
  // Entries left in buffer_donor() found no output: the plugin does not take those arguments.
  return absl::OkStatus();
}

// Instructions that one device runs by itself. Custom calls are those of worker/ffi and the
// plugin's own library calls, which know no other device.
constexpr std::string_view kLocal[] = {"abs",
                                       "add",
                                       "add-dependency",
                                       "after-all",
                                       "and",
                                       "atan2",
                                       "bitcast",
                                       "bitcast-convert",
                                       "broadcast",
                                       "call",
                                       "cbrt",
                                       "ceil",
                                       "cholesky",
                                       "clamp",
                                       "compare",
                                       "complex",
                                       "concatenate",
                                       "conditional",
                                       "constant",
                                       "convert",
                                       "convolution",
                                       "copy",
                                       "cosine",
                                       "count-leading-zeros",
                                       "custom-call",
                                       "divide",
                                       "dot",
                                       "dynamic-slice",
                                       "dynamic-update-slice",
                                       "erf",
                                       "exponential",
                                       "exponential-minus-one",
                                       "fft",
                                       "floor",
                                       "fusion",
                                       "gather",
                                       "get-dimension-size",
                                       "get-tuple-element",
                                       "imag",
                                       "iota",
                                       "is-finite",
                                       "log",
                                       "log-plus-one",
                                       "logistic",
                                       "map",
                                       "maximum",
                                       "minimum",
                                       "multiply",
                                       "negate",
                                       "not",
                                       "opt-barrier",
                                       "or",
                                       "pad",
                                       "parameter",
                                       "partition-id",
                                       "popcnt",
                                       "power",
                                       "real",
                                       "reduce",
                                       "reduce-precision",
                                       "reduce-window",
                                       "remainder",
                                       "replica-id",
                                       "reshape",
                                       "reverse",
                                       "rng",
                                       "rng-bit-generator",
                                       "rng-get-and-update-state",
                                       "round-nearest-afz",
                                       "round-nearest-even",
                                       "rsqrt",
                                       "scatter",
                                       "select",
                                       "select-and-scatter",
                                       "set-dimension-size",
                                       "shift-left",
                                       "shift-right-arithmetic",
                                       "shift-right-logical",
                                       "sign",
                                       "sine",
                                       "slice",
                                       "sort",
                                       "sqrt",
                                       "stochastic-convert",
                                       "subtract",
                                       "tan",
                                       "tanh",
                                       "topk",
                                       "transpose",
                                       "triangular-solve",
                                       "tuple",
                                       "while",
                                       "xor"};

// Local instructions whose work follows neither from the numbers of elements that they read and
// make, nor from the flops.
constexpr std::string_view kUncounted[] = {
    "cholesky",           "conditional", "convolution", "custom-call",       "fft",
    "reduce-window",      "rng",         "scatter",     "rng-bit-generator", "map",
    "select-and-scatter", "sort",        "topk",        "triangular-solve",  "while"};

constexpr std::string_view kCollective[] = {"all-gather", "all-reduce", "all-to-all",
                                            "collective-permute", "reduce-scatter"};

// XLA's CPU client runs a program on the caller's thread if it has less
// (xla/pjrt/cpu/cpu_client.cc). With more thunks than that it may give some to a pool that all
// programs share, and wait for them (xla/backends/cpu/runtime/thunk_executor.cc).
constexpr double kInlineFlops = 1000;
constexpr int kInlineThunks = 8;
constexpr int64_t kBriefElements = 4096;

bool MakesNoThunk(std::string_view opcode) {
  return opcode == "parameter" || opcode == "constant" || opcode == "tuple" ||
         opcode == "get-tuple-element" || opcode == "bitcast";
}

// Returns whether each computation that runs as thunks, one per instruction, has at most
// kInlineThunks. Computations that are called other than by `call` are within one thunk.
bool FewThunks(const hlo::HloModule& module) {
  std::set<int64_t> within;
  for (const hlo::HloComputation& computation : module.computations()) {
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      const auto& called = instruction.called_computation_ids();
      if (instruction.opcode() != "call") within.insert(called.begin(), called.end());
    }
  }
  return std::ranges::all_of(module.computations(), [&](const hlo::HloComputation& computation) {
    return within.contains(computation.id()) ||
           std::ranges::count_if(computation.instructions(), [](const hlo::HloInstruction& one) {
             return !MakesNoThunk(one.opcode());
           }) <= kInlineThunks;
  });
}

int64_t Elements(const hlo::Shape& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape.dimensions()) {
    if (__builtin_mul_overflow(elements, extent, &elements)) return kBriefElements;
  }
  for (const hlo::Shape& part : shape.tuple_shapes())
    elements = std::min(kBriefElements, elements + Elements(part));
  return std::min(elements, kBriefElements);
}

bool IsLocal(const hlo::HloInstruction& instruction) {
  return std::binary_search(std::begin(kLocal), std::end(kLocal), instruction.opcode());
}

template <size_t kCount>
bool Contains(const std::string_view (&opcodes)[kCount], std::string_view opcode) {
  return std::find(std::begin(opcodes), std::end(opcodes), opcode) != std::end(opcodes);
}

// Counts the elements that all instructions of an execution make, up to kBriefElements; those
// within a fusion or a reduction count as often as they run. nullopt: an instruction is not counted
// so.
std::optional<int64_t> ElementsMade(const hlo::HloModule& module) {
  // by computation; called computations come before their callers
  std::map<int64_t, int64_t> made;
  std::map<int64_t, int64_t> elements;  // by instruction
  for (const hlo::HloComputation& computation : module.computations()) {
    int64_t total = 0;
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      const std::string& opcode = instruction.opcode();
      if (Contains(kUncounted, opcode)) return std::nullopt;
      const int64_t own = Elements(instruction.shape());
      elements[instruction.id()] = own;
      int64_t runs = 1;
      if (opcode != "fusion" && opcode != "call") {
        for (const int64_t operand : instruction.operand_ids()) runs += elements[operand];
      }
      total += own;
      for (const int64_t called : instruction.called_computation_ids()) {
        const auto callee = made.find(called);
        if (callee == made.end()) return std::nullopt;
        total += runs * callee->second;
      }
      total = std::min(total, kBriefElements);
    }
    made[computation.id()] = total;
  }
  const auto entry = made.find(module.entry_computation_id());
  if (entry == made.end()) return std::nullopt;
  return entry->second;
}

}  // namespace

bool Separable(const hlo::HloModule& module) {
  for (const hlo::HloComputation& computation : module.computations()) {
    if (!std::ranges::all_of(computation.instructions(), IsLocal)) return false;
  }
  return true;
}

bool Brief(const hlo::HloModule& module, double flops) {
  return flops < kInlineFlops && FewThunks(module) && Separable(module) &&
         ElementsMade(module).value_or(kBriefElements) < kBriefElements;
}

bool MeetsBriefly(const hlo::HloModule& module, double flops) {
  bool meets = false;
  for (const hlo::HloComputation& computation : module.computations()) {
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      const bool collective = Contains(kCollective, instruction.opcode());
      if (!collective && !IsLocal(instruction)) return false;
      meets = meets || collective;
    }
  }
  return meets && flops < kInlineFlops && FewThunks(module) &&
         ElementsMade(module).value_or(kBriefElements) < kBriefElements;
}

namespace {

bool HasCustomCall(const hlo::HloModule& module, std::string_view target) {
  for (const hlo::HloComputation& computation : module.computations()) {
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      if (instruction.custom_call_target() == target) return true;
    }
  }
  return false;
}

}  // namespace

bool NamesDevices(const hlo::HloModule& module) {
  return HasCustomCall(module, "fairway_own_part");
}

bool CallsBack(const hlo::HloModule& module) {
  return HasCustomCall(module, "fairway_callback") ||
         HasCustomCall(module, "xla_ffi_python_cpu_callback");
}

absl::Status DescribeSignature(const hlo::HloModuleWithConfig& program, bool tupled_arguments,
                               v1::ExecutableMetadata& metadata) {
  const hlo::HloModule& module = program.hlo_module();
  metadata.set_name(module.name());
  const hlo::ProgramShape& shape = EntryShape(program);
  const bool tupled = tupled_arguments && shape.parameters_size() == 1 &&
                      shape.parameters(0).element_type() == kTupleElement;
  std::vector<const hlo::Shape*> parameters;
  std::vector<std::string> shardings(module.spmd_parameters_shardings().begin(),
                                     module.spmd_parameters_shardings().end());
  if (tupled) {
    parameters = Leaves(shape.parameters(0));
    if (shardings.size() == 1) {
      FAIRWAY_ASSIGN_OR_RETURN(shardings,
                               SplitSharding(shardings[0], static_cast<int>(parameters.size())));
    }
  } else {
    for (const hlo::Shape& parameter : shape.parameters()) parameters.push_back(&parameter);
  }
  if (shardings.empty()) shardings.resize(parameters.size());
  if (shardings.size() != parameters.size()) {
    return Error(absl::StatusCode::kInternal, "{} shardings for {} parameters", shardings.size(),
                 parameters.size());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(
        Annotate(Describe(*parameters[i], shardings[i], *metadata.add_parameters()),
                 fmt::format("parameter {}", i)));
  }
  const std::vector<const hlo::Shape*> outputs = Leaves(shape.result());
  FAIRWAY_ASSIGN_OR_RETURN(
      shardings, SplitSharding(module.spmd_output_sharding(), static_cast<int>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(Annotate(Describe(*outputs[i], shardings[i], *metadata.add_outputs()),
                                     fmt::format("output {}", i)));
  }
  return MarkDonated(module, tupled, metadata);
}

}  // namespace fairway
