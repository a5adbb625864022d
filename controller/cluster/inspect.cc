// SPDX-License-Identifier: Apache-2.0
// Looking at the core: counts for status pages, and the rules that hold between any two events.
#include <algorithm>
#include <array>

#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {
constexpr std::array kStateNames = {"waiting", "queued", "prepared", "launched", "done"};
}  // namespace

Cluster::Sessions::Backlog Cluster::Sessions::BacklogOf(SessionId id) const {
  const auto it = state_->sessions.find(id);
  if (it == state_->sessions.end()) return {};
  const auto has = state_->holdings.find(id);
  if (has == state_->holdings.end()) return {};
  Backlog backlog{has->second.nodes.size(), it->second.node_records.bytes(), RecordRoom()};
  for (const NodeId node_id : has->second.nodes) {
    const Node& node = *state_->nodes.at(node_id);
    if (node.state == NodeState::kLaunched) continue;
    backlog.waits_for_memory = node.state == NodeState::kQueued && node.kind != NodeKind::kFetch;
    backlog.waits_for_bytes = node.state == NodeState::kWaiting && (node.is_upload || node.stores);
    break;
  }
  return backlog;
}

size_t Cluster::Sessions::RecordRoom() const {
  const size_t used = state_->record_bytes, all = state_->options.record_memory;
  return all - std::min(all, used);
}

std::optional<SessionId> Cluster::Sessions::SessionOf(NodeId node) const {
  const auto it = state_->nodes.find(node);
  return it == state_->nodes.end() ? std::nullopt : std::optional(it->second->session);
}

absl::StatusOr<CallbackCaller> Cluster::Fleet::CallerOf(ExecutorId executor_id, LaunchId launch,
                                                        int32_t ordinal) const {
  const State& s = *state_;
  const auto executor = s.executors.find(executor_id);
  const auto none = [&] {
    return Error(absl::StatusCode::kNotFound, "no launch {} is under way there", launch);
  };
  if (executor == s.executors.end() || ordinal < 0 || ordinal >= executor->second.spec.num_devices)
    return none();
  // Few are launched at once, and calls of clients take longer.
  for (const NodeId id : s.islands.at(executor->second.island).sequencer.Running()) {
    const auto found = s.nodes.find(id);
    if (found == s.nodes.end()) continue;
    const Node& node = *found->second;
    const uint64_t first = node.launch_id.value;
    if (node.kind != NodeKind::kLaunch || launch.value < first ||
        launch.value - first >= static_cast<uint64_t>(node.executable->max_steps))
      continue;
    CallbackCaller caller{node.session, node.name, -1};
    const DeviceId device(executor->second.first_device.value + static_cast<uint32_t>(ordinal));
    const auto session = s.sessions.find(node.session);
    if (session == s.sessions.end()) return caller;
    for (const VirtualDevice& seen : session->second.devices) {
      if (seen.device == device) caller.device = seen.id;
    }
    return caller;
  }
  return none();
}

ClusterCounts Cluster::Inspection::counts() const {
  const State& s = *state_;
  ClusterCounts counts;
  counts.sessions = s.sessions.size();
  for (const auto& [id, session] : s.sessions) counts.arrays += session.arrays.size();
  counts.groups = s.groups.size();
  counts.nodes = s.nodes.size();
  counts.nodes_made = s.next_node - 1;
  counts.executables = s.executables.size();
  counts.executions = s.executions;
  counts.units = s.units;
  counts.most_units = s.most_units;
  counts.inline_hits = s.inline_hits;
  for (const auto& [id, session] : s.sessions) counts.stored_bytes += session.stored.bytes();
  counts.executor_fetches = s.executor_fetches;
  return counts;
}

std::vector<IslandStatus> Cluster::Fleet::Islands() const {
  std::vector<IslandStatus> out;
  for (const auto& [id, island] : state_->islands) {
    if (island.forgotten) continue;
    const auto up = std::ranges::count_if(island.executors,
                                          [&](ExecutorId e) { return state_->executors.at(e).up; });
    out.push_back({id, island.name, state_->IslandUp(island), static_cast<size_t>(up),
                   island.sessions, island.epoch, island.sequencer.gangs_granted(),
                   state_->admission.waiting(id), island.sequencer.prepared(),
                   island.sequencer.in_flight(), island.given_up, island.last_given_up,
                   island.given_up_for});
  }
  return out;
}

