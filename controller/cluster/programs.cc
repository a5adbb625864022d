// SPDX-License-Identifier: Apache-2.0
// Runs of programs: each is a few launches of sequences, and transfers.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

std::string TypeText(const ArraySpec& spec) { return ToString(spec.dtype, spec.shape); }

}  // namespace

absl::StatusOr<bool> Cluster::ProgramRuns::TakesAsItIs(const PlacedProgram& program,
                                                       int32_t argument, const Array& array,
                                                       uint64_t handle) const {
  if (!array.error.ok()) return true;
  const auto what = [&] { return fmt::format("{}: argument {}", program.name, argument); };
  if (absl::Status usable = s.views.CheckUsable(array, handle); !usable.ok())
    return Annotate(usable, what());
  const ArraySpec& want = program.TypeOf(argument);
  if (array.spec.dtype != want.dtype || array.spec.shape != want.shape)
    return InvalidArgument("{} is {}, expected {}", what(), TypeText(array.spec), TypeText(want));
  return array.spec.sharding.devices() == want.sharding.devices() && SameCut(array.spec, want);
}

absl::StatusOr<ExecuteResult> Cluster::Programs::Run(SessionId session_id, uint64_t handle,
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
  const PlacedProgram& placed = *program.placed;
  const ProgramPlan& plan = placed.plan;
  if (!out.empty() && out.size() != plan.results.size())
    return InvalidArgument("{} has {} results, but {} handles were given for them", placed.name,
                           plan.results.size(), out.size());
  ExecuteResult result;
  result.node = NodeId(s.nodes.next_node);
  for (const int32_t value : plan.results) result.specs.push_back(placed.TypeOf(value));
  FAIRWAY_ASSIGN_OR_RETURN(result.handles, s.NewHandles(*session, out, plan.results.size()));
  auto run = std::make_unique<ProgramRun>();
  run->program = &program;
  run->results = result.handles;
  if (absl::Status begun = s.programs.BeginRun(*session, program, args, options, *run);
      !begun.ok()) {
    for (size_t o = 0; o < out.size(); ++o)
      session->arrays.emplace(out[o], Array{result.specs[o], {}, begun});
    return begun;
  }
  if (options.watch)
    run->watch = s.watches.Add(*session, *options.watch);  // open until all are made
  run->watch_results = options.watch_results;
  // The steps of a short program are all made at once.
  Worklist& list = s.WorkOf(session_id);
  list.run = std::move(run);
  const uint64_t until = s.units + kSliceUnits;
  while (list.run != nullptr && s.units < until) s.programs.GoOn(session_id, list);
  s.work.GoOn();
  return result;
}

void Cluster::ProgramRuns::KeepShared(ProgramRun& run) {
  if (Planted(Bug::kTakeOverTwice)) return;
  std::unordered_map<GroupId, size_t> of;  // the value that holds the group
  for (size_t v = 0; v < run.values.size(); ++v) {
    s.ChargeShards(run.values[v].shards.size());
    for (const GroupId id : GroupsOf(run.values[v].shards)) {
      const auto [other, fresh] = of.emplace(id, v);
      if (!fresh) run.ours[v] = run.ours[other->second] = false;
    }
  }
}

