// SPDX-License-Identifier: Apache-2.0
// Executors come and report.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/state.h"

namespace fairway {

absl::StatusOr<ExecutorId> Cluster::Fleet::ExecutorUp(const ExecutorSpec& spec) {
  const Operation operation(*state_);
  State& s = *state_;
  if (spec.num_devices < 1 || spec.worker.empty() || spec.island.empty())
    return InvalidArgument(
        "a worker needs a name, an island and at least one device; got \"{}\", \"{}\", {}",
        spec.worker, spec.island, spec.num_devices);
  const auto worker = s.executor_of_worker.find(spec.worker);
  Executor* known =
      worker == s.executor_of_worker.end() ? nullptr : &s.executors.at(worker->second);
  if (known != nullptr && known->up)
    return Error(absl::StatusCode::kAlreadyExists,
                 "a worker named \"{}\" is connected already (island {}); give each worker a "
                 "--name of its own",
                 spec.worker, known->spec.island);
  const auto named = s.island_by_name.find(spec.island);
  Island* island = named == s.island_by_name.end() ? nullptr : &s.islands.at(named->second);
  if (known != nullptr &&
      (known->spec.num_devices != spec.num_devices || known->spec.island != spec.island ||
       known->spec.island_workers != spec.island_workers))
    return InvalidArgument(
        "worker \"{}\" was known with {} devices on island {} of {} workers and now has {} on {} "
        "of {}; give it another --name, or start it when its island has been forgotten "
        "(--forget-after of the controller)",
        spec.worker, known->spec.num_devices, known->spec.island, known->spec.island_workers,
        spec.num_devices, spec.island, spec.island_workers);
  if (island != nullptr && !island->executors.empty()) {
    const ExecutorSpec& other = s.executors.at(island->executors[0]).spec;
    if (other.runtime != spec.runtime || other.platform_name != spec.platform_name)
      return InvalidArgument("island {} runs {} on {}, but worker \"{}\" offers {} on {}",
                             spec.island, other.runtime, other.platform_name, spec.worker,
                             spec.runtime, spec.platform_name);
    if (other.island_workers != spec.island_workers && known == nullptr)
      return InvalidArgument("island {} has {} workers, but worker \"{}\" says {}", spec.island,
                             other.island_workers, spec.worker, spec.island_workers);
    if (known == nullptr && island->executors.size() == static_cast<size_t>(other.island_workers))
      return InvalidArgument(
          "island {} has its {} workers already, and worker \"{}\" is none of them; give it "
          "another --island, or all of them a higher --island-workers",
          spec.island, other.island_workers, spec.worker);
  }
  if (island == nullptr) {
    const IslandId id(s.next_island++);
    island = &s.islands[id];
    s.most_islands = std::max(s.most_islands, s.islands.size());
    island->id = id;
    island->name = spec.island;
    s.island_by_name.emplace(spec.island, id);
    island->sequencer =
        Sequencer({s.options.max_gangs_per_device, s.options.max_singles_per_device, 1});
  }
  if (known == nullptr) {
    const ExecutorId id(s.next_executor++);
    known = &s.executors[id];
    known->id = id;
    known->island = island->id;
    known->first_device = s.NewDevices(spec.num_devices);
    std::fill_n(s.device_owner.begin() + known->first_device.value, spec.num_devices, known);
    if (island->executors.empty() || known->first_device < island->first_device)
      island->first_device = known->first_device;
    island->executors.push_back(id);
    s.executor_of_worker.emplace(spec.worker, id);
  }
  known->spec = spec;
  ++s.arrivals;
  known->up = true;
  ++island->up;
  if (s.IslandUp(*island)) island->gone = absl::OkStatus();
  s.UpdateOpen(*island);
  known->next_seq = 1;
  for (int i = 0; i < spec.num_devices; ++i)
    s.admission.SetDevice(DeviceId(known->first_device.value + i), spec.device_memory);
  island->sequencer.RaiseLaunchIds(spec.highest_launch_id + 1);
  s.to_pump.insert(island->id);
  s.losses.UnparkAll();
  s.memory.LookAnew();
  return known->id;
}

void Cluster::Fleet::OnReport(ExecutorId id, Incarnation incarnation, Report report) {
  const Operation operation(*state_);
  State& s = *state_;
  const auto it = s.executors.find(id);
  if (it == s.executors.end() || !it->second.up) return;
  Executor& executor = it->second;
  if (executor.spec.incarnation != incarnation && !Planted(Bug::kSkipFence)) return;
  for (Report::Installed& done : report.installed) {
    if (const auto old = executor.dropped.find(done.executable); old != executor.dropped.end()) {
      if (--old->second == 0) executor.dropped.erase(old);
      continue;
    }
    const auto install = executor.installs.find(done.executable);
    if (install == executor.installs.end()) continue;
    auto waiters = std::exchange(install->second.waiters, {});
    if (done.status.ok()) {
      install->second.installed = true;
    } else {
      executor.installs.erase(install);
    }
    s.ChargeEnds(waiters.size());
    for (auto& [session, nodes] : waiters) {
      Loaded& loaded = s.WorkOf(session).loaded.emplace_back();
      loaded.status = done.status;
      loaded.waiters = std::move(nodes);
    }
  }
  for (Report::Inlined& inlined : report.inlined)
    s.groups.StoreInlined(id, inlined.shard, std::move(inlined.bytes));
  std::map<uint64_t, absl::Status> failures;
  std::map<uint64_t, std::map<int32_t, FailedOutput>> failed_outputs;
  for (Report::Failure& failure : report.failures) {
    if (failure.node) {
      FailedForAll(executor, failure.node, std::move(failure.status));
    } else if (failure.output < 0) {
      failures.emplace(failure.seq, std::move(failure.status));
    } else {
      failed_outputs[failure.seq].emplace(
          failure.output, FailedOutput{std::move(failure.status), failure.argument});
    }
  }
  const auto ended = [&](uint64_t seq, const Executor::Open& open) {
    const Node* node = s.FindNode(open.node);
    if (node == nullptr) return;
    Told& told = s.WorkOf(node->session).told.emplace_back();
    told.node = open.node;
    told.attempt = node->attempt;
    told.executor = id;
    told.participant = open.participant;
    told.seq = seq;
    if (const auto failure = failures.find(seq); failure != failures.end())
      told.status = std::move(failure->second);
    if (const auto outputs = failed_outputs.find(seq); outputs != failed_outputs.end())
      told.failed_outputs = std::move(outputs->second);
    std::erase_if(told.failed_outputs, [&](const auto& failed) {  // outputs that it does not have
      return static_cast<size_t>(failed.first) >= node->outputs.size();
    });
  };
  std::vector<std::pair<uint64_t, Executor::Open>> all;
  while (!executor.open.empty() && executor.open.begin()->first <= report.finished_through) {
    all.emplace_back(*executor.open.begin());
    executor.open.erase(executor.open.begin());
  }
  for (const uint64_t seq : report.finished) {
    const auto open = executor.open.find(seq);
    if (open == executor.open.end()) continue;
    all.emplace_back(*open);
    executor.open.erase(open);
  }
  // In program order: a launch that was sent ahead of its inputs comes after them.
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.second.node < b.second.node; });
  s.ChargeEnds(all.size());
  for (const auto& [seq, open] : all) ended(seq, open);
  s.work.GoOn();
}

