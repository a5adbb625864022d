// SPDX-License-Identifier: Apache-2.0
#include "graph/lowering.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <unordered_map>

#include "graph/sequence_builder.h"
#include "graph/transfer_sets.h"

namespace fairway {
namespace {

// The work at one place, or one transfer between two places.
struct Unit {
  // in the program; for a transfer that the program does not name, the node that wants it
  size_t graph = 0, node = 0;
  int32_t place = 0;
  bool transfer = false;
  std::vector<int32_t> inputs;   // values
  std::vector<int32_t> outputs;  // values
};

// Lowers one program. Used once.
class Lowering {
 public:
  Lowering(const Program& program, const ProgramTypes& types, const ProgramBinding& binding)
      : program_(program), types_(types), binding_(binding) {}

  absl::StatusOr<ProgramPlan> Run() {
    std::vector<int32_t> arguments;
    for (size_t n = 0; n < program_.graphs[0].nodes.size(); ++n) {
      const auto* argument = std::get_if<ArgumentNode>(&program_.graphs[0].nodes[n].op);
      if (argument == nullptr) continue;
      arguments.push_back(NewValue(argument->type));
      plan_.donated.push_back(argument->donated);
    }
    plan_.arguments = static_cast<int32_t>(arguments.size());
    FAIRWAY_ASSIGN_OR_RETURN(plan_.results, Inline(0, arguments));
    FAIRWAY_RETURN_IF_ERROR(Group());
    Order();
    FAIRWAY_RETURN_IF_ERROR(Build());
    KeepWhatStepsTake();
    for (const ProgramPlan::Step& step : plan_.steps) {
      const auto* run = std::get_if<ProgramPlan::RunSequence>(&step);
      if (run != nullptr && MaxInstructions(*run->sequence) > kMaxSteps)
        return InvalidArgument("program {}: its loops have more than {} steps", program_.name,
                               kMaxSteps);
    }
    return std::move(plan_);
  }

 private:
  static constexpr int64_t kMaxSteps = int64_t{1} << 30;
  static constexpr int64_t kMaxLoopWork = int64_t{1} << 25;  // about a second
  static constexpr size_t kMaxTransferSets = 1 << 21;        // 200 MB, some seconds
  static constexpr size_t kMaxInlined = 2 * kMaxNodes + 16 * kMaxUnrolled;

  // `type` must stay where it is in memory.
  int32_t NewValue(const SliceSpec& type) {
    types_of_.push_back(&type);
    return static_cast<int32_t>(types_of_.size()) - 1;
  }
  int32_t PlaceOf(int32_t slice) const { return binding_.places[slice]; }

  // Returns whether the value can be used unchanged where `want` is expected.
  bool Fits(int32_t value, int32_t slice, const ArraySpec& want) const {
    const SliceSpec& has = *types_of_[value];
    return PlaceOf(has.slice) == PlaceOf(slice) && SameCut(has.array, want);
  }

  // Returns a value of type `want`: the value itself, or a transfer of it. `want` must stay where
  // it is in memory.
  int32_t As(int32_t value, int32_t slice, const ArraySpec& want, size_t graph, size_t node) {
    if (Fits(value, slice, want)) return value;
    for (const int32_t other : moved_[value]) {
      if (Fits(other, slice, want)) return other;
    }
    const auto [type, fresh] = moved_types_.try_emplace({slice, &want});
    if (fresh) type->second = {slice, want};
    Unit unit{graph, node, PlaceOf(slice), true, {value}, {NewValue(type->second)}};
    moved_[value].push_back(unit.outputs[0]);
    units_.push_back(std::move(unit));
    return units_.back().outputs[0];
  }
  int32_t As(int32_t value, const SliceSpec& want, size_t graph, size_t node) {
    return As(value, want.slice, want.array, graph, node);
  }

