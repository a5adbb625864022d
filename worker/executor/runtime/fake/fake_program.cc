// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/fake/fake_program.h"

#include <charconv>
#include <sstream>

#include <fmt/ranges.h>

namespace fairway {
namespace {

template <typename Int>
absl::StatusOr<std::vector<Int>> ParseInts(std::string_view text) {
  std::vector<Int> out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    Int value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      return InvalidArgument("not a list of integers: \"{}\"", text);
    }
    out.push_back(value);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return out;
}

// "f32[4,2]"
absl::StatusOr<FakeProgram::Value> ParseType(const std::string& text) {
  const size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']')
    return InvalidArgument("not a type: \"{}\"", text);
  FakeProgram::Value value;
  for (int32_t number = 1; number < 100 && value.dtype == DType::kInvalid; ++number) {
    const auto dtype = DTypeFromNumber(number);
    if (dtype.has_value() && Name(*dtype) == text.substr(0, open)) value.dtype = *dtype;
  }
  if (value.dtype == DType::kInvalid)
    return InvalidArgument("unknown element type in \"{}\"", text);
  FAIRWAY_ASSIGN_OR_RETURN(value.shape.dims, ParseInts<int64_t>(std::string_view(text).substr(
                                                 open + 1, text.size() - open - 2)));
  FAIRWAY_RETURN_IF_ERROR(ByteSize(value.dtype, value.shape).status());
  return value;
}

absl::StatusOr<FakeProgram::Value> ParseValue(std::istringstream& words) {
  std::string word;
  words >> word;
  FAIRWAY_ASSIGN_OR_RETURN(FakeProgram::Value value, ParseType(word));
  while (words >> word) {
    if (word == "donated") {
      value.donated = true;
    } else if (word == "tiles" && words >> word) {
      FAIRWAY_ASSIGN_OR_RETURN(value.tiles, ParseInts<int64_t>(word));
      if (value.tiles.size() != value.shape.dims.size()) {
        return InvalidArgument("{} tiles for {} dimensions", value.tiles.size(),
                               value.shape.dims.size());
      }
    } else {
      return InvalidArgument("unknown word \"{}\"", word);
    }
  }
  return value;
}

bool SameType(const FakeProgram::Value& a, const FakeProgram::Value& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

absl::Status CheckSignature(const FakeProgram& program) {
  if (program.op == "fail") return absl::OkStatus();
  if (program.op == "identity" || program.op == "block") {
    if (program.outputs.size() > program.inputs.size()) {
      return InvalidArgument("{} with more outputs than inputs", program.op);
    }
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      if (!SameType(program.inputs[i], program.outputs[i])) {
        return InvalidArgument("{}: output {} is unlike input {}", program.op, i, i);
      }
    }
    return absl::OkStatus();
  }
  if (program.op != "add" && program.op != "allreduce") {
    return InvalidArgument("unknown operation \"{}\"", program.op);
  }
  if (program.outputs.size() != 1 || program.inputs.empty() ||
      (program.op == "allreduce" && program.inputs.size() != 1)) {
    return InvalidArgument("{} with {} inputs and {} outputs", program.op, program.inputs.size(),
                           program.outputs.size());
  }
  for (const FakeProgram::Value& input : program.inputs) {
    if (!SameType(input, program.outputs[0]))
      return InvalidArgument("{}: types differ", program.op);
  }
  const DType dtype = program.outputs[0].dtype;
  if (dtype != DType::kF32 && dtype != DType::kS32) {
    return InvalidArgument("{} of {}: only f32 and s32", program.op, Name(dtype));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FakeProgram::ToText() const {
  std::string out = fmt::format("fake {}\n", op);
  if (!name.empty()) out += fmt::format("name {}\n", name);
  out += fmt::format("devices {}\n",
                     devices.empty() ? "any" : fmt::format("{}", fmt::join(devices, ",")));
  auto add = [&](const char* what, const Value& value) {
    out += fmt::format("{} {}", what, ToString(value.dtype, value.shape));
    if (!value.tiles.empty()) out += fmt::format(" tiles {}", fmt::join(value.tiles, ","));
    out += value.donated ? " donated\n" : "\n";
  };
  for (const Value& value : inputs) add("in", value);
  for (const Value& value : outputs) add("out", value);
  if (separable) out += "separable\n";
  if (brief) out += "brief\n";
  if (!error.ok()) out += fmt::format("error {} {}\n", static_cast<int>(error.code()), Text(error));
  return out;
}

absl::StatusOr<FakeProgram> FakeProgram::Parse(std::string_view text) {
  FakeProgram program;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    if (!(words >> key)) continue;
    if (key != "fake" && program.op.empty())
      return InvalidArgument("not a program of the fake runtime");
    if (key == "fake") {
      words >> program.op;
    } else if (key == "name") {
      words >> program.name;
    } else if (key == "devices") {
      std::string list;
      words >> list;
      if (list != "any") {
        FAIRWAY_ASSIGN_OR_RETURN(program.devices, ParseInts<int>(list));
      }
    } else if (key == "in" || key == "out") {
      auto value = ParseValue(words);
      if (!value.ok()) return Annotate(value.status(), line);
      (key == "in" ? program.inputs : program.outputs).push_back(*std::move(value));
    } else if (key == "separable") {
      program.separable = true;
    } else if (key == "brief") {
      program.brief = true;
    } else if (key == "error") {
      int code = 0;
      words >> code >> std::ws;
      std::string rest;
      std::getline(words, rest);
      program.error = absl::Status(static_cast<absl::StatusCode>(code), rest);
    } else {
      return InvalidArgument("unknown line \"{}\"", line);
    }
  }
  if (program.op.empty()) return InvalidArgument("not a program of the fake runtime");
  if (program.name.empty()) program.name = program.op;
  if (program.op == "fail" && program.error.ok())
    program.error = absl::InternalError("told to fail");
  FAIRWAY_RETURN_IF_ERROR(CheckSignature(program));
  return program;
}

}  // namespace fairway
