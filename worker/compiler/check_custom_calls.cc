// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/check_custom_calls.h"

#include <charconv>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "worker/ffi/custom_calls.h"

namespace fairway {
namespace {

constexpr int kTuple = 13;  // xla.PrimitiveType

ffi::Value ValueOf(const hlo::Shape& shape) {
  return {DTypeFromPrimitiveType(shape.element_type()).value_or(DType::kInvalid),
          {shape.dimensions().data(), static_cast<size_t>(shape.dimensions_size())},
          nullptr};
}

// Appends the parts of a tuple, also of nested ones; XLA passes each as a buffer of its own.
void AppendValues(const hlo::Shape& shape, std::vector<ffi::Value>& out) {
  if (shape.element_type() != kTuple) return out.push_back(ValueOf(shape));
  for (const hlo::Shape& part : shape.tuple_shapes()) AppendValues(part, out);
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Parses one "name = value : type".
void ParseAttribute(std::string_view text, std::map<std::string, int64_t, std::less<>>& out) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return;
  std::string_view name = Trim(text.substr(0, equals));
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
    name = name.substr(1, name.size() - 2);
  }
  std::string_view value = text.substr(equals + 1);
  value = Trim(value.substr(0, value.find(':')));
  int64_t number = 0;
  if (value == "true" || value == "false") {
    number = value == "true";
  } else {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) return;
  }
  out.emplace(name, number);
}

absl::Status CheckCall(const ffi::CustomCall& target, const hlo::HloInstruction& instruction,
                       const std::unordered_map<int64_t, const hlo::HloInstruction*>& by_id) {
  std::vector<ffi::Value> args, rets;
  for (int64_t id : instruction.operand_ids()) {
    const auto operand = by_id.find(id);
    if (operand == by_id.end()) {
      return Error(absl::StatusCode::kInternal, "{} has no operand {}", instruction.name(), id);
    }
    AppendValues(operand->second->shape(), args);
  }
  AppendValues(instruction.shape(), rets);
  const auto parsed = ParseAttributes(instruction.backend_config());
  std::vector<ffi::Attribute> attributes;
  for (const auto& [name, value] : parsed) attributes.push_back({name, value});
  return target.check({args, rets, attributes});
}

}  // namespace

std::map<std::string, int64_t, std::less<>> ParseAttributes(std::string_view text) {
  std::map<std::string, int64_t, std::less<>> out;
  text = Trim(text);
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return out;
  text = text.substr(1, text.size() - 2);
  int depth = 0;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[' || c == '<' || c == '(') {
      ++depth;
    } else if (c == '}' || c == ']' || c == '>' || c == ')') {
      --depth;
    } else if (c == ',' && depth == 0) {
      ParseAttribute(text.substr(begin, i - begin), out);
      begin = i + 1;
    }
  }
  ParseAttribute(text.substr(begin), out);
  return out;
}

absl::Status CheckCustomCalls(const hlo::HloModule& module) {
  for (const hlo::HloComputation& computation : module.computations()) {
    std::unordered_map<int64_t, const hlo::HloInstruction*> by_id;
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      by_id[instruction.id()] = &instruction;
    }
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      if (instruction.opcode() == "infeed" || instruction.opcode() == "outfeed") {
        return Error(absl::StatusCode::kUnimplemented,
                     "{} is not served: nobody is at the other end, and the device would wait for "
                     "ever",
                     instruction.opcode());
      }
      if (instruction.opcode() != "custom-call") continue;
      const std::string& name = instruction.custom_call_target();
      const ffi::CustomCall* target = ffi::FindCustomCall(name);
      if (target == nullptr) continue;
      FAIRWAY_RETURN_IF_ERROR(
          Annotate(CheckCall(*target, instruction, by_id), "custom call " + name));
    }
  }
  return absl::OkStatus();
}

}  // namespace fairway
