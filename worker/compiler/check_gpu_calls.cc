// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/check_gpu_calls.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "worker/compiler/mlir_bytecode.h"
#include "worker/compiler/program_attributes.h"

namespace fairway {
namespace {

constexpr std::string_view kCall = "custom_call";
constexpr std::string_view kTarget = "call_target_name";
// The index of the target among the properties of vhlo.custom_call_v1, which are in the order of
// their names.
constexpr int kTargetProperty = 2;

// Targets that JAX writes and XLA's passes remove. A name that ends with a dot stands for all names
// that begin with it. AllocateBuffer is missing: its bytes would be those that others left in
// memory.
constexpr std::string_view kWritten[] = {
    "LayoutConstraint", "MoveToDevice", "MoveToHost", "SPMDFullToShardShape",
    "SPMDShardToFullShape", "Sharding", "TopK", "annotate_device_placement", "xla.sdy.",
    // Operations that StableHLO cannot express.
    "chlo.", "stablehlo.", "mhlo.acos", "mhlo.acosh", "mhlo.asin", "mhlo.asinh", "mhlo.atanh",
    "mhlo.cosh", "mhlo.erf", "mhlo.ragged_dot", "mhlo.sinh", "mhlo.tan", "mhlo.topk"};

// Nobody is at the other end, so a device would wait for ever.
constexpr std::string_view kWaiting[] = {"infeed", "outfeed", "recv", "send"};

// Targets that XLA makes from operations. A name that ends with "$" stands for all that begin with
// it.
constexpr std::string_view kMade[] = {"AllocateBuffer",
                                      "TopK",
                                      "__cublas$",
                                      "__cub$",
                                      "__cudnn$",
                                      "__gpu$TopK",
                                      "xla.gpu.ext.cub_scan",
                                      "xla.gpu.ext.cub_sort_keys",
                                      "xla.gpu.ext.cub_sort_pairs",
                                      "__cufft$",
                                      "__cusolver$",
                                      "Sharding",
                                      "SPMDFullToShardShape",
                                      "SPMDShardToFullShape",
                                      "annotate_device_placement"};

// Prefixes of names whose code is in Python modules of jaxlib.
constexpr std::string_view kInPython[] = {"cu_",      "cublas",   "cuhybrid_",
                                          "cusolver", "cusparse", "lapack_"};

// The dialects that JAX writes; mhlo appears only in attributes.
constexpr std::string_view kDialects[] = {"builtin", "func", "chlo", "sdy", "stablehlo", "vhlo"};
constexpr std::string_view kMhloAttributes[] = {"cross_program_prefetches",
                                                "frontend_attributes",
                                                "input_output_alias",
                                                "is_dynamic",
                                                "is_same_data_across_replicas",
                                                "layout_mode",
                                                "memory_kind",
                                                "num_partitions",
                                                "num_replicas",
                                                "original_value",
                                                "parameter_replication",
                                                "sharding",
                                                "spmd_output_sharding",
                                                "spmd_parameters_shardings",
                                                "use_auto_spmd_partitioning",
                                                "xla_entry_computation_parameter_layouts",
                                                "xla_entry_computation_result_layout"};

template <size_t N>
bool IsListed(std::string_view name, const std::string_view (&list)[N]) {
  return std::ranges::any_of(list, [&](std::string_view listed) {
    const bool prefix = listed.back() == '.' || listed.back() == '$';
    return prefix ? name.starts_with(listed) && name.size() > listed.size() : name == listed;
  });
}

absl::Status NotServed(std::string_view target) {
  std::string_view way_out =
      "this worker runs no code that a client brings (--allow-raw-kernels of the worker permits "
      "it, if all its clients are trusted)";
  if (std::ranges::any_of(kInPython, [&](auto prefix) { return target.starts_with(prefix); })) {
    way_out =
        "its code is in Python modules of jaxlib, which a worker does not have. Compute it on the "
        "client's CPU: jax.device_put(x, jax.devices(\"cpu\")[0])";
  } else if (target.find("python") != std::string_view::npos) {
    way_out =
        "functions of the client (jax.debug.print, pure_callback, io_callback) are not "
        "called from GPUs yet";
  }
  return Error(absl::StatusCode::kUnimplemented, "custom call \"{}\" is not served on GPUs: {}",
               target, way_out);
}

absl::Status CheckTarget(std::string_view target) {
  if (IsListed(target, kWritten)) return absl::OkStatus();
  return NotServed(target);
}

// Returns "send" for the operation "send_v2".
std::string_view WithoutVersion(std::string_view name) { return name.substr(0, name.find("_v")); }

absl::Status NobodyThere(std::string_view operation) {
  return Error(absl::StatusCode::kUnimplemented,
               "{} is not served on GPUs: nobody is at the other end, and the device would wait "
               "for ever",
               operation);
}

absl::Status Hidden(std::string_view why) {
  return Error(absl::StatusCode::kUnimplemented,
               "a custom call whose target cannot be told: {}. On GPUs it is checked before the "
               "program is compiled: serialize the program as a portable artifact (as JAX does), "
               "or write stablehlo.custom_call @NAME(...)",
               why);
}

absl::Status CheckOperation(const mlir::Module& module, const mlir::Attributes& attributes,
                            const mlir::WrittenOperation& op) {
  if (!IsListed(op.dialect, kDialects)) {
    return Error(absl::StatusCode::kUnimplemented,
                 "operation {}.{} is not served on GPUs: programs are StableHLO there", op.dialect,
                 op.name);
  }
  const std::string_view plain = WithoutVersion(op.name);
  if (std::ranges::find(kWaiting, plain) != std::end(kWaiting)) return NobodyThere(plain);
  if (op.name.find(kCall) == std::string_view::npos) return absl::OkStatus();
  if (op.dialect != "vhlo" || op.name != "custom_call_v1") {
    return Hidden(fmt::format("the operation is {}.{}", op.dialect, op.name));
  }
  // Attributes beside the properties could contradict them.
  if (op.attributes != mlir::WrittenOperation::kNone) {
    const auto keys = attributes.Keys(op.attributes);
    if (!keys || std::ranges::find(*keys, kTarget) != keys->end()) {
      return Hidden("its attributes are unreadable, or name a target beside the operation's own");
    }
  }
  mlir::Cursor cursor(module.Properties(op.properties));
  uint64_t target = 0;
  for (int i = 0; i <= kTargetProperty; ++i) target = cursor.Number();
  const std::string name = cursor.ok() ? attributes.VhloText(target) : std::string();
  return name.empty() ? Hidden("its properties are unreadable") : CheckTarget(name);
}

// A text may write `_` as `\5f`.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size() && std::isxdigit(text[i + 1]) &&
        std::isxdigit(text[i + 2])) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool InName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.';
}