absl::Status Cluster::ProgramRuns::BeginRun(Session& session, BoundProgram& program,
                                            const std::vector<uint64_t>& args,
                                            const ExecuteOptions& options, ProgramRun& run) {
  const PlacedProgram& placed = *program.placed;
  const ProgramPlan& plan = placed.plan;
  if (args.size() != static_cast<size_t>(plan.arguments))
    return InvalidArgument("{} takes {} arguments, but {} were given", placed.name, plan.arguments,
                           args.size());
  run.values.resize(static_cast<size_t>(plan.arguments) + placed.constants.size());
  run.ours.assign(plan.values.size(), true);
  const std::vector<bool> kept = options.Kept(args.size());
  for (int32_t a = 0; a < plan.arguments; ++a) {
    const absl::StatusOr<Array*> found = s.FindIn(session, args[a]);
    if (!found.ok())
      return Annotate(found.status(), fmt::format("{}: argument {}", placed.name, a));
    const Array& array = **found;
    FAIRWAY_ASSIGN_OR_RETURN(const bool fits, TakesAsItIs(placed, a, array, args[a]));
    if (!array.error.ok()) {
      // An error array may be of another type. As a result it must have the program's type.
      run.values[a] = Array{placed.TypeOf(a), {}, array.error};
    } else if (fits) {
      run.values[a] = array;
    } else {
      run.arguments.push_back({a, &array});
    }
    run.ours[a] = plan.donated[a] && !kept[a];
    if (run.ours[a] && array.error.ok()) run.donated.push_back(args[a]);
  }
  for (int32_t a = 0; a < plan.arguments; ++a) s.views.Hold(run.values[a]);
  return absl::OkStatus();
}

void Cluster::ProgramRuns::GoOn(SessionId id, Worklist& list) {
  ProgramRun& run = *list.run;
  Session& session = s.sessions.at(id);
  const NodeId first(s.nodes.next_node);
  const bool made = GoOnRun(session, run);
  if (run.watch != 0) s.watches.AddNodes(session, first, run.watch);
  if (!made) return;
  if (!std::exchange(run.ended, true)) EndRun(session, run);
  constexpr int kAtOnce = 16;
  for (int i = 0; i < kAtOnce && !run.values.empty(); ++i) {
    s.views.Drop(run.values.back());
    run.values.pop_back();
  }
  if (!run.values.empty()) return;
  if (run.watch != 0) s.watches.Ended(id, run.watch, 0, run.failed, NodeId());
  const std::unique_ptr<ProgramRun> over = std::move(list.run);
  if (over->watch_results)
    list.request = s.requests.NewWatch(session, *over->watch_results, over->results);
}

bool Cluster::ProgramRuns::GoOnRun(Session& session, ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  if (run.ended || !run.refused.ok()) return true;
  if (run.making != nullptr) {
    GoOnMaking(session, run);
  } else if (run.next_constant < placed.constants.size()) {
    // Constants that were lost with an executor are put anew.
    const PlacedProgram::Constant& constant = placed.constants[run.next_constant++];
    run.refused = Annotate(PutConstant(session, *run.program, constant), placed.name);
    if (!run.refused.ok()) return true;
    Array& value = run.values[constant.value];
    value = run.program->constants.at(constant.value);
    s.views.Hold(value);
  } else if (!run.arguments.empty()) {
    const ProgramRun::Resharded& next = run.arguments.front();
    run.making = s.remaking.NewValue(*next.from, placed.TypeOf(next.argument), placed.sequential,
                                     run.pieces);
    GoOnMaking(session, run);
  } else if (run.next_step < placed.plan.steps.size()) {
    if (run.next_step == 0) KeepShared(run);
    const ProgramPlan::Step& step = placed.plan.steps[run.next_step];
    if (const auto* transfer = std::get_if<ProgramPlan::Transfer>(&step)) {
      const Array& from = run.values[transfer->input];
      const ArraySpec& target = placed.TypeOf(transfer->output);
      if (from.error.ok()) {
        run.making = s.remaking.NewValue(from, target, placed.sequential, 0);
        GoOnMaking(session, run);
      } else {
        run.ValueOf(transfer->output) = Array{target, {}, from.error};
        ++run.next_step;
      }
    } else {
      RunStep(session, std::get<ProgramPlan::RunSequence>(step), run);
      ++run.next_step;
    }
  } else {
    return true;
  }
  return false;
}

