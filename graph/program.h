// SPDX-License-Identifier: Apache-2.0
// Programs: placement-free dataflow graphs, one node per sharded computation or transfer, never one
// per shard (Pathways, MLSys 2022, section 4.2; docs/design/0040-programs.md). Pure values.
//
// A program is written over slices; binding it gives them devices. Its size does not grow with the
// number of shards.
#ifndef FAIRWAY_GRAPH_PROGRAM_H_
#define FAIRWAY_GRAPH_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/shared_vector.h"
#include "base/status.h"
#include "core/sharding.h"

namespace fairway {

// Output `output` of node `node` of the same graph.
struct ValueRef {
  int32_t node = -1;
  int32_t output = 0;
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

// The type of a value: its slice, dtype, global shape and sharding. The sharding's devices are
// positions in the slice: 0 to n-1, all of them in order.
struct SliceSpec {
  int32_t slice = 0;
  ArraySpec array;
  friend bool operator==(const SliceSpec&, const SliceSpec&) = default;
};

struct ProgramSlice {
  std::string name;
  int32_t devices = 0;
};

// Code that nodes run, stored once for all nodes. The program relies on its types; binding compares
// them with those of the compiler.
struct Computation {
  enum class Format : uint8_t { kStableHlo, kNative };
  std::string name;
  Format format = Format::kStableHlo;
  std::shared_ptr<const std::string> code;  // portable artifact, or v1.NativeProgram
  bool shardy = false;                      // StableHLO: its shardings are Shardy's
  std::vector<ArraySpec> parameters;        // over positions 0 to n-1, the same n for all
  std::vector<ArraySpec> results;
};

// An argument of the program or of a body: the caller passes its value.
struct ArgumentNode {
  SliceSpec type;
  bool donated = false;  // main graph: the program takes its buffers over
};
// A constant, which is put on its devices when the program is bound.
struct ConstantNode {
  SliceSpec type;
  std::shared_ptr<const std::string> bytes;  // of the whole array, dense, major to minor
};
// Runs a computation. Inputs that lie elsewhere or are cut in another way are resharded.
struct ComputeNode {
  int32_t computation = 0;
  int32_t slice = 0;
  std::vector<ValueRef> inputs;
};
// Moves its input to another slice, or cuts it in another way.
struct TransferNode {
  ValueRef input;
  SliceSpec type;  // dtype and shape as the input's
};
// Starts with values = inputs; `count` times: values = body(values). The outputs are the last
// values.
struct LoopNode {
  int32_t body = 0;  // a graph, later in the program than this one
  int64_t count = 0;
  std::vector<ValueRef> inputs;
};
// Runs one of the bodies, chosen by a scalar of an integer type or PRED: below 0 the first, too
// high the last. All bodies take the inputs, and have results of the same types.
struct BranchNode {
  ValueRef index;
  std::vector<int32_t> bodies;
  std::vector<ValueRef> inputs;
};

// A node of a program, with its place in the user's code.
struct ProgramNode {
  std::string name;
  std::string source;  // "train.py:31", for messages
  std::variant<ArgumentNode, ConstantNode, ComputeNode, TransferNode, LoopNode, BranchNode> op;
};

// A node comes after those whose outputs it takes. The arguments are the ArgumentNodes in order.
struct Graph {
  std::vector<ProgramNode> nodes;
  std::vector<ValueRef> results;
};

struct Program {
  std::string name;
  std::vector<ProgramSlice> slices;
  std::vector<Computation> computations;
  std::vector<Graph> graphs;  // the first is the program, the others are bodies
};

// The type of every value: types[graph][node][output]. Nodes that run the same computation on the
// same slice share one list, and so do nodes with the same body: a node of a few bytes may have
// many outputs.
using ProgramTypes = std::vector<std::vector<SharedVector<SliceSpec>>>;

// Returns the graphs that are the node's bodies.
std::vector<int32_t> BodiesOf(const ProgramNode& node);
// Returns the inputs of a node, in order; a branch's index is first.
std::vector<ValueRef> InputsOf(const ProgramNode& node);

// Checks the whole program and returns the types of all values. INVALID_ARGUMENT names the graph,
// node and source line of the error: an input that is not an output of an earlier node (so there
// are no cycles), types that do not fit, shardings that are not over the slice, wrong numbers of
// inputs, bodies that are not later graphs, or too large (kMaxNodes nodes, bodies counted as often
// as they are named, in kMaxNesting levels; kMaxConstantBytes of constants; values with
// kMaxPositions positions in all).
absl::StatusOr<ProgramTypes> CheckProgram(const Program& program);

inline constexpr size_t kMaxNodes = 1 << 20;
inline constexpr size_t kMaxNesting = 16;  // nested loops and branches
inline constexpr int64_t kMaxConstantBytes = 64 << 20;
// Bounds the positions that the types of all values name together; each names those of its slice.
inline constexpr int64_t kMaxPositions = 1 << 24;

// Returns whether two shardings over the same number of devices put the same elements at the same
// positions, in the same kind of memory. Ignores shapes and types.
bool SameCut(const ArraySpec& a, const ArraySpec& b);

// "node 3 \"backward\" (train.py:31)"
std::string NodeText(const Program& program, size_t graph, size_t node);
// "f32[8,4] on slice \"a\""
std::string ToString(const Program& program, const SliceSpec& type);

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_PROGRAM_H_
