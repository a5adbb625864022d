// SPDX-License-Identifier: Apache-2.0
#include "graph/program.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

namespace fairway {
namespace {

bool IsIndexType(DType dtype) {
  switch (dtype) {
    case DType::kPred:
    case DType::kS8:
    case DType::kS16:
    case DType::kS32:
    case DType::kS64:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
      return true;
    default:
      return false;
  }
}

// Checks one program and computes its types. Used once.
class Checker {
 public:
  explicit Checker(const Program& program) : program_(program), types_(program.graphs.size()) {}

  absl::StatusOr<ProgramTypes> Check() {
    if (program_.graphs.empty()) return InvalidArgument("program {}: no graph", program_.name);
    for (const ProgramSlice& slice : program_.slices) {
      if (slice.devices < 1 || slice.devices > kMaxSliceDevices)
        return InvalidArgument("program {}: slice \"{}\" has {} devices, expected 1 to {}",
                               program_.name, slice.name, slice.devices, kMaxSliceDevices);
    }
    for (const Computation& computation : program_.computations)
      FAIRWAY_RETURN_IF_ERROR(CheckComputation(computation));
    size_t nodes = 0;
    for (const Graph& graph : program_.graphs) nodes += graph.nodes.size();
    if (nodes > kMaxNodes)
      return InvalidArgument("program {} has {} nodes, at most {} are allowed; use loops",
                             program_.name, nodes, kMaxNodes);
    FAIRWAY_RETURN_IF_ERROR(CheckNesting());
    // Bodies are later graphs, so this order knows their types first, and no graph contains itself.
    for (size_t g = program_.graphs.size(); g-- > 0;) {
      const Graph& graph = program_.graphs[g];
      for (size_t n = 0; n < graph.nodes.size(); ++n) {
        auto outputs =
            std::visit([&](const auto& op) { return Outputs(g, op); }, graph.nodes[n].op);
        if (!outputs.ok()) return Annotate(outputs.status(), NodeText(program_, g, n));
        types_[g].push_back(*std::move(outputs));
      }
      for (size_t r = 0; r < graph.results.size(); ++r) {
        const auto type = TypeOf(g, graph.results[r]);
        if (!type.ok())
          return Annotate(type.status(),
                          fmt::format("program {}: result {} of graph {}", program_.name, r, g));
      }
    }
    return std::move(types_);
  }

 private:
  static constexpr int32_t kMaxSliceDevices = 1 << 16;
  static constexpr size_t kMaxNamed = 8 * kMaxNodes;
  using Types = absl::StatusOr<SharedVector<SliceSpec>>;

