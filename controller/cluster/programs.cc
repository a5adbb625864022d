// SPDX-License-Identifier: Apache-2.0
// Runs of programs: each is a few launches of sequences, and transfers. Begun, gone on with,
// answered; what a run does is in program_stages.cc.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

// Items done between two looks at the unit count.
constexpr int kAtOnce = 16;
constexpr uint64_t kUnitsAtOnce = 32;

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
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(session_id));
  FAIRWAY_ASSIGN_OR_RETURN(std::unique_ptr<ProgramRun> run,
                           s.programs.NewRun(*session, handle, args, options, out));
  ExecuteResult result;
  result.node = NodeId(s.nodes.next_node);
  while (!run->checked && run->stage != ProgramRun::Stage::kOver)
    s.programs.GoOnRun(*session, *run);
  if (!run->checked) return run->refused;
  result.handles = run->handles.all();
  const PlacedProgram& placed = *run->program->placed;
  for (const int32_t value : placed.plan.results) result.specs.push_back(placed.TypeOf(value));
  s.programs.BeginRun(session_id, std::move(run));
  return result;
}

NodeId Cluster::Programs::Run(SessionId session_id, uint64_t handle, std::vector<uint64_t> args,
                              const ExecuteOptions& options, std::vector<uint64_t> out, Done done,
                              Each each) {
  const Operation operation(*state_);
  State& s = *state_;
  const NodeId first(s.nodes.next_node);
  const absl::StatusOr<Session*> session = s.FindSession(session_id);
  if (!session.ok()) return first;
  auto run = s.programs.NewRun(**session, handle, std::move(args), options, std::move(out));
  if (!run.ok()) {
    s.requests.AnswerAtOnce(session_id, std::move(done), run.status());
    return first;
  }
  (*run)->done = std::move(done);
  (*run)->each = std::move(each);
  s.programs.BeginRun(session_id, *std::move(run));
  return first;
}

absl::StatusOr<std::unique_ptr<ProgramRun>> Cluster::ProgramRuns::NewRun(
    Session& session, uint64_t handle, std::vector<uint64_t> args, const ExecuteOptions& options,
    std::vector<uint64_t> out) {
  ++s.executions;
  const auto it = session.programs.find(handle);
  if (it == session.programs.end())
    return Error(absl::StatusCode::kNotFound, "there is no program {} in this session", handle);
  const PlacedProgram& placed = *it->second->placed;
  const ProgramPlan& plan = placed.plan;
  if (!out.empty() && out.size() != plan.results.size())
    return InvalidArgument("{} has {} results, but {} handles were given for them", placed.name,
                           plan.results.size(), out.size());
  auto run =
      std::make_unique<ProgramRun>(it->second.get(), std::move(args), options, std::move(out));
  run->handles.Reserve(plan.results.size());
  run->ours.assign(plan.values.size(), true);
  return run;
}

void Cluster::ProgramRuns::BeginRun(SessionId session, std::unique_ptr<ProgramRun> run) {
  // The steps of a short program are all made at once.
  Worklist& list = s.WorkOf(session);
  list.run = std::move(run);
  const uint64_t until = s.units + std::min(kSliceUnits, s.options.turn_units);
  while (list.run != nullptr && s.units < until) GoOn(session, list);
  if (list.run != nullptr) s.Hold(session, list.run->hold, list.run->program->placed->islands);
  s.work.GoOn();
}

void Cluster::ProgramRuns::GoOn(SessionId id, Worklist& list) {
  ProgramRun& run = *list.run;
  Session& session = s.sessions.at(id);
  const NodeId first(s.nodes.next_node);
  const uint64_t until = s.units + kUnitsAtOnce;
  for (int i = 0; i < kAtOnce && s.units < until && run.stage != ProgramRun::Stage::kOver; ++i)
    GoOnRun(session, run);
  if (run.watch != 0) s.watches.AddNodes(session, first, run.watch);
  if (run.stage != ProgramRun::Stage::kOver) return;
  if (run.watch != 0) s.watches.Ended(id, run.watch, 0, run.failed, NodeId());
  const std::unique_ptr<ProgramRun> over = std::move(list.run);
  if (over->checked && over->watch_results)
    list.request = s.requests.NewWatch(session, *over->watch_results, over->handles.all());
  if (over->done == nullptr) return;
  absl::StatusOr<std::vector<uint64_t>> result = over->handles.Take();
  if (!over->checked) result = over->refused;
  s.answers.push_back({id, Answer::Ended{std::move(over->done), std::move(result)}});
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

}  // namespace fairway