  // Returns the one place of a graph with its bodies; nullopt: it has several.
  std::optional<int32_t> OnlyPlace(size_t graph) {
    const auto known = only_place_.find(graph);
    if (known != only_place_.end()) return known->second;
    return only_place_[graph] = FindOnlyPlace(graph);
  }
  std::optional<int32_t> FindOnlyPlace(size_t graph) {
    std::optional<int32_t> place;
    const auto is = [&](int32_t other) {
      if (!place.has_value()) place = other;
      return *place == other;
    };
    const Graph& in = program_.graphs[graph];
    for (size_t n = 0; n < in.nodes.size(); ++n) {
      const auto& op = in.nodes[n].op;
      for (const SliceSpec& output : types_[graph][n]) {
        if (!is(PlaceOf(output.slice))) return std::nullopt;
      }
      if (std::holds_alternative<ConstantNode>(op) || std::holds_alternative<TransferNode>(op))
        return std::nullopt;  // these are not steps of a sequence
      if (const auto* compute = std::get_if<ComputeNode>(&op)) {
        const Computation& computation = program_.computations[compute->computation];
        for (size_t i = 0; i < compute->inputs.size(); ++i) {
          const ValueRef ref = compute->inputs[i];
          if (!SameCut(types_[graph][ref.node][ref.output].array, computation.parameters[i]))
            return std::nullopt;
        }
      }
      for (const int32_t body : BodiesOf(in.nodes[n])) {
        const auto inner = OnlyPlace(body);
        if (!inner.has_value() || !is(*inner) || !GoesRound(graph, n, body)) return std::nullopt;
      }
    }
    return place;
  }

  // Returns whether inputs and results of the body lie in the same way as its arguments.
  bool GoesRound(size_t graph, size_t node, int32_t body) const {
    const Graph& inner = program_.graphs[body];
    const ProgramNode& outer = program_.graphs[graph].nodes[node];
    const bool loop = std::holds_alternative<LoopNode>(outer.op);
    std::vector<ValueRef> inputs = InputsOf(outer);
    if (!loop) inputs.erase(inputs.begin());
    size_t a = 0;
    for (const ProgramNode& candidate : inner.nodes) {
      const auto* argument = std::get_if<ArgumentNode>(&candidate.op);
      if (argument == nullptr) continue;
      const ValueRef in = inputs[a];
      if (!SameCut(types_[graph][in.node][in.output].array, argument->type.array)) return false;
      if (loop) {
        const ValueRef out = inner.results[a];
        if (!SameCut(types_[body][out.node][out.output].array, argument->type.array)) return false;
      }
      ++a;
    }
    return true;
  }

  absl::StatusOr<std::vector<int32_t>> Inline(size_t graph, const std::vector<int32_t>& arguments) {
    const Graph& in = program_.graphs[graph];
    inlined_ += in.nodes.size() + 1;
    if (inlined_ > kMaxInlined)
      return InvalidArgument(
          "program {}: unrolled, its loops over several slices have more than {} nodes; run the "
          "program several times",
          program_.name, kMaxInlined);
    std::vector<std::vector<int32_t>> made(in.nodes.size());  // values
    size_t next_argument = 0;
    for (size_t n = 0; n < in.nodes.size(); ++n) {
      std::vector<int32_t> inputs;
      for (const ValueRef ref : InputsOf(in.nodes[n])) inputs.push_back(made[ref.node][ref.output]);
      const auto& op = in.nodes[n].op;
      if (const auto* argument = std::get_if<ArgumentNode>(&op)) {
        const int32_t given = arguments[next_argument++];
        made[n] = {graph == 0 ? given : As(given, argument->type, graph, n)};
      } else if (const auto* constant = std::get_if<ConstantNode>(&op)) {
        made[n] = {Constant(graph, n, *constant)};
      } else if (const auto* transfer = std::get_if<TransferNode>(&op)) {
        made[n] = {As(inputs[0], transfer->type, graph, n)};
      } else if (std::holds_alternative<ComputeNode>(op)) {
        made[n] = Compute(graph, n, std::move(inputs));
      } else {
        FAIRWAY_ASSIGN_OR_RETURN(made[n], Control(graph, n, std::move(inputs)));
      }
      if (units_.size() > kMaxUnrolled && graph != 0)
        return InvalidArgument(
            "{}: unrolled, the loops over several slices have more than {} steps; run the program "
            "several times",
            NodeText(program_, graph, n), kMaxUnrolled);
      if (unrolled_values_ > kMaxUnrolledValues)
        return InvalidArgument(
            "{}: unrolled, the steps of the loops over several slices take and make more than {} "
            "values; run the program several times, or give its computations fewer arguments and "
            "results",
            NodeText(program_, graph, n), kMaxUnrolledValues);
    }
    std::vector<int32_t> results;
    for (const ValueRef ref : in.results) results.push_back(made[ref.node][ref.output]);
    return results;
  }

