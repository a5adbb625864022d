// SPDX-License-Identifier: Apache-2.0
// The stages of a run of a program: each call does one item.
#include <algorithm>
#include <set>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

void Cluster::ProgramRuns::GoOnRun(Session& session, ProgramRun& run) {
  using Stage = ProgramRun::Stage;
  const PlacedProgram& placed = *run.program->placed;
  const ProgramPlan& plan = placed.plan;
  // Whether the stage has another item; if not, the next stage begins.
  const auto has = [&](size_t items) {
    if (run.next < items) return true;
    run.next = 0;
    run.stage = static_cast<Stage>(static_cast<int>(run.stage) + 1);
    return false;
  };
  switch (run.stage) {
    case Stage::kHandles:
      if (has(plan.results.size())) return AddHandle(session, run);
      return CheckArgumentCount(run);
    case Stage::kArguments:
      if (has(static_cast<size_t>(plan.arguments))) return CheckNextArgument(session, run);
      run.checked = true;
      if (run.token) run.watch = s.watches.Add(session, *run.token);
      return;
    case Stage::kConstants:
      if (has(placed.constants.size())) PutNextConstant(session, run);
      return;
    case Stage::kReshards:
      if (run.arguments.empty()) {
        has(0);
      } else if (run.making == nullptr) {
        const ProgramRun::Resharded& next = run.arguments.front();
        run.making = s.remaking.NewValue(*next.from, placed.TypeOf(next.argument),
                                         placed.sequential, run.pieces);
      } else {
        GoOnArgument(session, run);
      }
      return;
    case Stage::kShared:
      if (has(run.values.size())) KeepShared(run);
      return;
    case Stage::kSteps:
      if (has(plan.steps.size())) GoOnStep(session, run);
      return;
    case Stage::kResults:
      if (has(run.checked || run.handles.asked() ? plan.results.size() : 0))
        PutResult(session, run);
      return;
    case Stage::kDonations:
      if (has(run.refused.ok() ? run.donated.size() : 0)) Donate(session, run);
      return;
    case Stage::kValues:
      DropValue(run);
      if (run.values.empty()) run.stage = Stage::kOver;
      return;
    case Stage::kOver:
      return;
  }
}

void Cluster::ProgramRuns::AddHandle(Session& session, ProgramRun& run) {
  ++run.next;
  run.refused = s.requests.AddHandle(session, run.handles);
  if (!run.refused.ok()) run.stage = ProgramRun::Stage::kValues;
}

void Cluster::ProgramRuns::CheckArgumentCount(ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  if (run.args.size() == static_cast<size_t>(placed.plan.arguments)) return;
  run.refused = InvalidArgument("{} takes {} arguments, but {} were given", placed.name,
                                placed.plan.arguments, run.args.size());
  run.stage = ProgramRun::Stage::kResults;
}

void Cluster::ProgramRuns::CheckNextArgument(Session& session, ProgramRun& run) {
  run.refused = TakeArgument(session, run, static_cast<int32_t>(run.next++));
  if (run.refused.ok()) return;
  run.next = 0;
  run.stage = ProgramRun::Stage::kResults;
}

absl::Status Cluster::ProgramRuns::TakeArgument(Session& session, ProgramRun& run, int32_t a) {
  const PlacedProgram& placed = *run.program->placed;
  const absl::StatusOr<Array*> found = s.FindIn(session, run.args[a]);
  if (!found.ok()) return Annotate(found.status(), fmt::format("{}: argument {}", placed.name, a));
  const Array& array = **found;
  FAIRWAY_ASSIGN_OR_RETURN(const bool fits, TakesAsItIs(placed, a, array, run.args[a]));
  Array& value = run.ValueOf(a);
  if (!array.error.ok()) {
    // An error array may be of another type. As a result it must have the program's type.
    value = Array{placed.TypeOf(a), {}, array.error};
  } else if (fits) {
    value = array;
    s.views.Hold(value);
  } else {
    run.arguments.push_back({a, &array});
  }
  run.ours[a] = placed.plan.donated[a] && (run.kept.empty() || !run.kept[a]);
  if (run.ours[a] && array.error.ok()) run.donated.push_back(run.args[a]);
  return absl::OkStatus();
}

// Constants that were lost with an executor are put anew.
void Cluster::ProgramRuns::PutNextConstant(Session& session, ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  const PlacedProgram::Constant& constant = placed.constants[run.next++];
  run.refused = Annotate(PutConstant(session, *run.program, constant), placed.name);
  if (!run.refused.ok()) return Refuse(run);
  Array& value = run.ValueOf(constant.value);
  value = run.program->constants.at(constant.value);
  s.views.Hold(value);
}

void Cluster::ProgramRuns::Refuse(ProgramRun& run) {
  run.failed = run.refused;
  run.next = 0;
  run.stage = ProgramRun::Stage::kResults;
}

void Cluster::ProgramRuns::KeepShared(ProgramRun& run) {
  const size_t v = run.next++;
  s.ChargeShards(run.values[v].shards.size());
  if (Planted(Bug::kTakeOverTwice)) return;
  for (const GroupId id : GroupsOf(run.values[v].shards)) {
    const auto [other, fresh] = run.holders.emplace(id, v);
    if (!fresh) run.ours[v] = run.ours[other->second] = false;
  }
}

void Cluster::ProgramRuns::GoOnArgument(Session& session, ProgramRun& run) {
  if (!run.making->GoOn(session)) return;
  const std::unique_ptr<ValueRequest> made = std::move(run.making);
  const int32_t argument = run.arguments.front().argument;
  run.arguments.pop_front();
  run.refused = Annotate(made->result.status(),
                         fmt::format("{}: argument {}", run.program->placed->name, argument));
  run.values[argument] = std::move(made->array);
  run.pieces = made->pieces;
  if (!run.refused.ok()) Refuse(run);
}

