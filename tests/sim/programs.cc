// SPDX-License-Identifier: Apache-2.0
// Dataflow programs: invented, bound and run. The reference interpreter runs them node by node,
// whatever sequences and transfers they are lowered to.
#include <algorithm>
#include <memory>
#include <set>

#include <fmt/ranges.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "graph/lowering.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

// The same cut over positions 0 to n-1 of a slice.
ArraySpec OverPositions(const ArraySpec& spec) {
  std::vector<int32_t> positions(spec.sharding.num_shards());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  return {spec.dtype, spec.shape, spec.sharding.WithDevices(positions, "").value()};
}

// Code has one shape for all shards of a value.
bool Even(const ArraySpec& spec) {
  const Shape first = spec.sharding.ShardShape(spec.shape, 0).value();
  for (int i = 1; i < spec.sharding.num_shards(); ++i) {
    if (spec.sharding.ShardShape(spec.shape, i).value() != first) return false;
  }
  return true;
}

bool OnSeveral(uint64_t machines) { return (machines & (machines - 1)) != 0; }

void Add(const Failures& more, Failures& failures) {
  for (const Failure& one : more) {
    if (std::none_of(failures.begin(), failures.end(), [&](const Failure& known) {
          return known.cause == one.cause && known.text == one.text;
        }))
      failures.push_back(one);
  }
}

}  // namespace

// What a value of a program holds, or the failure that it certainly has.
struct Client::ProgramValue {
  std::vector<uint64_t> shards;  // by position in the slice
  Failures failures;
  uint64_t machines = 0;
  bool surely_failed = false;
};

// Invents a program on one or two slices, whose values all have one type.
class ProgramMaker {
 public:
  ProgramMaker(World& world, SimProgram& made) : world_(world), r_(world.random), made_(made) {}

  void Make() {
    Program& p = made_.program;
    p.name = fmt::format("p{}", world_.next_code);
    for (size_t s = 0; s < made_.slices.size(); ++s)
      p.slices.push_back({fmt::format("s{}", s), static_cast<int32_t>(made_.slices[s].size())});
    p.graphs.resize(1);
    std::vector<ValueRef> values;
    std::vector<ValueRef> handed_on;  // arguments that may be results
    for (int64_t a = r_.Between(1, 3); a > 0; --a) {
      const int32_t slice = Slice();
      values.push_back(Add(0, ArgumentNode{Type(slice), r_.Percent(30)}));
      if (slice == 0 && r_.Percent(20)) handed_on.push_back(values.back());
    }
    std::vector<ValueRef> computed;
    for (int64_t n = r_.Between(1, 6); n > 0 || computed.empty(); --n) {
      const int64_t kind = r_.Below(100);
      if (kind < 10) {
        values.push_back(Add(0, TransferNode{r_.Pick(values), Type(Slice())}));
      } else if (kind < 15) {
        values.push_back(Add(0, Constant()));
      } else if (kind < 28) {
        Loop(values);
      } else if (kind < 41) {
        Branch(values);
      } else {
        const ValueRef made = Compute(0, Slice(), values, r_.Between(1, 3));
        values.push_back(made);
        computed.push_back(made);
      }
    }
    r_.Shuffle(computed);
    computed.resize(std::min<size_t>(computed.size(), r_.Between(1, 4)));
    computed.insert(computed.end(), handed_on.begin(), handed_on.end());
    r_.Shuffle(computed);
    p.graphs[0].results = computed;
  }

 private:
  int32_t Slice() { return static_cast<int32_t>(r_.Below(made_.program.slices.size())); }
  SliceSpec Type(int32_t slice) const { return {slice, made_.type}; }

