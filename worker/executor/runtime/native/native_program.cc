// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/native/native_program.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/ranges.h>

namespace fairway {
namespace {

constexpr std::chrono::nanoseconds kLongestTime = std::chrono::hours(1);
constexpr int kMostValues = 100'000;
constexpr std::string_view kNames[] = {"add",        "scale",     "matmul",
                                       "all_reduce", "busy_wait", "sleep"};

std::optional<NativeKernel> KernelOf(std::string_view name) {
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<NativeKernel>(found - std::begin(kNames));
}

bool HasArithmetic(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kS32 ||
         dtype == DType::kS64;
}

// Returns the shard of an array of `dims` that is cut into `tiles` over `num_devices`.
absl::StatusOr<Shape> ShardOf(const Shape& global, const std::vector<int64_t>& tiles,
                              int num_devices) {
  if (tiles.empty()) return global;
  if (tiles.size() != global.dims.size()) {
    return InvalidArgument("{} tile counts for {} dimensions", tiles.size(), global.rank());
  }
  Shape shard;
  int64_t pieces = 1;
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i] < 1 || tiles[i] > num_devices || global.dims[i] % tiles[i] != 0) {
      return InvalidArgument("{} tiles do not divide dimension {} of [{}]", tiles[i], i,
                             fmt::join(global.dims, ","));
    }
    pieces *= tiles[i];
    if (pieces > num_devices) break;
    shard.dims.push_back(global.dims[i] / tiles[i]);
  }
  if (pieces != 1 && pieces != num_devices) {
    return InvalidArgument("tiles [{}] for {} devices: their product must be that number, or 1",
                           fmt::join(tiles, ","), num_devices);
  }
  return shard;
}

absl::StatusOr<NativeProgram::Value> ParameterType(const v1::NativeParameter& parameter,
                                                   int num_devices) {
  NativeProgram::Value value;
  const auto dtype = DTypeFromNumber(parameter.dtype());
  if (!dtype.has_value() || BitsInMemory(*dtype) == 0) {
    return InvalidArgument("{} is not an element type with bytes (xla.ifrt.DTypeProto.Kind)",
                           parameter.dtype());
  }
  value.dtype = *dtype;
  const Shape global{{parameter.global_dims().begin(), parameter.global_dims().end()}};
  FAIRWAY_RETURN_IF_ERROR(ByteSize(value.dtype, global).status());
  FAIRWAY_ASSIGN_OR_RETURN(
      value.shape,
      ShardOf(global, {parameter.tiles().begin(), parameter.tiles().end()}, num_devices));
  return value;
}

std::string TypeOf(const NativeProgram::Value& value) { return ToString(value.dtype, value.shape); }

absl::Status CheckArity(const NativeProgram::Step& step, size_t wanted) {
  if (step.operands.size() == wanted) return absl::OkStatus();
  return InvalidArgument("takes {} operands, got {}", wanted, step.operands.size());
}

// Returns the type of a matmul of these operands.
absl::StatusOr<NativeProgram::Value> Product(const NativeProgram::Value& a,
                                             const NativeProgram::Value& b) {
  const bool fits = a.dtype == b.dtype && (a.dtype == DType::kF32 || a.dtype == DType::kF64) &&
                    a.shape.rank() == 2 && b.shape.rank() == 2 &&
                    a.shape.dims[1] == b.shape.dims[0];
  if (!fits) {
    return InvalidArgument("takes [m,k] and [k,n] of f32 or f64, got {} and {}", TypeOf(a),
                           TypeOf(b));
  }
  NativeProgram::Value product{a.dtype, Shape{{a.shape.dims[0], b.shape.dims[1]}}};
  FAIRWAY_RETURN_IF_ERROR(ByteSize(product.dtype, product.shape).status());
  return product;
}

