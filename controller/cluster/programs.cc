// SPDX-License-Identifier: Apache-2.0
// Programs on devices: bound once, then each run is a few launches of sequences, and transfers.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"
#include "core/box.h"

namespace fairway {
namespace {

std::string TypeText(const ArraySpec& spec) { return ToString(spec.dtype, spec.shape); }

}  // namespace

absl::StatusOr<ExecutableSpec> Cluster::State::SequenceSpec(
    const Session& session, const ProgramSource& source, const ProgramPlan::RunSequence& run,
    const std::vector<ArraySpec>& values) const {
  ExecutableSpec spec;
  spec.name = source.name;
  spec.sequence = run.sequence;
  spec.parts = run.executables;
  spec.temp_bytes = run.temp_bytes;
  spec.max_steps = std::max<int64_t>(run.max_steps, 1);
  spec.after_inputs = source.sequential;
  const std::vector<int32_t>& devices = source.slices[run.slice];
  for (const int32_t device : devices) spec.devices.push_back(session.devices[device].device);
  spec.island = session.devices[devices[0]].island_id;
  for (const ExecutableId part : spec.parts) {
    if (!executables.contains(part))
      return Error(absl::StatusCode::kNotFound, "program {}: there is no executable {}",
                   source.name, part);
  }
  const auto type_of = [&](int32_t value) -> absl::StatusOr<ValueType> {
    const ArraySpec& array = values[value];
    FAIRWAY_ASSIGN_OR_RETURN(Shape shard, array.sharding.ShardShape(array.shape, 0));
    ValueType type{array.dtype, array.shape, std::move(shard), {}, {}, "", false};
    type.memory_kind = array.sharding.memory_kind();
    if (!array.sharding.fully_replicated()) {
      type.tiles = array.sharding.tiles();
      type.tile_of = array.sharding.tile_of();
    }
    return type;
  };
  for (const int32_t value : run.inputs) {
    FAIRWAY_ASSIGN_OR_RETURN(spec.parameters.emplace_back(), type_of(value));
  }
  for (const int32_t input : run.donated) spec.parameters[input].donated = true;
  for (const int32_t value : run.outputs) {
    FAIRWAY_ASSIGN_OR_RETURN(spec.outputs.emplace_back(), type_of(value));
  }
  return spec;
}

absl::StatusOr<Array> Cluster::State::PutConstant(Session& session, const ArraySpec& spec,
                                                  const std::string& bytes) {
  std::vector<BytesRef> blobs;
  std::vector<int32_t> blob_of_shard;
  std::map<std::vector<int64_t>, int32_t> known;  // by where the shard lies
  const Box whole = Box::Whole(BytesPerElement(spec.dtype), spec.shape.dims);
  for (int i = 0; i < spec.sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const IndexDomain domain, spec.sharding.Domain(spec.shape, i));
    const auto [at, fresh] = known.try_emplace(domain.origin, static_cast<int32_t>(blobs.size()));
    blob_of_shard.push_back(at->second);
    if (!fresh) continue;
    Box part = whole;
    part.origin = domain.origin;
    part.extents = domain.shape.dims;
    auto blob = Blob::Make(static_cast<size_t>(part.bytes()));
    if (blob == nullptr) return absl::ResourceExhaustedError("no host memory for a constant");
    CopyBox(part, bytes.data(), part.Alone(), blob->data());
    blobs.push_back(std::move(blob));
  }
  FAIRWAY_ASSIGN_OR_RETURN(const PutResult put,
                           MakePut(session, 0, spec, std::move(blob_of_shard)));
  for (size_t b = 0; b < blobs.size(); ++b)
    Provide(put.upload, static_cast<int32_t>(b), std::move(blobs[b]));
  // The program has it, not the client.
  return std::move(session.arrays.extract(put.handle).mapped());
}

absl::StatusOr<std::unique_ptr<BoundProgram>> Cluster::State::MakeProgram(
    Session& session, const ProgramSource& source) {
  auto program = std::make_unique<BoundProgram>();
  program->name = source.name;
  program->sequential = source.sequential;
  program->plan = source.plan;
  for (const SliceSpec& value : source.plan.values) {
    if (value.slice < 0 || static_cast<size_t>(value.slice) >= source.slices.size())
      return InvalidArgument("program {}: slice {} has no devices", source.name, value.slice);
    FAIRWAY_ASSIGN_OR_RETURN(Sharding sharding,
                             value.array.sharding.WithDevices(source.slices[value.slice],
                                                              value.array.sharding.memory_kind()));
    program->values.push_back({value.array.dtype, value.array.shape, std::move(sharding)});
  }
  std::vector<ExecutableSpec> specs;
  for (const ProgramPlan::Step& step : source.plan.steps) {
    program->sequences.emplace_back();
    program->outputs.emplace_back();
    const auto* run = std::get_if<ProgramPlan::RunSequence>(&step);
    if (run == nullptr) continue;
    FAIRWAY_ASSIGN_OR_RETURN(ExecutableSpec spec,
                             SequenceSpec(session, source, *run, program->values));
    spec.id = program->sequences.back() = ExecutableId(next_sequence + specs.size());
    for (const int32_t value : run->outputs)
      program->outputs.back().push_back(program->values[value]);
    specs.push_back(std::move(spec));
  }
  next_sequence += specs.size();
  for (ExecutableSpec& spec : specs) Define(std::move(spec));
  return program;
}