std::string_view NameAt(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && InName(text[end])) ++end;
  return text.substr(at, end - at);
}

// Does not parse the text: wherever a call could be, it must have the one form that is understood.
// Comments and names count as well; a program that is refused because of them can be written
// otherwise.
absl::Status CheckText(std::string_view program) {
  const std::string text = Unescaped(program);
  if (text.find(kTarget) != std::string::npos) return Hidden("it is an attribute");
  constexpr std::string_view kPlain = "stablehlo.custom_call";
  for (size_t at = text.find(kCall); at != std::string::npos; at = text.find(kCall, at + 1)) {
    const size_t begin = at - std::min(at, kPlain.size() - kCall.size());
    size_t next = at + kCall.size();
    const bool alone =
        begin == 0 || text[begin - 1] == ' ' || text[begin - 1] == '\n' || text[begin - 1] == '\t';
    if (!alone || std::string_view(text).substr(begin, kPlain.size()) != kPlain ||
        text.compare(next, 2, " @") != 0) {
      return Hidden("it is not in the plain form");
    }
    next += 2;
    const bool quoted = next < text.size() && text[next] == '"';
    if (quoted) ++next;
    const size_t end = quoted ? text.find('"', next) : next + NameAt(text, next).size();
    if (end == std::string::npos || end == next) return Hidden("it has no name");
    FAIRWAY_RETURN_IF_ERROR(CheckTarget(std::string_view(text).substr(next, end - next)));
  }
  constexpr std::string_view kDialectEnd = "hlo.";
  for (size_t at = text.find(kDialectEnd); at != std::string::npos;
       at = text.find(kDialectEnd, at + 1)) {
    const std::string_view name = WithoutVersion(NameAt(text, at + kDialectEnd.size()));
    if (std::ranges::find(kWaiting, name) != std::end(kWaiting)) return NobodyThere(name);
  }
  constexpr std::string_view kMhlo = "mhlo.";
  for (size_t at = text.find(kMhlo); at != std::string::npos; at = text.find(kMhlo, at + 1)) {
    const std::string_view name = NameAt(text, at + kMhlo.size());
    const bool call = at > 0 && (text[at - 1] == '@' || text.compare(at - 1, 1, "\"") == 0) &&
                      text.rfind(kPlain, at) != std::string::npos &&
                      at - text.rfind(kPlain, at) <= kPlain.size() + 3;  // checked above
    if (call || IsListed(name, kMhloAttributes)) continue;
    return Error(absl::StatusCode::kUnimplemented,
                 "mhlo.{} is not served on GPUs: programs are StableHLO there", name);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGpuProgram(std::string_view program) {
  if (!program.starts_with("ML\xefR")) return CheckText(program);
  FAIRWAY_ASSIGN_OR_RETURN(mlir::Module module, mlir::Module::Read(program));
  const mlir::Attributes attributes(module);
  return mlir::ForEachOperation(module, [&](const mlir::WrittenOperation& op) {
    return CheckOperation(module, attributes, op);
  });
}

absl::Status CheckGpuCode(const hlo::HloModule& module) {
  for (const hlo::HloComputation& computation : module.computations()) {
    for (const hlo::HloInstruction& instruction : computation.instructions()) {
      if (instruction.opcode() == "infeed" || instruction.opcode() == "outfeed") {
        return NobodyThere(instruction.opcode());
      }
      if (instruction.opcode() != "custom-call") continue;
      if (!IsListed(instruction.custom_call_target(), kMade)) {
        return NotServed(instruction.custom_call_target());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace fairway