void Cluster::Fleet::FailedForAll(Executor& executor, NodeId id, absl::Status status) {
  State& s = *state_;
  // In any case its entry may end.
  if (!Planted(Bug::kHearNothing)) s.commands.Send(executor, FailureHeard{id}, SessionId());
  const Node* const node = s.FindNode(id);
  if (node == nullptr || !node->for_all || node->state != NodeState::kLaunched ||
      PartOn(*node->layout, executor.id) < 0)
    return;
  Told& told = s.WorkOf(node->session).told.emplace_back();
  told.node = id;
  told.attempt = node->attempt;
  told.executor = executor.id;
  told.status = std::move(status);
  told.all = Told::All::kFailed;
}

void Cluster::Fleet::LaunchesEnded(std::vector<NodeId> nodes) {
  const Operation operation(*state_);
  State& s = *state_;
  // In program order, as in OnReport.
  std::ranges::sort(nodes);
  s.ChargeEnds(nodes.size());
  for (const NodeId id : nodes) {
    const Node* const node = s.FindNode(id);
    if (node == nullptr || !node->for_all || node->state != NodeState::kLaunched) continue;
    Told& told = s.WorkOf(node->session).told.emplace_back();
    told.node = id;
    told.attempt = node->attempt;
    told.all = Told::All::kEnded;
  }
  s.work.GoOn();
}

}  // namespace fairway
