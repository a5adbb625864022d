// SPDX-License-Identifier: Apache-2.0
// Reads the shardings in the attributes of a program in MLIR bytecode, and makes the attributes of
// a call that is added to it. Knows how the dialects builtin, sdy and vhlo write these attributes;
// all others read as nothing.
#ifndef FAIRWAY_WORKER_COMPILER_PROGRAM_ATTRIBUTES_H_
#define FAIRWAY_WORKER_COMPILER_PROGRAM_ATTRIBUTES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/compiler/mlir_bytecode.h"

namespace fairway::mlir {

// The axes over which a value must still be summed. Not `known`: nothing in the program says so.
struct Axes {
  bool known = false;
  std::set<std::string> names;
  uint64_t sharding = kNoSharding;  // the attribute that says how the value is cut, if there is one
  bool operator==(const Axes&) const = default;

  static constexpr uint64_t kNoSharding = ~uint64_t{0};

  static Axes Whole() { return {true, {}}; }
};

// The declaration of a function's argument or result.
struct Declared {
  Axes axes = Axes::Whole();
  uint64_t sharding = 0;    // an attribute
  std::string memory_kind;  // empty: the default
};

struct Mesh {
  std::vector<std::pair<std::string, int64_t>> axes;  // major to minor, with their sizes
  std::vector<int64_t> devices;                       // places in the program; empty: 0, 1, 2, ...
};

// The numbers in a call of fairway_own_part (worker/ffi/kernels.h), by name.
using CallNumbers = std::map<std::string, int64_t>;

// Names attributes by their index. Not thread-safe.
class Attributes {
 public:
  // `module` must outlive this object.
  explicit Attributes(Module& module)
      : module_(module),
        builtin_(module.Dialect("builtin")),
        sdy_(module.Dialect("sdy")),
        vhlo_(module.Dialect("vhlo")) {}

  bool AnyUnreduced() const;

  // The text of a string, or of a symbol's name.
  std::string Text(uint64_t index) const;
  std::string VhloText(uint64_t index) const;

  // The names in a dictionary; nullopt: not a dictionary that is read here.
  std::optional<std::vector<std::string>> Keys(uint64_t index) const;

  // The axes of a sharding; for anything else: whole.
  Axes Unreduced(uint64_t index) const;
  // The axes of each sharding in a list.
  std::vector<Axes> UnreducedPerValue(uint64_t index) const;
  // For a list of dictionaries, one for each argument or result of a function.
  std::vector<Declared> UnreducedOfSignature(uint64_t index) const;

  std::optional<Mesh> MeshOf(uint64_t index) const;
  // The mesh of a sharding: the mesh itself, or its symbol.
  uint64_t MeshReference(uint64_t sharding) const;
  // The axes that cut each dimension, major to minor. nullopt: not a sharding, or it cuts by parts
  // of axes.
  std::optional<std::vector<std::vector<std::string>>> Cuts(uint64_t sharding) const;

  // The sizes of every mesh's axes.
  std::vector<std::vector<int64_t>> MeshSizes() const;

  // Returns `results`, the list that UnreducedOfSignature reads, with a replicated sharding for
  // those results in `ranks` (by index, with the rank of the value) that have none. nullopt: not
  // such a list, or the program has no mesh to name.
  std::optional<uint64_t> Replicated(uint64_t results, const std::map<size_t, size_t>& ranks);

  // Adds the dictionary of a call of fairway_own_part to the module and returns its index. `vhlo`:
  // in that dialect, which has its own strings and numbers; else in stablehlo.
  uint64_t CallAttributes(uint64_t sharding, const CallNumbers& numbers, bool vhlo);

 private:
  // A cursor over the numbers of an attribute of that dialect; nullopt if it is of another.
  std::optional<Cursor> Read(uint64_t index, int dialect) const;
  uint64_t Add(int dialect, const std::vector<uint64_t>& numbers);
  uint64_t AddText(const std::string& text);
  uint64_t AddVhloText(std::string_view text);
  uint64_t VhloConfig(const CallNumbers& numbers);

  Module& module_;
  const int builtin_, sdy_, vhlo_;
  std::map<std::tuple<uint64_t, CallNumbers, bool>, uint64_t> calls_;
};

}  // namespace fairway::mlir

#endif  // FAIRWAY_WORKER_COMPILER_PROGRAM_ATTRIBUTES_H_