// Returns the type of the result of `step`. INVALID_ARGUMENT: its operands do not fit.
absl::StatusOr<NativeProgram::Value> ResultType(const NativeProgram& program,
                                                const NativeProgram::Step& step) {
  if (step.operands.empty()) return InvalidArgument("takes at least one operand");
  const NativeProgram::Value& first = program.values[step.operands[0]];
  switch (step.kernel) {
    case NativeKernel::kMatmul:
      FAIRWAY_RETURN_IF_ERROR(CheckArity(step, 2));
      return Product(first, program.values[step.operands[1]]);
    case NativeKernel::kBusyWait:
    case NativeKernel::kSleep:
      FAIRWAY_RETURN_IF_ERROR(CheckArity(step, 1));
      if (step.time < step.time.zero() || step.time > kLongestTime) {
        return InvalidArgument("for {} ns, not 0 to an hour", step.time.count());
      }
      return NativeProgram::Value{first.dtype, first.shape};
    case NativeKernel::kAdd:
      for (int operand : step.operands) {
        const NativeProgram::Value& other = program.values[operand];
        if (other.dtype == first.dtype && other.shape == first.shape) continue;
        return InvalidArgument("takes operands of one type, got {} and {}", TypeOf(first),
                               TypeOf(other));
      }
      break;
    case NativeKernel::kScale:
    case NativeKernel::kAllReduce:
      FAIRWAY_RETURN_IF_ERROR(CheckArity(step, 1));
      break;
  }
  if (!HasArithmetic(first.dtype)) {
    return InvalidArgument("computes with f32, f64, s32 and s64, got {}", TypeOf(first));
  }
  const bool whole = first.dtype == DType::kS32 || first.dtype == DType::kS64;
  constexpr double kLargestWhole = 1LL << 53;
  if (step.kernel == NativeKernel::kScale && whole &&
      !(std::abs(step.factor) <= kLargestWhole && std::trunc(step.factor) == step.factor)) {
    return InvalidArgument("by {}: {} takes a whole number up to 2^53", step.factor, TypeOf(first));
  }
  return NativeProgram::Value{first.dtype, first.shape};
}