absl::Status Cluster::State::PutConstants(Session& session, BoundProgram& program) {
  for (const ProgramPlan::Constant& constant : program.plan.constants) {
    Array& array = program.constants[constant.value];
    // As a result it is the client's as well, who may have deleted it.
    const bool lost = std::any_of(array.shards.begin(), array.shards.end(), [&](ShardRef ref) {
      const Group& group = *FindGroup(ref.group);
      return group.state == GroupState::kFailed || group.is_deleted(ref.shard);
    });
    if (!array.shards.empty() && !lost) continue;
    DropView(array);
    array = Array();
    FAIRWAY_ASSIGN_OR_RETURN(array,
                             PutConstant(session, program.values[constant.value], *constant.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Cluster::BindProgram(SessionId session_id, uint64_t out,
                                              ProgramSource source) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.LookAt(session_id));
  for (const std::vector<int32_t>& devices : source.slices) {
    FAIRWAY_RETURN_IF_ERROR(
        Annotate(IslandOf(session_id, devices).status(), "program " + source.name));
  }
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, s.NewHandle(*session, out));
  FAIRWAY_ASSIGN_OR_RETURN(std::unique_ptr<BoundProgram> program, s.MakeProgram(*session, source));
  if (absl::Status put = s.PutConstants(*session, *program); !put.ok()) {
    s.Retire(*program);
    return Annotate(put, "program " + source.name);
  }
  session->programs.emplace(handle, std::move(program));
  s.Settle();
  return handle;
}

absl::Status Cluster::ReleaseProgram(SessionId session_id, uint64_t handle) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(session_id));
  absl::Status released = state_->ReleaseProgram(*session, handle);
  state_->Settle();
  return released;
}

absl::Status Cluster::State::ReleaseProgram(Session& session, uint64_t handle) {
  const auto it = session.programs.find(handle);
  if (it == session.programs.end())
    return Error(absl::StatusCode::kNotFound, "there is no program {} in this session", handle);
  Retire(*it->second);
  session.programs.erase(it);
  return absl::OkStatus();
}

void Cluster::State::Retire(BoundProgram& program) {
  for (const auto& [value, array] : program.constants) DropView(array);
  for (const ExecutableId sequence : program.sequences) {
    if (!sequence) continue;
    retired.insert(sequence);
    Forget(sequence);
  }
}

void Cluster::State::Forget(ExecutableId sequence) {
  if (layouts.at(sequence).runs > 0) return;
  for (auto& [id, executor] : executors) {
    if (executor.installs.erase(sequence) > 0) SendTo(executor, DropExecutable{sequence});
  }
  Undefine(sequence);
  retired.erase(sequence);
}

absl::StatusOr<ExecutableSignature> Cluster::ProgramSignature(SessionId session_id,
                                                              uint64_t handle) const {
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->LookAt(session_id));
  const auto it = session->programs.find(handle);
  if (it == session->programs.end())
    return Error(absl::StatusCode::kNotFound, "there is no program {} in this session", handle);
  const BoundProgram& program = *it->second;
  ExecutableSignature out;
  out.name = program.name;
  out.parameters.assign(program.values.begin(), program.values.begin() + program.plan.arguments);
  out.donated = program.plan.donated;
  for (const int32_t value : program.plan.results) out.outputs.push_back(program.values[value]);
  return out;
}

absl::StatusOr<Array> Cluster::State::ArgumentOf(Session& session, const BoundProgram& program,
                                                 int32_t argument, uint64_t handle, Making& made) {
  const std::string what = fmt::format("{}: argument {}", program.name, argument);
  const absl::StatusOr<Array*> found = FindArray(session.id, handle);
  if (!found.ok()) return Annotate(found.status(), what);
  const Array& array = **found;
  const ArraySpec& want = program.values[argument];
  // It may be of another type, or deleted; what is handed on as a result is neither.
  if (!array.error.ok()) return Array{want, {}, array.error};
  FAIRWAY_RETURN_IF_ERROR(Annotate(CheckUsable(array, handle), what));
  if (array.spec.dtype != want.dtype || array.spec.shape != want.shape)
    return InvalidArgument("{} is {}, expected {}", what, TypeText(array.spec), TypeText(want));
  if (array.spec.sharding.devices() == want.sharding.devices() && SameCut(array.spec, want))
    return array;
  absl::StatusOr<Array> moved = ReshardedAtOnce(session, array, want, made);
  if (!moved.ok()) return Annotate(moved.status(), what);
  return moved;
}

