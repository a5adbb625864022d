// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/check_packed_types.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/dtype.h"
#include "worker/ffi/custom_calls.h"

namespace fairway {
namespace {

constexpr std::string_view kPassesOn[] = {"parameter", "tuple", "get-tuple-element",
                                          "bitcast",   "copy",  "iota"};
constexpr std::string_view kCounts[] = {"iota", "bitcast"};

template <size_t n>
bool IsOneOf(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Returns the ids of the computations in which nothing but counting happens.
std::set<int64_t> Counting(const hlo::HloModule& module) {
  std::set<int64_t> out;
  for (const hlo::HloComputation& computation : module.computations()) {
    const auto& all = computation.instructions();
    if (std::all_of(all.begin(), all.end(),
                    [](const auto& one) { return IsOneOf(kCounts, one.opcode()); }))
      out.insert(computation.id());
  }
  return out;
}

// Returns the element type of less than 4 bits in `shape` or in a part of it; kInvalid if there is
// none.
DType SmallIn(const hlo::Shape& shape) {
  const DType dtype = DTypeFromPrimitiveType(shape.element_type()).value_or(DType::kInvalid);
  if (const int bits = PackedBits(dtype); bits > 0 && bits < 4) return dtype;
  for (const hlo::Shape& part : shape.tuple_shapes()) {
    if (const DType small = SmallIn(part); small != DType::kInvalid) return small;
  }
  return DType::kInvalid;
}

absl::Status CheckOne(const hlo::HloInstruction& instruction, DType small,
                      const std::set<int64_t>& counting) {
  if (small == DType::kInvalid) return absl::OkStatus();
  const auto& called = instruction.called_computation_ids();
  const bool counts =
      instruction.opcode() == "fusion" && !called.empty() &&
      std::all_of(called.begin(), called.end(), [&](int64_t id) { return counting.contains(id); });
  const bool passes_on =
      counts || IsOneOf(kPassesOn, instruction.opcode()) ||
      ffi::FindCustomCall(instruction.custom_call_target()) != nullptr;  // it has checks of its own
  if (passes_on && PackedBits(small) == 2) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented,
               "operation {} on {}: the worker's XLA computes wrong values of it, or writes beyond "
               "its memory. Arrays of {} can be put, moved and fetched; compute with a type of 4 "
               "bits or more",
               instruction.opcode(), Name(small), Name(small));
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

// Refuses conversions to f64. Conversions are fused within a computation, so their place in it does
// not matter.
absl::Status CheckWideConversions(const hlo::HloComputation& computation) {
  std::unordered_map<int64_t, DType> types;
  for (const hlo::HloInstruction& instruction : computation.instructions()) {
    types[instruction.id()] =
        DTypeFromPrimitiveType(instruction.shape().element_type()).value_or(DType::kInvalid);
  }
  DType narrow = DType::kInvalid;
  bool to_wide = false;
  for (const hlo::HloInstruction& instruction : computation.instructions()) {
    if (instruction.opcode() != "convert" || instruction.operand_ids().empty()) continue;
    const auto from = types.find(instruction.operand_ids(0));
    if (from == types.end()) continue;
    const DType to = types[instruction.id()];
    if (IsFloat(to) && (from->second == DType::kS4 || from->second == DType::kU4)) {
      narrow = from->second;
    }
    to_wide = to_wide || to == DType::kF64;
  }
  if (narrow == DType::kInvalid || !to_wide) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented,
               "conversion of {} to f64: the worker's XLA computes wrong values of it in some "
               "shapes. Convert to int32 before",
               Name(narrow));
}

}  // namespace

absl::Status CheckPackedTypes(const hlo::HloModule& module) {
  const std::set<int64_t> counting = Counting(module);
  for (const hlo::HloComputation& computation : module.computations()) {
    FAIRWAY_RETURN_IF_ERROR(CheckWideConversions(computation));
    std::unordered_map<int64_t, DType> by_id;
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      by_id[instruction.id()] = SmallIn(instruction.shape());
    }
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      FAIRWAY_RETURN_IF_ERROR(CheckOne(instruction, by_id[instruction.id()], counting));
      for (const int64_t id : instruction.operand_ids()) {
        const auto operand = by_id.find(id);
        if (operand == by_id.end()) continue;
        FAIRWAY_RETURN_IF_ERROR(CheckOne(instruction, operand->second, counting));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace fairway
