// SPDX-License-Identifier: Apache-2.0
// The programs of a session: bound in slices, counted against the session's share, released.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

constexpr int kAtOnce = 16;
constexpr uint64_t kUnitsAtOnce = 32;  // done between two looks at the unit count
// Another thread destroys anything larger.
constexpr size_t kLargeBytes = size_t{64} << 10;

}  // namespace

absl::Status Cluster::Programs::Reserve(SessionId session_id, uint64_t key, const std::string& name,
                                        size_t bytes) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->LookAt(session_id));
  const auto reserved = session->binding.find(key);
  const size_t has = reserved == session->binding.end() ? 0 : reserved->second;
  if (bytes > has) {
    FAIRWAY_RETURN_IF_ERROR(state_->CheckProgramRoom(*session, name, bytes - has));
    session->program_records.Add(bytes - has);
  } else {
    session->program_records.Remove(has - bytes);
  }
  session->binding[key] = bytes;
  if (bytes == 0) session->binding.erase(key);
  return absl::OkStatus();
}

std::unique_ptr<ProgramBind> Cluster::ProgramRuns::NewBind(Session& session, uint64_t key,
                                                           uint64_t out,
                                                           std::shared_ptr<PlacedProgram> program) {
  if (const auto reserved = session.binding.extract(key); !reserved.empty())
    session.program_records.Remove(reserved.mapped());
  auto bind = std::make_unique<ProgramBind>();
  bind->key = key;
  bind->out = out;
  bind->program = std::make_unique<BoundProgram>();
  bind->program->placed = std::move(program);
  const PlacedProgram& placed = *bind->program->placed;
  bind->refusal = s.CheckProgramRoom(session, placed.name, placed.bytes);
  if (bind->refusal.ok()) bind->refusal = CheckIslands(placed);
  if (bind->refusal.ok() && out != 0) bind->refusal = s.NewHandle(session, out).status();
  bind->program->bytes = placed.bytes;
  session.program_records.Add(placed.bytes);
  return bind;
}

absl::Status Cluster::ProgramRuns::CheckIslands(const PlacedProgram& placed) {
  s.ChargeEnds(placed.islands.size());
  for (const IslandId island : placed.islands) {
    FAIRWAY_RETURN_IF_ERROR(Annotate(s.TakesWork(s.islands.at(island)), "program " + placed.name));
  }
  return absl::OkStatus();
}

void Cluster::Programs::Bind(SessionId session_id, uint64_t key, uint64_t out,
                             std::shared_ptr<PlacedProgram> program) {
  const Operation operation(*state_);
  const absl::StatusOr<Session*> session = state_->LookAt(session_id);
  if (!session.ok()) return;
  std::unique_ptr<ProgramBind> bind =
      state_->programs.NewBind(**session, key, out, std::move(program));
  state_->WorkOf(session_id).binds.push_back(std::move(bind));
  state_->work.GoOn();
}

absl::StatusOr<uint64_t> Cluster::Programs::Bind(SessionId session_id, uint64_t out,
                                                 ProgramSource source) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->LookAt(session_id));
  FAIRWAY_ASSIGN_OR_RETURN(auto program, PlaceProgram(std::move(source), session->devices));
  const auto bind = state_->programs.NewBind(*session, 0, out, std::move(program));
  while (!state_->programs.GoOnBind(*session, *bind)) {
  }
  state_->work.GoOn();
  if (!bind->refusal.ok()) return bind->refusal;
  return bind->out;
}

void Cluster::ProgramRuns::GoOnBind(Session& session, Worklist& list) {
  ProgramBind& bind = *list.binds.front();
  if (!GoOnBind(session, bind)) return;
  Answer::Bound bound{bind.key, bind.out};
  if (!bind.refusal.ok()) bound.program = bind.refusal;
  s.answers.push_back({session.id, std::move(bound)});
  list.binds.pop_front();
}

bool Cluster::ProgramRuns::GoOnBind(Session& session, ProgramBind& bind) {
  BoundProgram& program = *bind.program;
  PlacedProgram& placed = *program.placed;
  if (!bind.refusal.ok()) return GoOnRetiring(session, program);
  const uint64_t until = s.units + kUnitsAtOnce;
  for (int i = 0; i < kAtOnce && s.units < until && bind.refusal.ok(); ++i) {
    if (bind.parts < placed.parts.size()) {
      bind.refusal = DefineSequence(session, program, placed.parts[bind.parts++]);
    } else if (bind.constants < placed.constants.size()) {
      bind.refusal = Annotate(PutConstant(session, program, placed.constants[bind.constants++]),
                              "program " + placed.name);
    } else {
      // An island may have been drained meanwhile, and the handle may have come into use.
      bind.refusal = CheckIslands(placed);
      if (!bind.refusal.ok()) return false;
      const absl::StatusOr<uint64_t> handle = s.NewHandle(session, bind.out);
      bind.refusal = handle.status();
      if (!handle.ok()) return false;
      bind.out = *handle;
      session.programs.emplace(*handle, std::move(bind.program));
      return true;
    }
  }
  return false;
}