void Cluster::ProgramRuns::GoOnMaking(Session& session, ProgramRun& run) {
  if (!run.making->GoOn(session)) return;
  const std::unique_ptr<ValueRequest> made = std::move(run.making);
  const PlacedProgram& placed = *run.program->placed;
  if (!run.arguments.empty()) {
    const int32_t argument = run.arguments.front().argument;
    run.arguments.pop_front();
    run.refused =
        Annotate(made->result.status(), fmt::format("{}: argument {}", placed.name, argument));
    run.values[argument] = std::move(made->array);
    run.pieces = made->pieces;
    return;
  }
  const auto& transfer = std::get<ProgramPlan::Transfer>(placed.plan.steps[run.next_step++]);
  const Array& from = run.values[transfer.input];
  Array& to = run.ValueOf(transfer.output);
  if (!made->result.ok()) {
    to = Array{placed.TypeOf(transfer.output), {}, made->result.status()};
    return;
  }
  to = std::move(made->array);
  // Shards that already lay there were not copied, and may be the client's.
  const std::vector<GroupId> shared = GroupsOf(from.shards);
  const std::set<GroupId> groups(shared.begin(), shared.end());
  for (const GroupId group : GroupsOf(to.shards)) {
    if (groups.contains(group)) run.ours[transfer.output] = false;
  }
}

void Cluster::ProgramRuns::EndRun(Session& session, ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  const ProgramPlan& plan = placed.plan;
  std::set<GroupId> returned;
  for (size_t r = 0; r < plan.results.size(); ++r) {
    if (!run.refused.ok()) {
      run.failed = run.refused;
      session.arrays.emplace(run.results[r],
                             Array{placed.TypeOf(plan.results[r]), {}, run.refused});
      continue;
    }
    Array array = run.values[plan.results[r]];
    if (run.failed.ok()) run.failed = array.error;
    s.views.Hold(array);
    const std::vector<GroupId> groups = GroupsOf(array.shards);
    returned.insert(groups.begin(), groups.end());
    session.arrays.emplace(run.results[r], std::move(array));
  }
  if (!run.refused.ok()) return;
  for (const uint64_t argument : run.donated) {
    Array& array = session.arrays.at(argument);
    const bool stays = std::any_of(array.shards.begin(), array.shards.end(),
                                   [&](ShardRef ref) { return returned.contains(ref.group); });
    // Buffers that are results as well belong to the results from here on.
    stays ? s.views.GiveAway(array) : s.views.MarkDeleted(array.shards);
  }
}

Array Cluster::ProgramRuns::FailedArray(const Session& session, const ExecutableSpec& spec,
                                        const Array& error) {
  Group& group = s.groups.Make(session.id, spec.island, error.spec.dtype, "");
  group.shapes = {Shape{}};
  Array array{error.spec, {}, absl::OkStatus()};
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    group.places.push_back({s.ExecutorOf(spec.devices[i])->id, 0, spec.devices[i], 0});
    array.shards.push_back({group.id, static_cast<int32_t>(i)});
  }
  s.groups.SetFailed(group, error.error,
                     NodeId(s.nodes.next_node));  // the cause is the node that is made next
  s.views.Hold(array);
  return array;
}

void Cluster::ProgramRuns::RunStep(Session& session, const ProgramPlan::RunSequence& step,
                                   ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  const ExecutableSpec& spec = s.executables.at(run.program->sequences[run.next_step]);
  std::vector<const Array*> arguments;
  std::deque<Array> failed;
  for (const int32_t value : step.inputs) {
    const Array& array = run.values[value];
    if (!array.error.ok()) failed.push_back(FailedArray(session, spec, array));
    arguments.push_back(array.error.ok() ? &array : &failed.back());
  }
  std::vector<int32_t> donatable;
  for (const int32_t input : step.donated) {
    if (run.ours[step.inputs[input]]) donatable.push_back(input);
  }
  const absl::Status sendable = s.launches.CheckSendable(spec);
  if (run.failed.ok()) run.failed = sendable;
  LaunchedNode launched = s.launches.Make(
      session, spec, arguments, donatable,
      {placed.types.data(), step.outputs.data(), placed.plan.values.data()}, sendable);
  for (const Array& array : failed) s.views.Drop(array);
  for (size_t o = 0; o < step.outputs.size(); ++o)
    run.ValueOf(step.outputs[o]) = std::move(launched.outputs[o]);
}

}  // namespace fairway