absl::StatusOr<ExecuteResult> Cluster::RunProgram(SessionId session_id, uint64_t handle,
                                                  const std::vector<uint64_t>& args,
                                                  const ExecuteOptions& options,
                                                  const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  State& s = *state_;
  ++s.executions;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(session_id));
  const auto it = session->programs.find(handle);
  if (it == session->programs.end())
    return Error(absl::StatusCode::kNotFound, "there is no program {} in this session", handle);
  BoundProgram& program = *it->second;
  const ProgramPlan& plan = program.plan;
  if (!out.empty() && out.size() != plan.results.size())
    return InvalidArgument("{} has {} results, but {} handles were given for them", program.name,
                           plan.results.size(), out.size());
  ExecuteResult result;
  result.node = NodeId(s.next_node);
  for (const int32_t value : plan.results) result.specs.push_back(program.values[value]);
  FAIRWAY_ASSIGN_OR_RETURN(result.handles, s.NewHandles(*session, out, plan.results.size()));
  auto run = std::make_unique<ProgramRun>();
  run->program = &program;
  run->results = result.handles;
  const NodeId first(s.next_node);
  if (absl::Status begun = s.BeginRun(*session, program, args, options, *run); !begun.ok()) {
    for (size_t o = 0; o < out.size(); ++o)
      session->arrays.emplace(out[o], Array{result.specs[o], {}, begun});
    return begun;
  }
  if (options.watch) {
    run->watch = s.AddWatch(*session, *options.watch);  // open until all nodes are made
    s.WatchFrom(*session, first, run->watch);
  }
  // A program of a few steps is made at once.
  Worklist& list = s.WorkOf(session_id);
  list.run = std::move(run);
  const uint64_t until = s.units + kSliceUnits;
  while (list.run != nullptr && s.units < until) s.GoOn(session_id, list);
  s.Settle();
  return result;
}

void Cluster::State::KeepShared(const BoundProgram& program, ProgramRun& run) {
  if (Planted(Bug::kTakeOverTwice)) return;
  std::unordered_map<GroupId, int32_t> of;  // the value that has it
  for (const auto& [value, array] : program.constants) {
    for (const GroupId id : GroupsOf(array.shards)) of.emplace(id, value);
  }
  for (int32_t a = 0; a < program.plan.arguments; ++a) {
    for (const GroupId id : GroupsOf(run.values[a].shards)) {
      const auto [other, fresh] = of.emplace(id, a);
      if (!fresh) run.ours[a] = run.ours[other->second] = false;
    }
  }
}

absl::Status Cluster::State::BeginRun(Session& session, BoundProgram& program,
                                      const std::vector<uint64_t>& args,
                                      const ExecuteOptions& options, ProgramRun& run) {
  const ProgramPlan& plan = program.plan;
  // Constants that an executor took with it are put anew.
  FAIRWAY_RETURN_IF_ERROR(Annotate(PutConstants(session, program), program.name));
  if (args.size() != static_cast<size_t>(plan.arguments))
    return InvalidArgument("{} takes {} arguments, but {} were given", program.name, plan.arguments,
                           args.size());
  run.values.resize(plan.values.size());
  run.ours.assign(plan.values.size(), true);
  Charge(plan.values.size() / kShardsPerUnit);
  const std::vector<bool> kept = options.Kept(args.size());
  Making made;
  for (int32_t a = 0; a < plan.arguments; ++a) {
    absl::StatusOr<Array> argument = ArgumentOf(session, program, a, args[a], made);
    if (!argument.ok()) return argument.status();
    run.values[a] = *std::move(argument);
    run.ours[a] = plan.donated[a] && !kept[a];
    if (run.ours[a] && run.values[a].error.ok()) run.donated.push_back(args[a]);
  }
  KeepShared(program, run);
  const std::vector<Node*> nodes = InsertAll(session, made);
  for (int32_t a = 0; a < plan.arguments; ++a) HoldView(run.values[a]);
  for (Node* node : nodes) {
    node->after_inputs = program.sequential;
    Enqueue(*node);
  }
  for (const auto& [value, array] : program.constants) {
    run.values[value] = array;
    HoldView(array);
  }
  return absl::OkStatus();
}

