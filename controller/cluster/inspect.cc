// SPDX-License-Identifier: Apache-2.0
// Looking at the core: counts for status pages, and the rules that hold between any two events.
#include <algorithm>
#include <array>

#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/state.h"

namespace fairway {

Cluster::Sessions::Backlog Cluster::Sessions::BacklogOf(SessionId id) const {
  const auto it = state_->sessions.find(id);
  if (it == state_->sessions.end()) return {};
  const auto has = state_->holdings.find(id);
  if (has == state_->holdings.end()) return {};
  Backlog backlog{has->second.nodes.size(), it->second.node_records.bytes(), RecordRoom(),
                  it->second.fetching, state_->commands.Wait(id)};
  for (const NodeId node_id : has->second.nodes) {
    const Node& node = *state_->all_nodes.at(node_id);
    if (node.state == NodeState::kLaunched) continue;
    backlog.waits_for_memory = node.state == NodeState::kQueued && node.kind != NodeKind::kFetch;
    backlog.waits_for_bytes = node.state == NodeState::kWaiting && (node.is_upload || node.stores);
    break;
  }
  return backlog;
}

size_t Cluster::Sessions::RecordRoom() const { return state_->Room(); }

std::string Cluster::Sessions::TenantOf(SessionId session) const {
  const auto it = state_->sessions.find(session);
  return it == state_->sessions.end() ? "" : it->second.tenant;
}

std::optional<SessionId> Cluster::Sessions::SessionOf(NodeId node) const {
  const Node* const found = state_->all_nodes.Find(node);
  return found == nullptr ? std::nullopt : std::optional(found->session);
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
  // A walk is cheap enough: few nodes are launched at once, and a client's call takes longer.
  for (const NodeId id : s.islands.at(executor->second.island).sequencer.Running()) {
    const Node* const found = s.all_nodes.Find(id);
    if (found == nullptr) continue;
    const Node& node = *found;
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
  counts.groups = s.all_groups.size();
  counts.nodes = s.all_nodes.size();
  counts.nodes_made = s.nodes.next_node - 1;
  counts.executables = s.executables.size();
  counts.executions = s.executions;
  counts.units = s.units;
  counts.most_units = s.most_units;
  counts.inline_hits = s.transfers.inline_hits;
  for (const auto& [id, session] : s.sessions) counts.stored_bytes += session.stored.bytes();
  counts.executor_fetches = s.transfers.executor_fetches;
  counts.command_bytes = s.commands.bytes();
  return counts;
}

std::vector<IslandStatus> Cluster::Fleet::Islands() const {
  std::vector<IslandStatus> out;
  for (const auto& [id, island] : state_->islands) {
    if (island.forgotten) continue;
    out.push_back({id, island.name, state_->IslandUp(island), island.up, island.sessions,
                   island.epoch, island.sequencer.gangs_granted(), state_->admission.waiting(id),
                   island.sequencer.prepared(), island.sequencer.in_flight(), island.given_up,
                   island.last_given_up, island.given_up_for});
    if (const Cordon* const cordon = state_->CordonOf(island)) out.back().cordon = *cordon;
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

const ExecutorSpec* Cluster::Fleet::AnyOf(IslandId id) const {
  const auto island = state_->islands.find(id);
  if (island == state_->islands.end() || island->second.forgotten ||
      island->second.executors.empty())
    return nullptr;
  return &state_->executors.at(island->second.executors.front()).spec;
}

absl::Status Cluster::Fleet::TakesWork(IslandId island) const {
  const auto it = state_->islands.find(island);
  return it == state_->islands.end() ? absl::OkStatus() : state_->TakesWork(it->second);
}

std::map<std::string, Cordon> Cluster::Fleet::AbsentCordons() const {
  std::map<std::string, Cordon> out;
  for (const auto& [name, cordon] : state_->cordons) {
    if (!state_->island_by_name.contains(name)) out.emplace(name, cordon);
  }
  return out;
}

int32_t Cluster::Fleet::OrdinalOf(DeviceId device) const {
  const Executor& executor = *state_->ExecutorOf(device);
  return static_cast<int32_t>(device.value - executor.first_device.value);
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
  for (size_t from = 0; from < kStateNames.size(); ++from) {
    for (size_t to = 0; to < kStateNames.size(); ++to) {
      if (CanMove(static_cast<NodeState>(from), static_cast<NodeState>(to)))
        out[fmt::format("{} -> {}", kStateNames[from], kStateNames[to])] =
            state_->nodes.transitions[from][to];
    }
  }
  return out;
}

std::vector<std::string> Cluster::Inspection::Unfinished() const {
  constexpr size_t kMostOfLine = 1000;
  std::vector<std::string> lines;
  for (const auto& [id, node] : state_->all_nodes) {
    std::string line =
        fmt::format("node {} ({}, session {}, island {}) is {}", id, node->name, node->session,
                    node->island, kStateNames[static_cast<int>(node->state)]);
    for (const GroupId group : node->reads) {
      if (const NodeId producer = state_->all_groups.at(group)->producer)
        line += fmt::format(", after node {}", producer);
    }
    for (const Participant& p : node->participants) {
      if (!p.done) line += fmt::format(", on executor {}", p.executor);
    }
    if (node->for_all && node->open_participants > 0) line += ", on all its executors";
    if (node->open_blobs > 0) line += ", for the client's bytes";
    if (node->open_installs > 0) line += ", for its code";
    if (node->telling) line += ", for its commands";
    if (state_->parked.contains(id)) line += ", for its sources' executors";
    if (!node->deferred.ok()) line += fmt::format(", after {}", Describe(node->deferred));
    for (const MemoryNeed& need : Needs(*node)) {
      if (line.size() > kMostOfLine) {
        line += " and on others";
        break;
      }
      line += fmt::format(", {} bytes on {}", need.bytes, need.device);
      if (need.count > 1) line += fmt::format(" to {}", need.at(need.count - 1));
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace fairway