absl::Status Cluster::ProgramRuns::DefineSequence(Session& session, BoundProgram& program,
                                                  PlacedProgram::Part& part) {
  s.Charge(2 + part.spec.parts.size());
  FAIRWAY_RETURN_IF_ERROR(
      Annotate(s.TakesWork(s.islands.at(part.spec.island)), "program " + program.placed->name));
  for (const ExecutableId code : part.spec.parts) {
    if (!s.executables.contains(code))
      return Error(absl::StatusCode::kNotFound, "program {}: there is no executable {}",
                   program.placed->name, code);
  }
  const ExecutableId id = part.spec.id = ExecutableId(next_sequence++);
  if (program.sequences.empty()) program.sequences.reserve(program.placed->plan.steps.size());
  program.sequences.resize(part.step);  // the transfers in between have no sequence
  program.sequences.push_back(id);
  part.layout.session = session.id;
  part.layout.record_bytes = part.bytes;
  program.bytes -= part.bytes;
  s.layouts.emplace(id, std::move(part.layout));
  s.executables.emplace(id, std::move(part.spec));
  return absl::OkStatus();
}

absl::Status Cluster::ProgramRuns::PutConstant(Session& session, BoundProgram& program,
                                               const PlacedProgram::Constant& constant) {
  s.Charge(1);
  Array& array = program.constants[constant.value];
  // A constant that is also a result belongs to the client as well, who may have deleted it.
  const bool lost = std::any_of(array.shards.begin(), array.shards.end(), [&](ShardRef ref) {
    const Group& group = *s.FindGroup(ref.group);
    return group.state == GroupState::kFailed || group.is_deleted(ref.shard);
  });
  if (!array.shards.empty() && !lost) return absl::OkStatus();
  s.views.Drop(array);
  array = Array();
  FAIRWAY_ASSIGN_OR_RETURN(const Arrays::PutResult put,
                           s.uploads.Put(session, 0, program.placed->TypeOf(constant.value),
                                         constant.blob_of_shard, /*lazy=*/false));
  for (size_t b = 0; b < constant.blobs.size(); ++b)
    s.uploads.Provide(put.upload, static_cast<int32_t>(b), constant.blobs[b]);
  // The array belongs to the program, not to the client.
  array = session.arrays.Take(put.handle);
  return absl::OkStatus();
}

absl::Status Cluster::Programs::Release(SessionId session_id, uint64_t handle) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(session_id));
  absl::Status released = state_->programs.ReleaseProgram(*session, handle);
  state_->work.GoOn();
  return released;
}

absl::Status Cluster::ProgramRuns::ReleaseProgram(Session& session, uint64_t handle) {
  auto program = session.programs.extract(handle);
  if (program.empty())
    return Error(absl::StatusCode::kNotFound, "there is no program {} in this session", handle);
  s.WorkOf(session.id).retiring.push_back(std::move(program.mapped()));
  return absl::OkStatus();
}

void Cluster::ProgramRuns::GoOnRetiring(SessionId id, Worklist& list) {
  if (GoOnRetiring(*s.RestOf(id), *list.retiring.front())) list.retiring.pop_front();
}

bool Cluster::ProgramRuns::GoOnRetiring(Session& session, BoundProgram& program) {
  const uint64_t until = s.units + kUnitsAtOnce;
  for (int i = 0; i < kAtOnce && s.units < until; ++i) {
    s.Charge(1);
    if (!program.constants.empty()) {
      const auto last = std::prev(program.constants.end());
      s.ChargeShards(last->second.shards.size());
      s.views.Drop(last->second);
      program.constants.erase(last);
    } else if (!program.sequences.empty() &&
               !(Planted(Bug::kLeaveSequence) && program.sequences.size() == 1)) {
      const ExecutableId sequence = program.sequences.back();
      program.sequences.pop_back();
      if (!sequence) continue;
      retired.insert(sequence);
      Forget(sequence);
    } else {
      session.program_records.Remove(std::exchange(program.bytes, 0));
      if (program.placed->bytes >= kLargeBytes) s.actions->Discard(std::move(program.placed));
      program.placed.reset();
      return true;
    }
  }
  return false;
}

void Cluster::ProgramRuns::Forget(ExecutableId sequence) {
  const CodeLayout& layout = s.layouts.at(sequence);
  if (layout.runs > 0) return;
  for (const CodeLayout::Part& part : layout.parts) {
    s.Charge(1);
    Executor& executor = s.executors.at(part.executor);
    if (executor.installs.erase(sequence) > 0)
      s.commands.Send(executor, DropExecutable{sequence}, layout.session);
  }
  const size_t bytes = layout.record_bytes;
  if (Session* session = s.RestOf(layout.session)) session->program_records.Remove(bytes);
  s.launches.Undefine(sequence);
  retired.erase(sequence);
}

absl::Status Cluster::ProgramRuns::CheckSequences() const {
  std::set<ExecutableId> has;
  const auto count = [&](const BoundProgram& program) {
    has.insert(program.sequences.begin(), program.sequences.end());
  };
  const auto count_session = [&](const Session& session) {
    for (const auto& [handle, program] : session.programs) count(*program);
  };
  for (const auto& [id, session] : s.sessions) count_session(session);
  for (const auto& [id, list] : s.worklists) {
    if (list.closing != nullptr) count_session(list.closing->session);
    for (const auto& program : list.retiring) count(*program);
    for (const auto& bind : list.binds) count(*bind->program);
  }
  for (const auto& [id, layout] : s.layouts) {
    if (id.value < kFirstSequence || has.contains(id)) continue;
    if (!retired.contains(id) || layout.runs == 0)
      return Error(absl::StatusCode::kInternal, "sequence {} is of no program", id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PlacedProgram>> Cluster::Programs::Find(
    SessionId session_id, uint64_t handle) const {
  FAIRWAY_ASSIGN_OR_RETURN(const Session* session, state_->LookAt(session_id));
  const auto it = session->programs.find(handle);
  if (it == session->programs.end())
    return Error(absl::StatusCode::kNotFound, "there is no program {} in this session", handle);
  return it->second->placed;
}

}  // namespace fairway