  template <typename Op>
  ValueRef Add(int graph, Op op) {
    auto& nodes = made_.program.graphs[graph].nodes;
    nodes.push_back({"", "", std::move(op)});
    return {static_cast<int32_t>(nodes.size()) - 1, 0};
  }
  ConstantNode Constant() {
    const int64_t size = ByteSize(DType::kU64, made_.type.shape).value();
    const auto bytes = BytesOf(r_.Next() | 1, size);
    return {Type(Slice()), std::make_shared<const std::string>(bytes->view())};
  }
  ValueRef Compute(int graph, int32_t slice, const std::vector<ValueRef>& values, int64_t inputs,
                   bool scalar = false) {
    ComputeNode node{Computation(static_cast<int>(inputs), scalar), slice, {}};
    for (int64_t i = 0; i < inputs; ++i) node.inputs.push_back(r_.Pick(values));
    return Add(graph, std::move(node));
  }
  // A body with an argument on each of `slices`; its results lie where they do.
  int32_t Body(const std::vector<int32_t>& slices, int results, bool spread) {
    const auto graph = static_cast<int32_t>(made_.program.graphs.size());
    made_.program.graphs.emplace_back();
    std::vector<ValueRef> values;
    for (const int32_t slice : slices) values.push_back(Add(graph, ArgumentNode{Type(slice)}));
    for (int64_t n = r_.Between(0, 2); n > 0; --n)
      values.push_back(Compute(graph, spread ? Slice() : slices[0], values, r_.Between(1, 2)));
    std::vector<ValueRef> out;
    for (int i = 0; i < results; ++i) out.push_back(Compute(graph, slices[i], values, 1));
    // An argument returned as it is.
    if (results > 1 && r_.Percent(50)) out[1] = values[r_.Percent(50) ? 1 : 0];
    made_.program.graphs[graph].results = std::move(out);
    return graph;
  }
  void Loop(std::vector<ValueRef>& values) {
    const int carried = static_cast<int>(r_.Between(1, 2));
    const std::vector<int32_t> slices(carried, Slice());
    const LoopNode loop{Body(slices, carried, r_.Percent(20)), r_.Between(0, 12),
                        Inputs(values, carried)};
    const ValueRef made = Add(0, loop);
    for (int i = 0; i < carried; ++i) values.push_back({made.node, i});
  }
  void Branch(std::vector<ValueRef>& values) {
    const int32_t slice = Slice();
    BranchNode branch;
    branch.index = Compute(0, slice, values, 1, /*scalar=*/true);
    for (int64_t b = r_.Between(1, 2); b >= 0; --b)
      branch.bodies.push_back(Body({slice, slice}, 1, false));
    branch.inputs = Inputs(values, 2);
    values.push_back(Add(0, std::move(branch)));
  }
  std::vector<ValueRef> Inputs(const std::vector<ValueRef>& values, int count) {
    std::vector<ValueRef> out;
    for (int i = 0; i < count; ++i) out.push_back(r_.Pick(values));
    return out;
  }

  // Code with that many inputs and one result, for each slice.
  int32_t Computation(int inputs, bool scalar) {
    Program& p = made_.program;
    const auto number = static_cast<int32_t>(p.computations.size());
    const ArraySpec result = scalar ? Scalar() : made_.type;
    fairway::Computation computation;
    computation.name = fmt::format("c{}", number);
    computation.code = std::make_shared<const std::string>("code");
    computation.parameters.assign(inputs, made_.type);
    computation.results = {result};
    p.computations.push_back(std::move(computation));
    const bool donates = r_.Percent(30);
    for (size_t s = 0; s < made_.slices.size(); ++s) {
      const ExecutableId id(world_.next_code++);
      Code& code = world_.codes[id];
      code.salt = r_.Next();
      code.duration = r_.Between(1, world_.config.duration);
      if (r_.Percent(world_.config.failing_percent))
        code.fails_one_in = static_cast<int>(r_.Between(1, 3));
      ExecutableSpec& spec = code.spec;
      spec.id = id;
      spec.name = fmt::format("f{}", id);
      spec.island = made_.islands[s];
      spec.devices = made_.slices[s];
      for (int i = 0; i < inputs; ++i) spec.parameters.push_back(TypeOf(made_.type));
      if (inputs > 0) spec.parameters[0].donated = donates;
      spec.outputs = {TypeOf(result)};
      const std::vector<int64_t>& tiles = spec.outputs[0].tile_of;
      code.separable =
          std::set(tiles.begin(), tiles.end()).size() == spec.devices.size() && r_.Percent(80);
      spec.temp_bytes = r_.Percent(50) ? 0 : 64 * r_.Between(1, 6);
      spec.code = std::make_shared<const std::string>("code");
      world_.controller->cluster().executables().Define(spec);
      made_.binding.code[{number, static_cast<int32_t>(s)}] = {
          id,
          {{result.dtype, spec.outputs[0].shard, ""}},
          donates && inputs > 0 ? std::vector<int32_t>{0} : std::vector<int32_t>(),
          spec.temp_bytes};
    }
    return number;
  }
  ArraySpec Scalar() const {
    return {DType::kS64, Shape{}, Sharding::Replicated(made_.type.sharding.devices())};
  }
  static ValueType TypeOf(const ArraySpec& spec) {
    ValueType type;
    type.dtype = spec.dtype;
    type.global = spec.shape;
    type.shard = spec.sharding.ShardShape(spec.shape, 0).value();
    if (spec.sharding.num_shards() > 1 && !spec.sharding.fully_replicated()) {
      type.tiles = spec.sharding.tiles();
      type.tile_of = spec.sharding.tile_of();
    }
    return type;
  }

