// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/newer_types.h"

#include <array>
#include <string_view>

#include "worker/compiler/mlir_bytecode.h"

namespace fairway {
namespace {

// mlir/IR/BuiltinDialectBytecode.td: each is but its number.
constexpr uint64_t kFirst = 22;
constexpr std::array<std::string_view, 11> kNames = {
    "f8E5M2", "f8E4M3",   "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ",
    "f8E3M4", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN",   "f8E8M0FNU"};

}  // namespace

std::string SpellNewerTypes(std::string program) {
  absl::StatusOr<mlir::Module> module = mlir::Module::Read(program);
  if (!module.ok()) return program;  // text, or the plugin says what is wrong with it
  const int builtin = module->Dialect("builtin");
  bool changed = false;
  for (mlir::Entry& type : module->types()) {
    if (type.dialect != builtin || !type.custom) continue;
    mlir::Cursor cursor(type.bytes);
    const uint64_t number = cursor.Number();
    if (!cursor.ok() || number < kFirst || number - kFirst >= kNames.size()) continue;
    type = {builtin, false, std::string(kNames[number - kFirst]) + '\0'};
    changed = true;
  }
  return changed ? module->Write(module->ir()) : program;
}

}  // namespace fairway
