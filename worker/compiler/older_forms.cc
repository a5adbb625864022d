// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/older_forms.h"

#include <array>
#include <string_view>

#include "worker/compiler/mlir_bytecode.h"

namespace fairway {
namespace {

// mlir/IR/BuiltinDialectBytecode.td: each of these is only its number.
constexpr uint64_t kFirst = 22;
constexpr std::array<std::string_view, 11> kNames = {
    "f8E5M2", "f8E4M3",   "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ",
    "f8E3M4", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN",   "f8E8M0FNU"};

bool NameTypes(mlir::Module& module) {
  const int builtin = module.Dialect("builtin");
  bool changed = false;
  for (mlir::Entry& type : module.types()) {
    if (type.dialect != builtin || !type.custom) continue;
    mlir::Cursor cursor(type.bytes);
    const uint64_t number = cursor.Number();
    if (!cursor.ok() || number < kFirst || number - kFirst >= kNames.size()) continue;
    type = {builtin, false, std::string(kNames[number - kFirst]) + '\0'};
    changed = true;
  }
  return changed;
}

bool RenameOperations(mlir::Module& module) {
  const int vhlo = module.Dialect("vhlo");
  bool changed = false;
  for (uint64_t i = 0; i < module.num_operations(); ++i) {
    const mlir::OpName name = module.Name(i);
    if (name.dialect != vhlo || name.name != "composite_v2") continue;
    module.RenameOperation(i, "composite_v1");
    changed = true;
  }
  return changed;
}

}  // namespace

std::string InOlderForms(std::string program) {
  absl::StatusOr<mlir::Module> module = mlir::Module::Read(program);
  if (!module.ok()) return program;  // it is text, or the plugin will say what is wrong with it
  const bool types = NameTypes(*module), operations = RenameOperations(*module);
  return types || operations ? module->Write(module->ir()) : program;
}

}  // namespace fairway