  // A constant of an unrolled body exists once for all rounds.
  int32_t Constant(size_t graph, size_t node, const ConstantNode& constant) {
    const auto [known, fresh] = constants_.try_emplace({graph, node}, 0);
    if (fresh) {
      known->second = NewValue(constant.type);
      plan_.constants.push_back({known->second, constant.bytes});
    }
    return known->second;
  }

  std::vector<int32_t> Compute(size_t graph, size_t n, std::vector<int32_t> inputs) {
    const auto& compute = std::get<ComputeNode>(program_.graphs[graph].nodes[n].op);
    const Computation& computation = program_.computations[compute.computation];
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = As(inputs[i], compute.slice, computation.parameters[i], graph, n);
    return Add(graph, n, PlaceOf(compute.slice), std::move(inputs));
  }

  std::vector<int32_t> Add(size_t graph, size_t n, int32_t place, std::vector<int32_t> inputs) {
    Unit unit{graph, n, place, false, std::move(inputs), {}};
    for (const SliceSpec& type : types_[graph][n]) unit.outputs.push_back(NewValue(type));
    if (graph != 0) unrolled_values_ += unit.inputs.size() + unit.outputs.size();
    units_.push_back(std::move(unit));
    return units_.back().outputs;
  }

  absl::StatusOr<std::vector<int32_t>> Control(size_t graph, size_t n,
                                               std::vector<int32_t> inputs) {
    const ProgramNode& node = program_.graphs[graph].nodes[n];
    const auto* branch = std::get_if<BranchNode>(&node.op);
    std::optional<int32_t> place;
    for (const int32_t body : BodiesOf(node)) {
      const auto inner = OnlyPlace(body);
      if (branch != nullptr && (!inner.has_value() || (place.has_value() && *place != *inner)))
        return InvalidArgument(
            "{}: its bodies lie on several slices, or have transfers or constants; bodies of a "
            "branch must be computations on one slice",
            NodeText(program_, graph, n));
      place = inner;
    }
    if (place.has_value()) {
      // The body's arguments determine how the inputs must lie.
      const Graph& inner = program_.graphs[BodiesOf(node)[0]];
      size_t i = branch == nullptr ? 0 : 1;
      int32_t slice = -1;
      for (const ProgramNode& candidate : inner.nodes) {
        const auto* argument = std::get_if<ArgumentNode>(&candidate.op);
        if (argument == nullptr) continue;
        slice = argument->type.slice;
        inputs[i] = As(inputs[i], argument->type, graph, n);
        ++i;
      }
      if (branch != nullptr) inputs[0] = AsScalar(inputs[0], slice, *place, graph, n);
      if (branch != nullptr || ResultsGoRound(node)) return Add(graph, n, *place, inputs);
    }
    const auto& loop = std::get<LoopNode>(node.op);
    for (int64_t i = 0; i < loop.count; ++i) {
      FAIRWAY_ASSIGN_OR_RETURN(inputs, Inline(loop.body, inputs));
    }
    // Even without a round, the outputs lie in the same way as the body's arguments.
    std::vector<int32_t> out;
    for (size_t i = 0; i < inputs.size(); ++i)
      out.push_back(As(inputs[i], types_[graph][n][i], graph, n));
    return out;
  }

  bool ResultsGoRound(const ProgramNode& node) const {
    const auto& loop = std::get<LoopNode>(node.op);
    const Graph& inner = program_.graphs[loop.body];
    size_t a = 0;
    for (const ProgramNode& candidate : inner.nodes) {
      const auto* argument = std::get_if<ArgumentNode>(&candidate.op);
      if (argument == nullptr) continue;
      const ValueRef out = inner.results[a++];
      const SliceSpec& result = types_[loop.body][out.node][out.output];
      if (!SameCut(result.array, argument->type.array)) return false;
    }
    return true;
  }

