// SPDX-License-Identifier: Apache-2.0
// HloText of metadata.h.
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/ranges.h>

#include "core/dtype.h"
#include "worker/compiler/metadata.h"

namespace fairway {
namespace {

std::string ShapeText(const hlo::Shape& shape) {
  if (shape.tuple_shapes_size() > 0 || shape.element_type() == 13) {
    std::string out = "(";
    for (const hlo::Shape& part : shape.tuple_shapes()) {
      if (out.size() > 1) out += ", ";
      out += ShapeText(part);
    }
    return out + ")";
  }
  const DType dtype = DTypeFromPrimitiveType(shape.element_type()).value_or(DType::kInvalid);
  std::string out = fmt::format("{}[{}]", Name(dtype), fmt::join(shape.dimensions(), ","));
  if (shape.layout().minor_to_major_size() > 0) {
    out += fmt::format("{{{}}}", fmt::join(shape.layout().minor_to_major(), ","));
  }
  return out;
}

using Names = std::unordered_map<int64_t, std::string>;

std::string InstructionText(const hlo::HloInstruction& instruction, const Names& values,
                            const Names& computations) {
  auto name_of = [](const Names& names, int64_t id) {
    auto it = names.find(id);
    return it == names.end() ? fmt::format("#{}", id) : it->second;
  };
  std::string operands;
  if (instruction.opcode() == "parameter")
    operands = std::to_string(instruction.parameter_number());
  for (int64_t id : instruction.operand_ids()) {
    if (!operands.empty()) operands += ", ";
    operands += name_of(values, id);
  }
  std::string out = fmt::format("{} = {} {}({})", instruction.name(),
                                ShapeText(instruction.shape()), instruction.opcode(), operands);
  if (!instruction.fusion_kind().empty()) out += ", kind=" + instruction.fusion_kind();
  if (!instruction.custom_call_target().empty()) {
    out += fmt::format(", custom_call_target=\"{}\"", instruction.custom_call_target());
  }
  for (int64_t id : instruction.called_computation_ids())
    out += ", calls=" + name_of(computations, id);
  const auto& given = instruction.frontend_attributes().map();
  std::vector<std::string> attributes;
  for (const auto& [name, value] : std::map<std::string, std::string>(given.begin(), given.end()))
    attributes.push_back(fmt::format("{}=\"{}\"", name, value));
  if (!attributes.empty())
    out += fmt::format(", frontend_attributes={{{}}}", fmt::join(attributes, ","));
  if (!instruction.metadata().op_name().empty())
    out += fmt::format(", metadata={{op_name=\"{}\"}}", instruction.metadata().op_name());
  return out;
}

}  // namespace

std::string HloText(const hlo::HloModule& module, size_t limit) {
  Names computations;
  for (const auto& computation : module.computations())
    computations[computation.id()] = computation.name();
  std::string out = fmt::format("HloModule {}\n", module.name());
  for (const auto& computation : module.computations()) {
    Names values;
    for (const auto& instruction : computation.instructions())
      values[instruction.id()] = instruction.name();
    const bool entry = computation.id() == module.entry_computation_id();
    out += fmt::format("\n{}{} {{\n", entry ? "ENTRY " : "", computation.name());
    for (const auto& instruction : computation.instructions()) {
      out += fmt::format("  {}{}\n", instruction.id() == computation.root_id() ? "ROOT " : "",
                         InstructionText(instruction, values, computations));
      if (out.size() > limit) return out.substr(0, limit) + "\n... (cut)\n";
    }
    out += "}\n";
  }
  return out;
}

}  // namespace fairway