void Cluster::ProgramRuns::GoOnStep(Session& session, ProgramRun& run) {
  const ProgramPlan::Step& step = run.program->placed->plan.steps[run.next];
  if (const auto* transfer = std::get_if<ProgramPlan::Transfer>(&step)) {
    GoOnTransfer(session, *transfer, run);
  } else {
    GoOnSequence(session, std::get<ProgramPlan::RunSequence>(step), run);
  }
}

void Cluster::ProgramRuns::GoOnTransfer(Session& session, const ProgramPlan::Transfer& transfer,
                                        ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  const Array& from = run.values[transfer.input];
  const ArraySpec& target = placed.TypeOf(transfer.output);
  if (!from.error.ok()) {
    run.ValueOf(transfer.output) = Array{target, {}, from.error};
    ++run.next;
    return;
  }
  if (run.making == nullptr) run.making = s.remaking.NewValue(from, target, placed.sequential, 0);
  if (!run.making->GoOn(session)) return;
  const std::unique_ptr<ValueRequest> made = std::move(run.making);
  ++run.next;
  Array& to = run.ValueOf(transfer.output);
  if (!made->result.ok()) {
    to = Array{target, {}, made->result.status()};
    return;
  }
  to = std::move(made->array);
  // Shards that already lay there were not copied, and may be the client's.
  const GroupIds shared = GroupsOf(from.shards);
  const std::set<GroupId> groups(shared.begin(), shared.end());
  for (const GroupId group : GroupsOf(to.shards)) {
    if (groups.contains(group)) run.ours[transfer.output] = false;
  }
}

void Cluster::ProgramRuns::GoOnSequence(Session& session, const ProgramPlan::RunSequence& step,
                                        ProgramRun& run) {
  if (run.launch == nullptr) {
    BeginSequence(step, run);
  } else if (run.launch->arguments.size() < step.inputs.size()) {
    GiveInput(session, step, run);
  } else if (run.launch->phase != NewLaunch::Phase::kDone) {
    s.launches.GoOn(session, *run.launch);
  } else if (!run.errors.empty()) {
    s.views.Drop(run.errors.back());
    run.errors.pop_back();
  } else {
    run.launch.reset();
    ++run.next;
  }
}

void Cluster::ProgramRuns::BeginSequence(const ProgramPlan::RunSequence& step, ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  const ExecutableSpec& spec = s.executables.at(run.program->sequences[run.next]);
  run.launch = std::make_unique<NewLaunch>();
  run.launch->spec = &spec;
  run.launch->arguments.reserve(step.inputs.size());
  for (const int32_t input : step.donated) {
    if (run.ours[step.inputs[input]]) run.launch->donatable.push_back(input);
  }
  run.launch->types = {placed.types.data(), step.outputs.data(), placed.plan.values.data()};
  run.launch->poison = s.launches.CheckSendable(spec);
  if (run.failed.ok()) run.failed = run.launch->poison;
  run.launch->put = [&run, &step](size_t output, Array array) {
    run.ValueOf(step.outputs[output]) = std::move(array);
  };
}

void Cluster::ProgramRuns::GiveInput(const Session& session, const ProgramPlan::RunSequence& step,
                                     ProgramRun& run) {
  s.Charge(1);
  NewLaunch& launch = *run.launch;
  const Array& array = run.values[step.inputs[launch.arguments.size()]];
  if (!array.error.ok()) run.errors.push_back(FailedArray(session, *launch.spec, array));
  launch.arguments.push_back(array.error.ok() ? &array : &run.errors.back());
}

void Cluster::ProgramRuns::PutResult(Session& session, ProgramRun& run) {
  const PlacedProgram& placed = *run.program->placed;
  const size_t r = run.next++;
  const int32_t value = placed.plan.results[r];
  const uint64_t handle = run.handles[r];
  run.handles.Used(r);
  if (run.checked && run.each != nullptr) run.each(handle);
  if (!run.refused.ok()) {
    session.arrays.emplace(handle, Array{placed.TypeOf(value), {}, run.refused});
    return;
  }
  Array array = run.values[value];
  if (run.failed.ok()) run.failed = array.error;
  s.views.Hold(array);
  for (const GroupId group : GroupsOf(array.shards)) run.returned.insert(group);
  session.arrays.emplace(handle, std::move(array));
}

void Cluster::ProgramRuns::Donate(Session& session, ProgramRun& run) {
  Array& array = session.arrays.at(run.donated[run.next++]);
  const bool stays = std::any_of(array.shards.begin(), array.shards.end(),
                                 [&](ShardRef ref) { return run.returned.contains(ref.group); });
  // Buffers that are results as well belong to the results from here on.
  stays ? s.views.GiveAway(array) : s.views.MarkDeleted(array.shards);
}

void Cluster::ProgramRuns::DropValue(ProgramRun& run) {
  if (run.values.empty()) return;
  s.views.Drop(run.values.back());
  run.values.pop_back();
}

bool Cluster::ProgramRuns::GiveUp(ProgramRun& run) {
  constexpr int kAtOnce = 16;
  if (run.making != nullptr) {
    if (run.making->GiveUp()) run.making.reset();
    return false;
  }
  if (run.launch != nullptr) {
    s.launches.GiveUp(*run.launch);
    run.launch.reset();
    return false;
  }
  for (int i = 0; i < kAtOnce && !run.errors.empty(); ++i) {
    s.views.Drop(run.errors.back());
    run.errors.pop_back();
  }
  for (int i = 0; i < kAtOnce; ++i) DropValue(run);
  return run.errors.empty() && run.values.empty();
}

}  // namespace fairway