std::vector<ExecutorStatus> Cluster::Fleet::Executors() const {
  std::vector<ExecutorStatus> out;
  for (const auto& [id, executor] : state_->executors) {
    if (!state_->islands.at(executor.island).forgotten)
      out.push_back({id, executor.island, executor.spec, executor.up, executor.last_error});
  }
  return out;
}

std::vector<DeviceUsage> Cluster::Fleet::Usage() const {
  std::vector<DeviceUsage> out;
  for (const auto& [id, executor] : state_->executors) {
    if (state_->islands.at(executor.island).forgotten) continue;
    for (int i = 0; i < executor.spec.num_devices; ++i) {
      const DeviceId device(executor.first_device.value + i);
      out.push_back({device, executor.island, id, i, state_->admission.used(device),
                     state_->admission.limit(device)});
    }
  }
  return out;
}

std::map<std::string, uint64_t> Cluster::Inspection::Transitions() const {
  std::map<std::string, uint64_t> out;
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      const std::pair move{static_cast<NodeState>(from), static_cast<NodeState>(to)};
      if (!CanMove(move.first, move.second)) continue;
      const auto it = state_->transitions.find(move);
      out[fmt::format("{} -> {}", kStateNames[from], kStateNames[to])] =
          it == state_->transitions.end() ? 0 : it->second;
    }
  }
  return out;
}

std::vector<std::string> Cluster::Inspection::Unfinished() const {
  std::vector<std::string> lines;
  for (const auto& [id, node] : state_->nodes) {
    std::string line =
        fmt::format("node {} ({}, session {}, island {}) is {}", id, node->name, node->session,
                    node->island, kStateNames[static_cast<int>(node->state)]);
    for (const GroupId group : node->reads) {
      if (const NodeId producer = state_->groups.at(group)->producer)
        line += fmt::format(", after node {}", producer);
    }
    for (const Participant& p : node->participants) {
      if (!p.done) line += fmt::format(", on executor {}", p.executor);
    }
    if (node->open_blobs > 0) line += ", for the client's bytes";
    if (node->open_installs > 0) line += ", for its code";
    if (state_->parked.contains(id)) line += ", for its sources' executors";
    if (!node->deferred.ok()) line += fmt::format(", after {}", Describe(node->deferred));
    for (const Reservation& r : node->reservations)
      line += fmt::format(", {} bytes on {}", r.total(), r.device);
    lines.push_back(std::move(line));
  }
  return lines;
}

absl::Status Cluster::State::CheckRecords() const {
  size_t total = 0;
  std::map<SessionId, size_t> of_nodes, of_programs, of_stored;
  for (const auto& [id, node] : nodes) of_nodes[node->session] += node->record_bytes;
  for (const auto& [id, layout] : layouts) of_programs[layout.session] += layout.record_bytes;
  for (const auto& [id, list] : work) {
    for (const auto& program : list.retiring) of_programs[id] += program->bytes;
    for (const auto& bind : list.binds) of_programs[id] += bind->program->bytes;
  }
  for (const auto& [id, group] : groups)
    of_stored[group->session] += group->stored == nullptr ? 0 : group->stored->bytes;
  const auto check = [&](const Session& session) {
    size_t bytes = 0, programs = of_programs[session.id];
    for (const auto& [handle, array] : session.arrays) bytes += ArrayTable::BytesOf(array);
    for (const auto& [handle, program] : session.programs) programs += program->bytes;
    for (const auto& [key, reserved] : session.binding) programs += reserved;
    total += session.arrays.bytes() + session.node_records.bytes() +
             session.program_records.bytes() + session.stored.bytes();
    if (bytes == session.arrays.bytes() && programs == session.program_records.bytes())
      return absl::OkStatus();
    return Error(absl::StatusCode::kInternal,
                 "session {} counts {} bytes of arrays and {} of programs, but has {} and {}",
                 session.id, session.arrays.bytes(), session.program_records.bytes(), bytes,
                 programs);
  };
  for (const auto& [id, session] : sessions) {
    FAIRWAY_RETURN_IF_ERROR(check(session));
    if (session.node_records.bytes() != of_nodes[id])
      return Error(absl::StatusCode::kInternal, "session {} counts {} bytes of nodes, but has {}",
                   id, session.node_records.bytes(), of_nodes[id]);
    if (session.stored.bytes() != of_stored[id])
      return Error(absl::StatusCode::kInternal, "session {} counts {} stored bytes, but has {}", id,
                   session.stored.bytes(), of_stored[id]);
  }
  for (const auto& [id, list] : work) {
    if (list.closing != nullptr) FAIRWAY_RETURN_IF_ERROR(check(list.closing->session));
  }
  if (total == record_bytes) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "{} bytes of records are counted, but there are {}",
               record_bytes, total);
}