  absl::Status CheckComputation(const Computation& computation) const {
    const auto wrong = [&](const std::string& what) {
      return InvalidArgument("program {}: computation \"{}\": {}", program_.name, computation.name,
                             what);
    };
    if (computation.code == nullptr || computation.code->empty()) return wrong("it has no code");
    int devices = -1;
    for (const auto* values : {&computation.parameters, &computation.results}) {
      for (const ArraySpec& value : *values) {
        const int count = value.sharding.num_shards();
        if (devices >= 0 && count != devices)
          return wrong(fmt::format("its values lie on {} and on {} devices", devices, count));
        devices = count;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const SliceSpec*> TypeOf(size_t graph, ValueRef ref) const {
    const auto& nodes = types_[graph];
    if (ref.node < 0 || static_cast<size_t>(ref.node) >= nodes.size()) {
      const bool later =
          ref.node >= 0 && static_cast<size_t>(ref.node) < program_.graphs[graph].nodes.size();
      return InvalidArgument("it takes an output of node {}, which {}", ref.node,
                             later ? "does not come before it: the graph has a cycle, or its nodes "
                                     "are not in order"
                                   : "does not exist");
    }
    if (ref.output < 0 || static_cast<size_t>(ref.output) >= nodes[ref.node].size())
      return InvalidArgument("it takes output {} of {}, which has {}", ref.output,
                             NodeText(program_, graph, ref.node), nodes[ref.node].size());
    return &nodes[ref.node][ref.output];
  }

  absl::StatusOr<std::vector<const SliceSpec*>> TypesOf(size_t graph,
                                                        const std::vector<ValueRef>& refs) const {
    std::vector<const SliceSpec*> out;
    for (const ValueRef ref : refs) {
      FAIRWAY_ASSIGN_OR_RETURN(out.emplace_back(), TypeOf(graph, ref));
    }
    return out;
  }

  // Counts the types of a node's outputs and returns them.
  Types Keep(SharedVector<SliceSpec> types) {
    for (const SliceSpec& type : types) positions_ += type.array.sharding.num_shards();
    if (positions_ > kMaxPositions)
      return InvalidArgument(
          "with its outputs the program's values name more than {} positions in all; split it into "
          "several programs, or use loops",
          kMaxPositions);
    return types;
  }
  Types Keep(const SliceSpec& type) { return Keep(std::vector<SliceSpec>{type}); }

  absl::Status CheckSlice(int32_t slice) const {
    if (slice >= 0 && static_cast<size_t>(slice) < program_.slices.size()) return absl::OkStatus();
    return InvalidArgument("slice {} does not exist; the program has {}", slice,
                           program_.slices.size());
  }

  absl::Status CheckType(int32_t on, const ArraySpec& array) const {
    FAIRWAY_RETURN_IF_ERROR(CheckSlice(on));
    FAIRWAY_RETURN_IF_ERROR(ByteSize(array.dtype, array.shape).status());
    const ProgramSlice& slice = program_.slices[on];
    const std::vector<int32_t>& positions = array.sharding.devices();
    bool all = positions.size() == static_cast<size_t>(slice.devices);
    for (size_t i = 0; i < positions.size() && all; ++i)
      all = positions[i] == static_cast<int32_t>(i);
    if (!all)
      return InvalidArgument("its sharding is over positions [{}], but slice \"{}\" has {} devices",
                             fmt::join(positions, ","), slice.name, slice.devices);
    return array.sharding.Domain(array.shape, 0).status();
  }

  absl::Status CheckFits(const Computation& code, int32_t slice) const {
    for (const auto* values : {&code.parameters, &code.results}) {
      for (const ArraySpec& value : *values) FAIRWAY_RETURN_IF_ERROR(CheckType(slice, value));
    }
    return absl::OkStatus();
  }

  // Checks that a value may be given where `want` is expected: only its place and cut may differ.
  absl::Status CheckGiven(size_t input, const SliceSpec& given, const ArraySpec& want) const {
    if (given.array.dtype == want.dtype && given.array.shape == want.shape) return absl::OkStatus();
    return InvalidArgument("input {} is {}, expected {}", input,
                           ToString(given.array.dtype, given.array.shape),
                           ToString(want.dtype, want.shape));
  }

  Types Outputs(size_t graph, const ArgumentNode& op) {
    FAIRWAY_RETURN_IF_ERROR(CheckType(op.type.slice, op.type.array));
    if (op.donated && graph != 0)
      return InvalidArgument("only arguments of the program itself can be donated");
    return Keep(op.type);
  }

  Types Outputs(size_t, const ConstantNode& op) {
    FAIRWAY_RETURN_IF_ERROR(CheckType(op.type.slice, op.type.array));
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes,
                             ByteSize(op.type.array.dtype, op.type.array.shape));
    const size_t given = op.bytes == nullptr ? 0 : op.bytes->size();
    if (given != static_cast<size_t>(bytes))
      return InvalidArgument("{} takes {} bytes, but {} were given",
                             ToString(op.type.array.dtype, op.type.array.shape), bytes, given);
    constant_bytes_ += bytes;
    if (constant_bytes_ > kMaxConstantBytes)
      return InvalidArgument(
          "the program's constants are more than {} bytes; give large values as arguments",
          kMaxConstantBytes);
    return Keep(op.type);
  }

  Types Outputs(size_t graph, const ComputeNode& op) {
    FAIRWAY_RETURN_IF_ERROR(CheckSlice(op.slice));
    if (op.computation < 0 || static_cast<size_t>(op.computation) >= program_.computations.size())
      return InvalidArgument("computation {} does not exist; the program has {}", op.computation,
                             program_.computations.size());
    const Computation& computation = program_.computations[op.computation];
    FAIRWAY_ASSIGN_OR_RETURN(const auto given, TypesOf(graph, op.inputs));
    if (given.size() != computation.parameters.size())
      return InvalidArgument("computation \"{}\" takes {} inputs, but {} were given",
                             computation.name, computation.parameters.size(), given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      FAIRWAY_RETURN_IF_ERROR(CheckGiven(i, *given[i], computation.parameters[i]));
    }
    // Made once for each slice that a computation runs on, however many nodes run it.
    const auto [known, fresh] = results_.try_emplace({op.computation, op.slice});
    if (fresh) {
      FAIRWAY_RETURN_IF_ERROR(CheckFits(computation, op.slice));
      std::vector<SliceSpec> types;
      for (const ArraySpec& result : computation.results) types.push_back({op.slice, result});
      known->second = std::move(types);
    }
    return Keep(known->second);
  }

  Types Outputs(size_t graph, const TransferNode& op) {
    FAIRWAY_ASSIGN_OR_RETURN(const SliceSpec* given, TypeOf(graph, op.input));
    FAIRWAY_RETURN_IF_ERROR(CheckType(op.type.slice, op.type.array));
    FAIRWAY_RETURN_IF_ERROR(CheckGiven(0, *given, op.type.array));
    return Keep(op.type);
  }

  // Returns the results of a body with these inputs.
  absl::StatusOr<std::vector<const SliceSpec*>> Body(size_t graph, int32_t body,
                                                     const std::vector<ValueRef>& inputs) const {
    if (body <= static_cast<int64_t>(graph) || static_cast<size_t>(body) >= program_.graphs.size())
      return InvalidArgument("its body is graph {}; expected one of {} to {}", body, graph + 1,
                             program_.graphs.size() - 1);
    const Graph& inner = program_.graphs[body];
    FAIRWAY_ASSIGN_OR_RETURN(const auto given, TypesOf(graph, inputs));
    size_t taken = 0;
    for (const ProgramNode& node : inner.nodes) {
      const auto* argument = std::get_if<ArgumentNode>(&node.op);
      if (argument == nullptr) continue;
      if (taken < given.size())
        FAIRWAY_RETURN_IF_ERROR(CheckGiven(taken, *given[taken], argument->type.array));
      ++taken;
    }
    if (taken != given.size())
      return InvalidArgument("its body, graph {}, takes {} inputs, but {} were given", body, taken,
                             given.size());
    return TypesOf(body, inner.results);
  }

  Types Outputs(size_t graph, const LoopNode& op) {
    if (op.count < 0) return InvalidArgument("it repeats its body {} times", op.count);
    FAIRWAY_ASSIGN_OR_RETURN(const auto results, Body(graph, op.body, op.inputs));
    std::vector<const SliceSpec*> carried;
    for (const ProgramNode& node : program_.graphs[op.body].nodes) {
      if (const auto* argument = std::get_if<ArgumentNode>(&node.op))
        carried.push_back(&argument->type);
    }
    if (results.size() != carried.size())
      return InvalidArgument("its body, graph {}, has {} results, but takes {} inputs", op.body,
                             results.size(), carried.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (const auto same = CheckGiven(i, *results[i], carried[i]->array); !same.ok())
        return Annotate(same,
                        fmt::format("result {} of its body, graph {}, goes round", i, op.body));
    }
    return Keep(Shared(carried_[op.body], carried));
  }

  Types Outputs(size_t graph, const BranchNode& op) {
    FAIRWAY_ASSIGN_OR_RETURN(const SliceSpec* index, TypeOf(graph, op.index));
    if (index->array.shape.rank() != 0 || !IsIndexType(index->array.dtype))
      return InvalidArgument("its index is {}, expected a scalar of an integer type or pred",
                             ToString(index->array.dtype, index->array.shape));
    if (op.bodies.empty()) return InvalidArgument("it has no body");
    const auto same = [](const SliceSpec* a, const SliceSpec* b) { return *a == *b; };
    std::vector<const SliceSpec*> out;
    for (const int32_t body : op.bodies) {
      FAIRWAY_ASSIGN_OR_RETURN(auto results, Body(graph, body, op.inputs));
      if (body == op.bodies[0]) {
        out = std::move(results);
      } else if (!std::equal(results.begin(), results.end(), out.begin(), out.end(), same)) {
        return InvalidArgument("its bodies, graphs {} and {}, have results of different types",
                               op.bodies[0], body);
      }
    }
    return Keep(Shared(chosen_[op.bodies[0]], out));
  }
  // Returns `known`, which the first node that needs it fills.
  static const SharedVector<SliceSpec>& Shared(SharedVector<SliceSpec>& known,
                                               const std::vector<const SliceSpec*>& types) {
    if (!known.empty()) return known;
    std::vector<SliceSpec> copies;
    for (const SliceSpec* type : types) copies.push_back(*type);
    return known = std::move(copies);
  }

  // Counts the inputs of a node, and the results of the code that it runs.
  size_t Named(const ProgramNode& node) const {
    const auto* compute = std::get_if<ComputeNode>(&node.op);
    if (compute == nullptr) return InputsOf(node).size();
    const auto computation = static_cast<size_t>(compute->computation);
    if (computation >= program_.computations.size()) return 0;  // the check of its node refuses it
    return compute->inputs.size() + program_.computations[computation].results.size();
  }

  // Several nodes may have the same body, so each level of nesting can double a program.
  absl::Status CheckNesting() const {
    struct Size {
      size_t nodes = 0;  // including those of its bodies, as often as they are named
      size_t depth = 0;
      size_t named = 0;  // the values that these nodes take and make, and the results
    };
    std::vector<Size> sizes(program_.graphs.size());
    for (size_t g = program_.graphs.size(); g-- > 0;) {
      Size& size = sizes[g];
      for (const ProgramNode& node : program_.graphs[g].nodes) {
        ++size.nodes;
        size.named += Named(node);
        for (const int32_t body : BodiesOf(node)) {
          if (body <= static_cast<int64_t>(g) || static_cast<size_t>(body) >= sizes.size())
            continue;  // the check of its node refuses it
          size.nodes = std::min(size.nodes + sizes[body].nodes, 2 * kMaxNodes);
          size.depth = std::max(size.depth, sizes[body].depth + 1);
          size.named = std::min(size.named + sizes[body].named, 2 * kMaxNamed);
        }
      }
      size.named += program_.graphs[g].results.size();
      if (size.named > kMaxNamed)
        return InvalidArgument(
            "program {}: the nodes of graph {}, with its bodies, take and make more than {} "
            "values; "
            "use loops, or several programs",
            program_.name, g, kMaxNamed);
      if (size.nodes > kMaxNodes || size.depth > kMaxNesting)
        return InvalidArgument(
            "program {}: graph {}, with its bodies, has {} nodes in {} levels; at most {} in {} "
            "are allowed",
            program_.name, g, size.nodes > kMaxNodes ? "too many" : std::to_string(size.nodes),
            size.depth, kMaxNodes, kMaxNesting);
    }
    return absl::OkStatus();
  }

  const Program& program_;
  ProgramTypes types_;
  int64_t constant_bytes_ = 0;
  int64_t positions_ = 0;  // of the types that are kept
  // Types that nodes share: by computation and slice; by the body that a loop repeats; by the first
  // body of a branch.
  std::map<std::pair<int32_t, int32_t>, SharedVector<SliceSpec>> results_;
  std::map<int32_t, SharedVector<SliceSpec>> carried_, chosen_;
};

}  // namespace

std::vector<int32_t> BodiesOf(const ProgramNode& node) {
  if (const auto* loop = std::get_if<LoopNode>(&node.op)) return {loop->body};
  if (const auto* branch = std::get_if<BranchNode>(&node.op)) return branch->bodies;
  return {};
}

std::vector<ValueRef> InputsOf(const ProgramNode& node) {
  struct Visitor {
    std::vector<ValueRef> operator()(const ArgumentNode&) const { return {}; }
    std::vector<ValueRef> operator()(const ConstantNode&) const { return {}; }
    std::vector<ValueRef> operator()(const ComputeNode& op) const { return op.inputs; }
    std::vector<ValueRef> operator()(const TransferNode& op) const { return {op.input}; }
    std::vector<ValueRef> operator()(const LoopNode& op) const { return op.inputs; }
    std::vector<ValueRef> operator()(const BranchNode& op) const {
      std::vector<ValueRef> all = {op.index};
      all.insert(all.end(), op.inputs.begin(), op.inputs.end());
      return all;
    }
  };
  return std::visit(Visitor{}, node.op);
}

absl::StatusOr<ProgramTypes> CheckProgram(const Program& program) {
  return Checker(program).Check();
}

bool SameCut(const ArraySpec& a, const ArraySpec& b) {
  if (a.sharding == b.sharding) return true;
  if (a.sharding.num_shards() != b.sharding.num_shards() ||
      a.sharding.memory_kind() != b.sharding.memory_kind())
    return false;
  if (a.sharding.fully_replicated() || b.sharding.fully_replicated())
    return a.sharding.fully_replicated() && b.sharding.fully_replicated();
  for (int i = 0; i < a.sharding.num_shards(); ++i) {
    const auto left = a.sharding.Domain(a.shape, i);
    const auto right = b.sharding.Domain(b.shape, i);
    if (!left.ok() || !right.ok() || *left != *right) return false;
  }
  return true;
}

std::string NodeText(const Program& program, size_t graph, size_t node) {
  const ProgramNode& in = program.graphs[graph].nodes[node];
  std::string text =
      graph == 0 ? fmt::format("node {}", node) : fmt::format("node {} of graph {}", node, graph);
  if (!in.name.empty()) text += fmt::format(" \"{}\"", in.name);
  if (!in.source.empty()) text += fmt::format(" ({})", in.source);
  return text;
}

std::string ToString(const Program& program, const SliceSpec& type) {
  return fmt::format("{} on slice \"{}\"", ToString(type.array.dtype, type.array.shape),
                     program.slices[type.slice].name);
}

}  // namespace fairway