  World& world_;
  Random& r_;
  SimProgram& made_;
};

uint64_t Client::BindProgram(const ModelArray& like) {
  Random& r = world_.random;
  SimProgram made;
  made.type = OverPositions(like.spec);
  std::vector<std::vector<int32_t>> slices = {like.spec.sharding.devices()};
  const size_t count = slices[0].size();
  if (r.Percent(60)) {
    std::vector<int32_t> other = RandomDevices(count, true);
    if (other.size() == count && other != slices[0]) slices.push_back(std::move(other));
  }
  for (size_t s = 0; s < slices.size(); ++s) {
    made.binding.places.push_back(static_cast<int32_t>(s));
    made.islands.push_back(Virtual(slices[s][0]).island_id);
    made.on_drained = made.on_drained || world_.drained.contains(Virtual(slices[s][0]).island);
    made.slices.emplace_back();
    for (const int32_t device : slices[s]) made.slices.back().push_back(DeviceOf(device));
  }
  ProgramMaker(world_, made).Make();
  const auto types = CheckProgram(made.program);
  if (!Expect(types.status(), "", "program")) return 0;
  auto plan = Lower(made.program, *types, made.binding);
  if (!Expect(plan.status(), "", "lowering")) return 0;
  // In slices, as in the daemon: other operations may come in between.
  Cluster& cluster = world_.controller->cluster();
  const bool sequential = r.Percent(25);
  if (sequential) {
    world_.sequential.insert(session_);
    world_.Count("sequential program");
  }
  ProgramSource source{made.program.name, *std::move(plan), slices, sequential};
  const uint64_t token = next_token_++;
  const absl::Status reserved =
      cluster.programs().Reserve(session_, token, source.name, PlacedBytes(source));
  if (!Expect(reserved, "", "room for a program")) return 0;
  auto placed = PlaceProgram(std::move(source), cluster.sessions().SharedDevices(session_));
  if (!Expect(placed.status(), "", "placing of a program")) return 0;
  const uint64_t out = OutHandle();
  world_.Trace("s{} binds {} as h{}, {} slices of {} devices", session_, made.program.name, out,
               slices.size(), count);
  made.drains = world_.drains;
  unanswered_[token] = "bind of a program";
  binding_[token] = std::move(made);
  cluster.programs().Bind(session_, token, out, *std::move(placed));
  world_.controller->Settle();
  const bool over = !unanswered_.contains(token);
  world_.Count(over && last_bound_ != 0 ? "program bound at once"
                                        : "program bound in several turns");
  return over ? last_bound_ : 0;
}

void Client::OnBound(uint64_t key, const absl::StatusOr<uint64_t>& program) {
  last_bound_ = 0;
  const auto made = binding_.extract(key);
  if (made.empty() || unanswered_.erase(key) == 0)
    return world_.Broken("G3", "session {}: {} is bound, but nobody waits for it", session_, key);
  const SimProgram& of = made.mapped();
  if (of.on_drained || (!program.ok() && of.drains != world_.drains)) {
    Expect(program.status(), "is drained", "bind of a program on a drained island");
    return world_.Count("program refused on a drained island");
  }
  if (!Expect(program.status(), "", "bind of a program")) return;
  last_bound_ = *program;
  programs_[*program] = std::move(made.mapped());
}