  // Makes a branch's index a scalar on each device of the slice.
  int32_t AsScalar(int32_t value, int32_t slice, int32_t place, size_t graph, size_t n) {
    if (slice < 0) {
      for (size_t s = 0; s < binding_.places.size() && slice < 0; ++s) {
        if (binding_.places[s] == place) slice = static_cast<int32_t>(s);
      }
    }
    const ArraySpec& has = types_of_[value]->array;
    const auto [scalar, fresh] = scalars_.try_emplace({slice, has.dtype});
    if (fresh) {
      std::vector<int32_t> positions(program_.slices[slice].devices);
      std::iota(positions.begin(), positions.end(), 0);
      scalar->second = {has.dtype, has.shape, Sharding::Replicated(std::move(positions))};
    }
    return As(value, slice, scalar->second, graph, n);
  }

  // ---- Sequences: a sequence has the units of one place that wait for the same transfers.

  absl::Status Group() {
    TransferSets sets;
    std::vector<int32_t> late_of(types_of_.size(), TransferSets::kNone);  // by value
    std::map<std::pair<int32_t, int32_t>, int32_t> by_key;                // by place and set
    part_of_.assign(types_of_.size(), kNone);
    for (size_t u = 0; u < units_.size(); ++u) {
      const Unit& unit = units_[u];
      int32_t part = 0;
      int32_t late = TransferSets::kNone;
      if (unit.transfer) {
        late = sets.One(static_cast<int32_t>(u));
        part = NewPart();
      } else {
        for (const int32_t value : unit.inputs) {
          late = sets.Union(late, late_of[value]);
          if (sets.size() > kMaxTransferSets)
            return InvalidArgument(
                "{}: the steps up to it wait for too many different sets of transfers between "
                "slices; run the program several times",
                NodeText(program_, unit.graph, unit.node));
        }
        const auto [it, fresh] = by_key.try_emplace({unit.place, late}, 0);
        if (fresh) it->second = NewPart();
        part = it->second;
      }
      parts_[part].push_back(u);
      for (const int32_t value : unit.outputs) {
        late_of[value] = late;
        part_of_[value] = part;
      }
    }
    return absl::OkStatus();
  }

  int32_t NewPart() {
    parts_.emplace_back();
    return static_cast<int32_t>(parts_.size()) - 1;
  }

  // Orders the parts: each after those whose values it takes, otherwise in program order.
  void Order() {
    std::vector<std::vector<int32_t>> next(parts_.size());
    std::vector<int> open(parts_.size(), 0);
    for (size_t p = 0; p < parts_.size(); ++p) {
      std::vector<int32_t> before;
      for (const size_t u : parts_[p]) {
        for (const int32_t value : units_[u].inputs) {
          const int32_t from = part_of_[value];
          if (from != kNone && from != static_cast<int32_t>(p)) before.push_back(from);
        }
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (const int32_t from : before) next[from].push_back(static_cast<int32_t>(p));
      open[p] = static_cast<int>(before.size());
    }
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (open[p] == 0) ready.push(static_cast<int32_t>(p));
    }
    while (!ready.empty()) {
      const int32_t part = ready.top();
      ready.pop();
      order_.push_back(part);
      for (const int32_t after : next[part]) {
        if (--open[after] == 0) ready.push(after);
      }
    }
  }

  absl::Status Build() {
    FindTakers();
    ValueRegisters registers(types_of_.size());
    for (const int32_t part : order_) {
      const Unit& first = units_[parts_[part][0]];
      if (first.transfer) {
        plan_.steps.push_back(ProgramPlan::Transfer{first.inputs[0], first.outputs[0]});
        continue;
      }
      SequenceBuilder builder(program_, types_, binding_, first.place, registers);
      for (const size_t u : parts_[part]) {
        for (const int32_t value : units_[u].inputs) {
          if (part_of_[value] != part) builder.AddInput(value);
        }
      }
      for (const size_t u : parts_[part]) {
        const Unit& unit = units_[u];
        builder.AddNode(unit.graph, unit.node, unit.inputs, unit.outputs);
        for (const int32_t value : unit.outputs) {
          if (taker_[value] != kNone && taker_[value] != part) builder.AddOutput(value);
        }
      }
      FAIRWAY_ASSIGN_OR_RETURN(ProgramPlan::RunSequence run, builder.Finish(walk_));
      run.slice = SliceAt(first.place);
      for (size_t i = 0; i < run.inputs.size(); ++i) {
        if (taker_[run.inputs[i]] == part) run.donated.push_back(static_cast<int32_t>(i));
      }
      plan_.steps.push_back(std::move(run));
    }
    return absl::OkStatus();
  }