absl::Status AddStep(const v1::NativeStep& proto, NativeProgram& program) {
  NativeProgram::Step step;
  const auto kernel = KernelOf(proto.kernel());
  if (!kernel.has_value()) return InvalidArgument("not one of {}", fmt::join(kNames, ", "));
  step.kernel = *kernel;
  step.factor = proto.factor();
  step.time = std::chrono::nanoseconds(proto.nanoseconds());
  for (uint32_t operand : proto.operands()) {
    if (operand >= program.values.size()) {
      return InvalidArgument("operand {} is not made before it; values 0 to {} are", operand,
                             static_cast<int64_t>(program.values.size()) - 1);
    }
    step.operands.push_back(static_cast<int>(operand));
  }
  FAIRWAY_ASSIGN_OR_RETURN(NativeProgram::Value value, ResultType(program, step));
  program.values.push_back(std::move(value));
  program.steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status AddResult(const v1::NativeResult& proto, NativeProgram& program) {
  if (proto.value() >= program.values.size()) {
    return InvalidArgument("value {} does not exist; 0 to {} do", proto.value(),
                           static_cast<int64_t>(program.values.size()) - 1);
  }
  NativeProgram::Result result;
  result.value = static_cast<int>(proto.value());
  result.tiles.assign(proto.tiles().begin(), proto.tiles().end());
  const NativeProgram::Value& value = program.values[result.value];
  Shape global = value.shape;
  if (!result.tiles.empty() && result.tiles.size() != global.dims.size()) {
    return InvalidArgument("{} tile counts for {}", result.tiles.size(), TypeOf(value));
  }
  for (size_t i = 0; i < result.tiles.size(); ++i) {
    if (result.tiles[i] < 1 || result.tiles[i] > program.num_devices) {
      return InvalidArgument("{} tiles in dimension {}", result.tiles[i], i);
    }
    if (__builtin_mul_overflow(global.dims[i], result.tiles[i], &global.dims[i])) {
      return InvalidArgument("dimension {} is too large", i);
    }
  }
  FAIRWAY_RETURN_IF_ERROR(ByteSize(value.dtype, global).status());
  FAIRWAY_RETURN_IF_ERROR(ShardOf(global, result.tiles, program.num_devices).status());
  program.results.push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status SetRepeat(uint32_t repeat, NativeProgram& program) {
  program.repeat = std::max<uint32_t>(repeat, 1);
  if (program.repeat == 1) return absl::OkStatus();
  const size_t results = program.results.size();
  if (results > static_cast<size_t>(program.num_parameters)) {
    return InvalidArgument("{} results of a repeated program of {} parameters", results,
                           program.num_parameters);
  }
  for (size_t i = 0; i < results; ++i) {
    const auto& made = program.values[program.results[i].value];
    const auto& taken = program.values[i];
    if (made.dtype == taken.dtype && made.shape == taken.shape) continue;
    return InvalidArgument("result {} is {}, parameter {}, which it becomes, is {}", i,
                           TypeOf(made), i, TypeOf(taken));
  }
  return absl::OkStatus();
}

void SetLastReaders(NativeProgram& program) {
  for (size_t s = 0; s < program.steps.size(); ++s) {
    for (int operand : program.steps[s].operands) {
      program.values[operand].last_reader = static_cast<int>(s);
    }
  }
  for (const NativeProgram::Result& result : program.results) {
    program.values[result.value].last_reader = -1;
  }
  // A value that the rounds do not replace is read in each of them.
  if (program.repeat == 1) return;
  for (int p = static_cast<int>(program.results.size()); p < program.num_parameters; ++p) {
    program.values[p].last_reader = -1;
  }
}

void SetDeclaredTime(NativeProgram& program) {
  int64_t round = 0;  // 100,000 steps of an hour fit
  for (const NativeProgram::Step& step : program.steps) {
    const bool waits =
        step.kernel == NativeKernel::kSleep || step.kernel == NativeKernel::kBusyWait;
    if (waits) round += step.time.count();
    program.all_reduces = program.all_reduces || step.kernel == NativeKernel::kAllReduce;
  }
  int64_t all = 0;
  const bool endless = __builtin_mul_overflow(round, int64_t{program.repeat}, &all);
  program.declared_time = endless
                              ? NativeProgram::kLongestRun
                              : std::min(std::chrono::nanoseconds(all), NativeProgram::kLongestRun);
}

}  // namespace

std::string_view Name(NativeKernel kernel) { return kNames[static_cast<size_t>(kernel)]; }

absl::StatusOr<NativeProgram> NativeProgram::Make(const v1::NativeProgram& proto, int num_devices) {
  NativeProgram program;
  program.name = proto.name().empty() ? "native" : proto.name();
  program.num_devices = num_devices;
  program.num_parameters = proto.parameters_size();
  const auto where = [&](std::string_view what, int i) {
    return fmt::format("native program '{}', {} {}", program.name, what, i);
  };
  if (proto.parameters_size() + proto.steps_size() > kMostValues ||
      proto.results_size() > kMostValues) {
    return InvalidArgument("native program '{}' has more than {} values", program.name,
                           kMostValues);
  }
  for (int i = 0; i < proto.parameters_size(); ++i) {
    auto type = ParameterType(proto.parameters(i), num_devices);
    if (!type.ok()) return Annotate(type.status(), where("parameter", i));
    program.values.push_back(*std::move(type));
    program.donated.push_back(proto.parameters(i).donated());
    program.tiles.emplace_back(proto.parameters(i).tiles().begin(),
                               proto.parameters(i).tiles().end());
  }
  for (int i = 0; i < proto.steps_size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(
        Annotate(AddStep(proto.steps(i), program),
                 fmt::format("{} ({})", where("step", i), proto.steps(i).kernel())));
  }
  for (int i = 0; i < proto.results_size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(Annotate(AddResult(proto.results(i), program), where("result", i)));
  }
  FAIRWAY_RETURN_IF_ERROR(Annotate(SetRepeat(proto.repeat(), program),
                                   fmt::format("native program '{}', repeated", program.name)));
  SetLastReaders(program);
  SetDeclaredTime(program);
  return program;
}

}  // namespace fairway