void Client::DoProgram() {
  Random& r = world_.random;
  const uint64_t base = AnyHandle();
  if (base == 0) return;
  const ModelArray like = arrays_[base];
  const Sharding& sharding = like.spec.sharding;
  std::set<int32_t> islands;
  for (const int32_t device : sharding.devices()) islands.insert(Virtual(device).slice_index);
  if (islands.size() > 1 || sharding.memory_kind() == "host" || !Even(like.spec) ||
      !OfOnePiece(like) || like.spec.dtype != DType::kU64 || like.spec.shape.num_elements() == 0)
    return;  // an empty value is made anew elsewhere, even if it has failed
  uint64_t handle = 0;
  for (const auto& [number, known] : programs_) {
    if (MadeFor(known, like) && r.Percent(70)) handle = number;
  }
  if (handle == 0) handle = BindProgram(like);
  if (handle == 0) return;
  const SimProgram& program = programs_.at(handle);
  // Arguments of the right type, wherever they lie.
  std::vector<uint64_t> fitting = {base};
  for (const auto& [other, array] : arrays_) {
    if (array.spec.shape == like.spec.shape && array.spec.dtype == like.spec.dtype &&
        array.spec.sharding.num_shards() == sharding.num_shards() &&
        array.spec.sharding.memory_kind() != "host" && SameCut(array.spec, like.spec) &&
        OfOnePiece(array))
      fitting.push_back(other);
  }
  std::vector<uint64_t> args;
  const Graph& graph = program.program.graphs[0];
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!std::holds_alternative<ArgumentNode>(graph.nodes[n].op)) continue;
    // An argument that is a result lies where the result does, so the two share their bytes.
    const bool result = std::any_of(graph.results.begin(), graph.results.end(), [&](ValueRef ref) {
      return ref.node == static_cast<int32_t>(n);
    });
    args.push_back(result ? base : r.Pick(fitting));
  }
  ExecuteOptions options;
  for (size_t a = 0; a < args.size(); ++a) {
    if (r.Percent(20)) options.non_donatable.push_back(static_cast<int32_t>(a));
  }
  std::vector<uint64_t> made = RunProgram(handle, args, options);
  // As in a loop of the client: each run gets what the one before it makes.
  for (int64_t again = r.Percent(25) ? r.Between(1, 3) : 0; again > 0 && !made.empty(); --again) {
    const auto known = programs_.find(handle);
    if (known == programs_.end()) break;
    for (uint64_t& arg : args) {
      const auto last = arrays_.find(r.Pick(made));
      if (last != arrays_.end() && MadeFor(known->second, last->second) && r.Percent(70))
        arg = last->first;
    }
    made = RunProgram(handle, args, options);
  }
  if (session_ && r.Percent(10)) {
    programs_.erase(handle);
    Expect(world_.controller->cluster().programs().Release(session_, handle), "",
           "release of a program");
    world_.controller->Settle();
  }
}

bool Client::MadeFor(const SimProgram& program, const ModelArray& like) const {
  std::vector<DeviceId> devices;
  for (const int32_t device : like.spec.sharding.devices()) devices.push_back(DeviceOf(device));
  return program.slices[0] == devices && program.type == OverPositions(like.spec);
}

bool Client::OfOnePiece(const ModelArray& array) {
  const bool replicated = array.spec.sharding.fully_replicated();
  return std::all_of(array.shards.begin(), array.shards.end(), [&](const ModelShard& shard) {
    return shard.group == array.shards[0].group &&
           (!replicated || shard.value() == array.shards[0].value());
  });
}

std::vector<const ArgumentNode*> Client::Arguments(const SimProgram& program) {
  std::vector<const ArgumentNode*> out;
  for (const ProgramNode& node : program.program.graphs[0].nodes) {
    if (const auto* argument = std::get_if<ArgumentNode>(&node.op)) out.push_back(argument);
  }
  return out;
}