void Cluster::State::GoOn(SessionId id, Worklist& list) {
  ProgramRun& run = *list.run;
  Session& session = sessions.at(id);
  if (run.next_step < run.program->plan.steps.size()) {
    const NodeId first(next_node);
    RunStep(session, *run.program, run.next_step++, run.values, run.ours);
    if (run.watch != 0) WatchFrom(session, first, run.watch);
    return;
  }
  if (!std::exchange(run.ended, true)) EndRun(session, run);
  constexpr int kAtOnce = 16;
  for (int i = 0; i < kAtOnce && !run.values.empty(); ++i) {
    DropView(run.values.back());
    run.values.pop_back();
  }
  if (!run.values.empty()) return;
  if (run.watch != 0) WatchEnded(id, run.watch, 0, run.failed, NodeId());
  list.run.reset();
}

void Cluster::State::EndRun(Session& session, ProgramRun& run) {
  const ProgramPlan& plan = run.program->plan;
  std::set<GroupId> returned;
  for (size_t r = 0; r < plan.results.size(); ++r) {
    Array array = run.values[plan.results[r]];
    if (run.failed.ok()) run.failed = array.error;
    HoldView(array);
    const std::vector<GroupId> groups = GroupsOf(array.shards);
    returned.insert(groups.begin(), groups.end());
    session.arrays.emplace(run.results[r], std::move(array));
  }
  for (const uint64_t argument : run.donated) {
    Array& array = session.arrays.at(argument);
    const bool stays = std::any_of(array.shards.begin(), array.shards.end(),
                                   [&](ShardRef ref) { return returned.contains(ref.group); });
    // What is handed on as a result is the result's from here on.
    stays ? GiveAway(array) : MarkDeleted(array.shards);
  }
}

Array Cluster::State::FailedArray(const Session& session, const ExecutableSpec& spec,
                                  const Array& error) {
  Group& group = MakeGroup(session.id, spec.island, error.spec.dtype, "");
  group.shapes = {Shape{}};
  Array array{error.spec, {}, absl::OkStatus()};
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    group.places.push_back({ExecutorOf(spec.devices[i])->id, 0, spec.devices[i], 0});
    array.shards.push_back({group.id, static_cast<int32_t>(i)});
  }
  SetFailed(group, error.error, NodeId(next_node));  // as that of the node that is given it
  HoldView(array);
  return array;
}

void Cluster::State::RunStep(Session& session, const BoundProgram& program, size_t step,
                             std::vector<Array>& values, std::vector<bool>& ours) {
  const ProgramPlan& plan = program.plan;
  if (const auto* transfer = std::get_if<ProgramPlan::Transfer>(&plan.steps[step])) {
    const Array& from = values[transfer->input];
    Array& to = values[transfer->output];
    const ArraySpec& target = program.values[transfer->output];
    Making made;
    absl::StatusOr<Array> moved = from.error.ok() ? ReshardedAtOnce(session, from, target, made)
                                                  : absl::StatusOr<Array>(from.error);
    if (!moved.ok()) {
      to = Array{target, {}, moved.status()};
      return;
    }
    to = *std::move(moved);
    const std::vector<Node*> nodes = InsertAll(session, made);
    HoldView(to);
    // What already lay there was not copied, and may be the client's.
    const std::vector<GroupId> shared = GroupsOf(from.shards);
    for (const ShardRef& ref : to.shards) {
      if (std::find(shared.begin(), shared.end(), ref.group) != shared.end())
        ours[transfer->output] = false;
    }
    for (Node* node : nodes) {
      node->after_inputs = program.sequential;
      Enqueue(*node);
    }
    return;
  }
  const auto& run = std::get<ProgramPlan::RunSequence>(plan.steps[step]);
  const ExecutableSpec& spec = executables.at(program.sequences[step]);
  std::vector<const Array*> arguments;
  std::deque<Array> failed;
  for (const int32_t value : run.inputs) {
    const bool well = values[value].error.ok();
    if (!well) failed.push_back(FailedArray(session, spec, values[value]));
    arguments.push_back(well ? &values[value] : &failed.back());
  }
  std::vector<int32_t> donatable;
  for (const int32_t input : run.donated) {
    if (ours[run.inputs[input]]) donatable.push_back(input);
  }
  LaunchedNode launched =
      MakeLaunch(session, spec, arguments, donatable, program.outputs[step], absl::OkStatus());
  for (const Array& array : failed) DropView(array);
  for (size_t o = 0; o < run.outputs.size(); ++o)
    values[run.outputs[o]] = std::move(launched.outputs[o]);
}

}  // namespace fairway