absl::Status Cluster::Inspection::CheckInvariants() const {
  const State& s = *state_;
  if (s.reentered) return absl::InternalError("an answer re-entered the core");
  FAIRWAY_RETURN_IF_ERROR(s.CheckRecords());
  FAIRWAY_RETURN_IF_ERROR(s.CheckIslands());
  for (const auto& [move, count] : s.transitions) {
    if (!CanMove(move.first, move.second))
      return Error(absl::StatusCode::kInternal, "a node went from {} to {}",
                   kStateNames[static_cast<int>(move.first)],
                   kStateNames[static_cast<int>(move.second)]);
  }
  std::map<GroupId, int> handle_refs;
  std::map<GroupId, int> readers, queued_readers;
  std::map<DeviceId, int64_t> used, leaving;
  const auto count = [&](const Array& array) {
    for (const GroupId group : s.GroupsOf(array.shards)) ++handle_refs[group];
  };
  const auto count_program = [&](const BoundProgram& program) {
    for (const auto& [value, array] : program.constants) count(array);
  };
  const auto count_session = [&](const Session& session) {
    for (const auto& [handle, array] : session.arrays) count(array);
    for (const auto& [handle, program] : session.programs) count_program(*program);
  };
  for (const auto& [id, session] : s.sessions) count_session(session);
  for (const auto& [id, list] : s.work) {
    if (list.closing != nullptr) count_session(list.closing->session);
    for (const auto& program : list.retiring) count_program(*program);
    for (const auto& bind : list.binds) count_program(*bind->program);
    const ProgramRun* run = list.closing != nullptr ? list.closing->run.get() : list.run.get();
    const LongRequest* request =
        list.closing != nullptr ? list.closing->request.get() : list.request.get();
    if (request != nullptr) {
      for (const GroupId group : request->held) ++handle_refs[group];
    }
    for (size_t v = 0; run != nullptr && v < run->values.size(); ++v) count(run->values[v]);
    if (run != nullptr && run->making != nullptr) {
      for (const GroupId group : run->making->held) ++handle_refs[group];
    }
  }
  for (const auto& [id, group] : s.groups) {
    if (group->stored == nullptr) continue;
    if (group->stored->placed) ++handle_refs[group->stored->placed];
    if (group->charged || group->declared || group->reserved)
      return Error(absl::StatusCode::kInternal, "group {} is stored and on its devices", id);
  }
  // Inputs that are settled and whose readers do not know yet count as open.
  std::map<NodeId, int> untold;
  for (const auto& [id, group] : s.groups) {
    for (size_t w = group->num_told; group->settled() && w < group->waiters.size(); ++w)
      ++untold[group->waiters[w]];
    if (group->settled() && !(group->waiters.empty() && group->watchers.empty()) &&
        !s.work.contains(group->session))
      return Error(absl::StatusCode::kInternal, "nobody tells those that wait for group {}", id);
  }
  for (const auto& [id, node] : s.nodes) {
    int unsettled = untold[id];
    const bool has_memory =
        node->state == NodeState::kPrepared || node->state == NodeState::kLaunched;
    for (const GroupId group : node->reads) {
      ++readers[group];
      if (!has_memory && node->kind != NodeKind::kFetch) ++queued_readers[group];
      const auto it = s.groups.find(group);
      if (it == s.groups.end())
        return Error(absl::StatusCode::kInternal, "node {} reads group {}, which is gone", id,
                     group);
      unsettled += it->second->settled() ? 0 : 1;
    }
    if (unsettled != node->unsettled_inputs)
      return Error(absl::StatusCode::kInternal, "node {} counts {} open inputs, but has {}", id,
                   node->unsettled_inputs, unsettled);
    for (const Reservation& r : node->reservations) {
      if (!has_memory) break;
      used[r.device] += r.total();
      leaving[r.device] += r.temp;
    }
    for (const GroupId group : node->outputs) {
      const auto it = s.groups.find(group);
      if (it == s.groups.end() || it->second->producer != id)
        return Error(absl::StatusCode::kInternal, "node {} is not the producer of its output {}",
                     id, group);
    }
  }
  std::map<const Stake*, std::map<DeviceId, Stake::Held>> held;
  for (const auto& [id, group] : s.groups) {
    if (group->handle_refs != handle_refs[id])
      return Error(absl::StatusCode::kInternal, "group {} counts {} views, but has {}", id,
                   group->handle_refs, handle_refs[id]);
    if (group->readers != readers[id])
      return Error(absl::StatusCode::kInternal, "group {} counts {} readers, but has {}", id,
                   group->readers, readers[id]);
    if (group->settled() == static_cast<bool>(group->producer))
      return Error(absl::StatusCode::kInternal, "group {} is {} with producer {}", id,
                   group->settled() ? "settled" : "pending", group->producer);
    if (group->handle_refs == 0 && group->readers == 0 && !group->producer &&
        group->waiters.empty() && group->watchers.empty())
      return Error(absl::StatusCode::kInternal, "group {} is known to nobody", id);
    if (group->charged) {
      for (const Place& place : group->places) used[place.device] += Rounded(place.bytes);
    }
    for (size_t i = 0; group->charged && i < group->places.size(); ++i) {
      Stake::Held& sum = held[group->stake][group->places[i].device];
      sum.bytes += Rounded(group->places[i].bytes);
      ++sum.shards;
    }
    if (group->queued_readers != queued_readers[id])
      return Error(absl::StatusCode::kInternal, "group {} counts {} queued readers, but has {}", id,
                   group->queued_readers, queued_readers[id]);
    if ((group->charged || group->reserved) && group->queued_readers == 0 &&
        (group->handle_refs == 0 || group->all_deleted())) {
      for (const Place& place : group->places) leaving[place.device] += Rounded(place.bytes);
    }
  }
  size_t listed = 0, owned = 0, losses = 0;
  for (const auto& [id, has] : s.holdings) {
    owned += has.nodes.size();
    for (const auto& [island, stake] : has.stakes) {
      for (const Group* group = stake.groups; group != nullptr; group = group->next) ++listed;
      for (size_t i = 0; i < stake.held.size(); ++i) {
        const DeviceId device(static_cast<uint32_t>(stake.first_device + i));
        const Stake::Held& sum = held[&stake][device];
        if (sum.bytes != stake.held[i].bytes || sum.shards != stake.held[i].shards)
          return Error(absl::StatusCode::kInternal,
                       "session {} is said to hold {} bytes on device {}, but holds {}", id,
                       stake.held[i].bytes, device, sum.bytes);
      }
    }
  }
  for (const auto& [id, list] : s.work) losses += list.losses.size();
  if (listed != s.groups.size() || owned != s.nodes.size() || losses != s.open_losses)
    return Error(absl::StatusCode::kInternal,
                 "{} groups, {} nodes and {} losses are counted, but there are {}, {} and {}",
                 listed, owned, s.open_losses, s.groups.size(), s.nodes.size(), losses);
  for (const auto& [id, executor] : s.executors) {
    for (int i = 0; i < executor.spec.num_devices; ++i) {
      const DeviceId device(executor.first_device.value + i);
      if (s.admission.used(device) != used[device])
        return Error(absl::StatusCode::kInternal, "device {} counts {} bytes, but {} are held",
                     device, s.admission.used(device), used[device]);
      if (s.admission.will_release(device) != leaving[device])
        return Error(absl::StatusCode::kInternal,
                     "device {} counts on {} bytes, but {} will be given back", device,
                     s.admission.will_release(device), leaving[device]);
      const int64_t limit = s.admission.limit(device);
      if (limit != 0 && used[device] > limit)
        return Error(absl::StatusCode::kInternal, "device {} holds {} bytes, over its {}", device,
                     used[device], limit);
    }
  }
  return absl::OkStatus();
}

}  // namespace fairway