std::vector<uint64_t> Client::RunProgram(uint64_t handle, std::vector<uint64_t> args,
                                         const ExecuteOptions& options) {
  Random& r = world_.random;
  const SimProgram& program = programs_.at(handle);
  const std::vector<const ArgumentNode*> parameters = Arguments(program);
  std::string refusal;
  for (size_t a = args.size(); a > 0; --a) {
    const ModelArray& array = arrays_[args[a - 1]];
    if (array.error.empty() && array.deleted()) refusal = "FAILED_PRECONDITION";
  }
  if (r.Percent(2)) {
    args.push_back(args[0]);
    refusal = "arguments, but";
  }
  std::vector<uint64_t> out;
  if (r.Percent(85)) {
    for (size_t o = 0; o < program.program.graphs[0].results.size(); ++o)
      out.push_back(OutHandle());
  }
  world_.Trace("s{} run {} args [{}] -> [{}]", session_, program.program.name, fmt::join(args, " "),
               fmt::join(out, " "));
  Cluster& cluster = world_.controller->cluster();
  absl::StatusOr<ExecuteResult> run;
  if (!out.empty() && r.Percent(70)) {
    run = ExecuteResult{NodeId(), out,
                        SignatureOf(**cluster.programs().Find(session_, handle)).outputs};
    run->node = cluster.programs().Run(session_, handle, args, options, out,
                                       ExpectsCall(refusal, "run of a program", out));
    Began();
    if (!refusal.empty()) {
      world_.controller->Settle();
      return {};
    }
  } else {
    run = cluster.programs().Run(session_, handle, args, options, out);
    if (!Expect(run.status(), refusal, "run of a program")) {
      Refused(out, run.status());
      world_.controller->Settle();
      return {};
    }
  }
  world_.Count("program");
  world_.Trace("  from n{}", run->node);
  std::vector<ProgramValue> values;
  for (size_t a = 0; a < args.size(); ++a) {
    const ModelArray& array = arrays_[args[a]];
    ProgramValue& value = values.emplace_back();
    std::vector<std::shared_ptr<ModelGroup>> groups;
    for (const ModelShard& shard : array.shards) {
      value.shards.push_back(shard.value());
      value.machines |= shard.group->machines;
      value.surely_failed = value.surely_failed || shard.group->surely_failed;
      groups.push_back(shard.group);
    }
    value.failures = Inherit(groups, world_.config.memory != 0);
    // An argument that was made as an error array.
    if (array.shards.empty()) value.failures = {{run->node, array.error}};
    value.shards.resize(program.slices[0].size());
  }
  const auto results = Interpret(program, 0, values, run->node);
  std::set<const ModelGroup*> returned;
  for (size_t o = 0; o < results.size(); ++o) {
    const ProgramValue& value = results[o];
    const int32_t from = program.program.graphs[0].results[o].node;
    const ProgramNode& node = program.program.graphs[0].nodes[from];
    if (std::holds_alternative<ArgumentNode>(node.op)) {
      world_.Count("argument as result");
      const auto before = std::count_if(
          program.program.graphs[0].nodes.begin(), program.program.graphs[0].nodes.begin() + from,
          [](const ProgramNode& other) { return std::holds_alternative<ArgumentNode>(other.op); });
      const ModelArray& argument = arrays_[args[static_cast<size_t>(before)]];
      for (const ModelShard& shard : argument.shards) returned.insert(shard.group.get());
      arrays_[run->handles[o]] = {run->specs[o], argument.shards, argument.error};
      continue;
    }
    const auto& compute = std::get<ComputeNode>(node.op);
    auto group = std::make_shared<ModelGroup>();
    group->failures = value.failures;
    group->machines = value.machines;
    group->surely_failed = value.surely_failed;
    ModelArray array{run->specs[o], {}, {}};
    const Shape shard = program.type.sharding.ShardShape(program.type.shape, 0).value();
    for (size_t i = 0; i < value.shards.size(); ++i) {
      const DeviceId device = program.slices[compute.slice][i];
      group->values.push_back(value.shards[i]);
      group->devices.push_back(device);
      group->kinds.emplace_back();
      group->shapes.push_back(shard);
      group->deleted.push_back(false);
      group->places |= BitsOf(device);
      array.shards.push_back({group, static_cast<int32_t>(i)});
    }
    arrays_[run->handles[o]] = std::move(array);
  }
  for (size_t a = 0; a < args.size(); ++a) {
    const bool kept = std::find(options.non_donatable.begin(), options.non_donatable.end(),
                                static_cast<int32_t>(a)) != options.non_donatable.end();
    ModelArray& array = arrays_[args[a]];
    if (!parameters[a]->donated || kept || !array.error.empty()) continue;
    const bool stays =
        std::any_of(array.shards.begin(), array.shards.end(),
                    [&](const ModelShard& shard) { return returned.contains(shard.group.get()); });
    if (stays) {
      DonateAll(args[a]);
    } else {
      array.Delete();
    }
  }
  world_.controller->Settle();
  return run->handles;
}