  // Finds who takes each value: a part, the caller, or several.
  void FindTakers() {
    taker_.assign(types_of_.size(), kNone);
    const auto takes = [&](int32_t value, int32_t who) {
      taker_[value] = taker_[value] == kNone || taker_[value] == who ? who : kSeveral;
    };
    for (size_t p = 0; p < parts_.size(); ++p) {
      for (const size_t u : parts_[p]) {
        for (const int32_t value : units_[u].inputs) takes(value, static_cast<int32_t>(p));
      }
    }
    for (const int32_t value : plan_.results) takes(value, kCaller);
    for (const ProgramPlan::Constant& constant : plan_.constants) takes(constant.value, kCaller);
    for (int32_t a = 0; a < plan_.arguments; ++a) {
      if (!plan_.donated[a]) takes(a, kCaller);
    }
  }

  // Numbers the values that are visible between steps, and names their types.
  void KeepWhatStepsTake() {
    std::vector<int32_t> number(types_of_.size(), kNone);
    std::unordered_map<const SliceSpec*, int32_t> types;
    const auto keep = [&](int32_t& value) {
      int32_t& now = number[value];
      if (now == kNone) {
        const SliceSpec* type = types_of_[value];
        const auto [known, fresh] = types.emplace(type, static_cast<int32_t>(plan_.types.size()));
        if (fresh) plan_.types.push_back(*type);
        now = static_cast<int32_t>(plan_.values.size());
        plan_.values.push_back(known->second);
      }
      value = now;
    };
    for (int32_t a = 0; a < plan_.arguments; ++a) {
      int32_t value = a;
      keep(value);
    }
    for (ProgramPlan::Constant& constant : plan_.constants) keep(constant.value);
    for (ProgramPlan::Step& step : plan_.steps) {
      if (auto* transfer = std::get_if<ProgramPlan::Transfer>(&step)) {
        keep(transfer->input);
        keep(transfer->output);
        continue;
      }
      auto& run = std::get<ProgramPlan::RunSequence>(step);
      for (int32_t& value : run.inputs) keep(value);
      for (int32_t& value : run.outputs) keep(value);
    }
    for (int32_t& value : plan_.results) keep(value);
    plan_.values.shrink_to_fit();
  }

  int32_t SliceAt(int32_t place) const {
    const auto it = std::find(binding_.places.begin(), binding_.places.end(), place);
    return static_cast<int32_t>(it - binding_.places.begin());
  }

  const Program& program_;
  const ProgramTypes& types_;
  const ProgramBinding& binding_;
  // No part.
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kCaller = -2;
  static constexpr int32_t kSeveral = -3;

  ProgramPlan plan_;
  std::vector<const SliceSpec*> types_of_;  // by value
  std::vector<Unit> units_;
  std::map<int32_t, std::vector<int32_t>> moved_;  // the copies of a value that lie elsewhere
  std::map<std::pair<int32_t, const ArraySpec*>, SliceSpec> moved_types_;  // by slice and type
  std::map<std::pair<int32_t, DType>, ArraySpec> scalars_;                 // by slice
  std::map<std::pair<size_t, size_t>, int32_t> constants_;
  std::map<size_t, std::optional<int32_t>> only_place_;  // by graph
  size_t inlined_ = 0;                                   // nodes
  size_t unrolled_values_ = 0;                           // inputs and outputs of units of bodies
  std::vector<std::vector<size_t>> parts_;  // the units of each part: one transfer, or one sequence
  std::vector<int32_t> part_of_;            // by value; kNone: an argument of the program
  std::vector<int32_t> taker_;              // by value
  std::vector<int32_t> order_;
  int64_t walk_ = kMaxLoopWork;  // LoopWork that remains
};

}  // namespace

absl::StatusOr<ProgramPlan> Lower(const Program& program, const ProgramTypes& types,
                                  const ProgramBinding& binding) {
  return Lowering(program, types, binding).Run();
}

}  // namespace fairway