std::vector<Client::ProgramValue> Client::Interpret(const SimProgram& program, size_t graph,
                                                    const std::vector<ProgramValue>& arguments,
                                                    NodeId run) {
  const Graph& in = program.program.graphs[graph];
  std::vector<std::vector<ProgramValue>> made;
  size_t next = 0;
  const auto on = [&](int32_t slice, ProgramValue& value) {
    for (const DeviceId device : program.slices[slice]) value.machines |= BitsOf(device);
  };
  for (const ProgramNode& node : in.nodes) {
    std::vector<ProgramValue> inputs;
    for (const ValueRef ref : InputsOf(node)) inputs.push_back(made[ref.node][ref.output]);
    std::vector<ProgramValue> out;
    if (const auto* argument = std::get_if<ArgumentNode>(&node.op)) {
      out = {arguments[next++]};
      on(argument->type.slice, out[0]);
    } else if (const auto* constant = std::get_if<ConstantNode>(&node.op)) {
      ProgramValue& value = out.emplace_back();
      value.shards.assign(program.slices[0].size(), ValueOf(*Blob::Copy(*constant->bytes)));
      on(constant->type.slice, value);
    } else if (const auto* transfer = std::get_if<TransferNode>(&node.op)) {
      out = inputs;
      on(transfer->type.slice, out[0]);
    } else if (const auto* compute = std::get_if<ComputeNode>(&node.op)) {
      out = {Computed(program, *compute, inputs, run)};
      on(compute->slice, out[0]);
    } else if (const auto* loop = std::get_if<LoopNode>(&node.op)) {
      out = inputs;
      // Carried values lie where the body takes them, even if the body never runs.
      size_t carried = 0;
      for (const ProgramNode& in_body : program.program.graphs[loop->body].nodes) {
        if (const auto* argument = std::get_if<ArgumentNode>(&in_body.op))
          on(argument->type.slice, out[carried++]);
      }
      for (int64_t i = 0; i < loop->count; ++i) out = Interpret(program, loop->body, out, run);
    } else if (const auto* branch = std::get_if<BranchNode>(&node.op)) {
      const auto index = static_cast<int64_t>(inputs[0].shards[0]);
      const auto bodies = static_cast<int64_t>(branch->bodies.size());
      const std::vector<ProgramValue> rest(inputs.begin() + 1, inputs.end());
      out =
          Interpret(program, branch->bodies[std::clamp<int64_t>(index, 0, bodies - 1)], rest, run);
      for (ProgramValue& value : out) {
        const bool fails = !sim::MayBeFine(inputs[0].failures) || inputs[0].surely_failed;
        const auto& scalar = std::get<ComputeNode>(in.nodes[branch->index.node].op);
        if (fails && !OnSeveral(On(program.slices[scalar.slice]))) {
          value.failures = inputs[0].failures;
          value.surely_failed = inputs[0].surely_failed;
        } else {
          Add(inputs[0].failures, value.failures);
          value.surely_failed = value.surely_failed || inputs[0].surely_failed;
        }
        value.machines |= inputs[0].machines;
      }
    }
    made.push_back(std::move(out));
  }
  std::vector<ProgramValue> results;
  for (const ValueRef ref : in.results) results.push_back(made[ref.node][ref.output]);
  return results;
}

uint64_t Client::On(const std::vector<DeviceId>& devices) const {
  uint64_t machines = 0;
  for (const DeviceId device : devices) machines |= BitsOf(device);
  return machines;
}

Client::ProgramValue Client::Computed(const SimProgram& program, const ComputeNode& compute,
                                      const std::vector<ProgramValue>& inputs, NodeId run) {
  const auto& bound = program.binding.code.at({compute.computation, compute.slice});
  const Code& code = world_.codes.at(bound.executable);
  ProgramValue out;
  Inputs values;
  // An input may have failed on one executor only. Another one then goes on to the next failure.
  const bool spread = OnSeveral(On(program.slices[compute.slice]));
  for (const ProgramValue& input : inputs) {
    values.push_back(input.shards);
    out.machines |= input.machines;
    out.surely_failed = out.surely_failed || input.surely_failed;
    // The error of the first failed input is reported.
    if (spread || sim::MayBeFine(out.failures)) Add(input.failures, out.failures);
  }
  if (sim::MayBeFine(out.failures) || (spread && code.separable)) {
    for (std::string& text : code.Failures(values)) out.failures.push_back({run, std::move(text)});
  }
  for (size_t i = 0; i < program.slices[compute.slice].size(); ++i)
    out.shards.push_back(code.Output(values, 0, i));
  return out;
}

}  // namespace fairway::sim
