// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/controller.h"

#include <algorithm>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "tests/sim/client.h"
#include "tests/sim/intruder.h"
#include "tests/sim/session_owner.h"
#include "tests/sim/world.h"

namespace fairway::sim {

Controller::~Controller() {
  for (const auto& [move, count] : cluster_.inspection().Transitions())
    world_.counts["move " + move] += count;
}

Machine* Controller::MachineOf(DeviceId device) const {
  const auto it = machine_of_.find(device);
  return it == machine_of_.end() ? nullptr : it->second;
}

void Controller::Settle() {
  ++world_.steps;
  // With thousands of records the checks are too slow for each step.
  const bool looks = world_.config.hostile == 0 || world_.steps % 64 == 0;
  absl::Status status = looks ? cluster_.inspection().CheckInvariants() : absl::OkStatus();
  if (looks && status.ok())
    status = hub_.CheckInvariants(cluster_.inspection().counts().command_bytes);
  if (!status.ok()) world_.Broken("invariant", "{}", Describe(status));
  CheckUnits();
  CheckLaunches();
}

void Controller::CheckUnits() {
  // Where memory is tight, a tick may give up hundreds of nodes and look at all of them. After a
  // loss, receives that take from each other are taken back at once.
  const Config& config = world_.config;
  if (config.hostile == 0 || config.memory != 0 || config.losses > 0) return;
  const uint64_t most = cluster_.inspection().counts().most_units;
  if (most > world_.MostUnits())
    world_.Broken("liveness", "an operation or a turn took {} units of {}", most,
                  world_.config.cluster.turn_units);
}

void Controller::Tick() {
  TickHub();
  const std::map<DeviceId, NodeId> running = Running();
  std::map<IslandId, uint64_t> before;
  for (const IslandStatus& island : cluster_.fleet().Islands()) before[island.id] = island.given_up;
  const uint64_t units = cluster_.units();
  cluster_.Tick(Now() / kMillisecond);
  ++world_.steps;
  if (cluster_.units() == units) return;  // nothing happened
  for (const IslandStatus& island : cluster_.fleet().Islands()) {
    if (before[island.id] == island.given_up) continue;
    const auto older = running.find(island.given_up_for);
    if (older != running.end() && older->second < island.last_given_up)
      world_.Broken("B2", "node {} is given up while device {} runs node {}", island.last_given_up,
                    island.given_up_for, older->second);
  }
  Settle();
}

std::map<DeviceId, NodeId> Controller::Running() const {
  std::map<DeviceId, NodeId> oldest;
  for (const DeviceUsage& usage : cluster_.fleet().Usage()) {
    const auto member = members_.find(usage.executor);
    if (member == members_.end() || !member->second.up) continue;
    const std::optional<NodeId> node = member->second.machine->Running(usage.local_ordinal);
    if (node) oldest[usage.device] = *node;
  }
  return oldest;
}

void Controller::PullUpload(const PullRequest& request, Pulled done) {
  const absl::Status ticket =
      CheckTicket(KeyOfController(world_.epoch), request.transfer, request.from, request.ticket);
  if (!ticket.ok()) return done(ticket);
  const auto it = uploads_.find(request.transfer);
  absl::StatusOr<uint64_t> answer = absl::NotFoundError("no such upload");
  if (it != uploads_.end()) answer = ValueOf(*it->second.at(request.index));
  world_.queue.After(world_.DataDelay(), [answer, done] { done(answer); });
}

void Controller::NotePrepare(const Member& member, NodeId node, ExecutableId executable) {
  const ExecutableSpec& spec = *cluster_.executables().Find(executable);
  const auto code = world_.codes.find(executable);
  Prepared prepared{code == world_.codes.end() ? nullptr : &code->second,
                    {},
                    static_cast<uint64_t>(spec.max_steps)};
  for (const DeviceId device : spec.devices) prepared.places.push_back(MachineOf(device));
  if (!prepared_.emplace(node, prepared).second) return;
  const std::optional<SessionId> session = cluster_.sessions().SessionOf(node);
  if (!session) return world_.Broken("B2", "node {} is prepared, but not known", node);
  // Several executors may hear of it long after it got its memory (LaunchAll).
  const bool spread = std::ranges::any_of(
      prepared.places, [&](const auto& place) { return place != prepared.places.front(); });
  for (const DeviceId device : spec.devices) {
    NodeId& last = last_prepared_[{*session, device}];
    // A node that waits until its inputs have ended is in no line meanwhile.
    const bool in_line = prepared.code != nullptr || !world_.sequential.contains(*session);
    if (node < last && in_line && !spread)
      world_.Broken("B2", "island {}: node {} waited for memory while node {} overtook it",
                    member.machine->island(), node, last);
    last = std::max(last, node);
  }
}

void Controller::NoteLaunch(Member& member, NodeId node, LaunchId id, bool ahead) {
  Launched& launched = launches_[node];
  const bool fresh = std::find(launched.ids.begin(), launched.ids.end(), id) == launched.ids.end();
  if (fresh) launched.ids.push_back(id);
  launched.machines.push_back(member.machine);
  const Prepared& prepared = prepared_.at(node);
  const std::string& island = member.machine->island();
  if (fresh) {
    uint64_t& last = last_launch_[island];
    if (id.value <= last)
      world_.Broken("G1", "island {}: launch id {} is sent after {}", island, id, last);
    last = std::max(last, id.value + prepared.steps - 1);
  }
  if (prepared.code == nullptr) {
    auto& sequence = world_.SequenceOf(world_.epoch, island, id);
    sequence.last = LaunchId(id.value + prepared.steps - 1);
    sequence.places = prepared.places;
    sequence.members.emplace_back(member.machine, member.session);
    if (ahead && sequence.members.size() == 2) world_.Count("sequence over executors ahead");
    return;
  }
  auto& gang = world_.GangOf(world_.epoch, node, id);
  if (gang == nullptr) {
    gang = std::make_shared<Gang>();
    gang->code = prepared.code;
    gang->places = prepared.places;
    const ExecutableSpec& spec = gang->code->spec;
    gang->inputs.assign(spec.parameters.size(), std::vector<uint64_t>(spec.devices.size(), 0));
  }
  gang->members.emplace_back(member.machine, member.session);
}

void Controller::CheckLaunches() {
  for (const auto& [node, launched] : launches_) {
    if (launched.ids.size() != 1)
      world_.Broken("G1", "node {} is launched with {} ids", node, launched.ids.size());
    const std::vector<Machine*>& places = prepared_.at(node).places;
    const std::set<Machine*> want(places.begin(), places.end());
    const std::set<Machine*> got(launched.machines.begin(), launched.machines.end());
    if (want != got || got.size() != launched.machines.size())
      world_.Broken("G2", "node {} is launched on {} of its {} executors", node,
                    launched.machines.size(), want.size());
  }
  launches_.clear();
}

void Controller::Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) {
  Member& member = members_.at(executor);
  if (const auto* prepare = std::get_if<PrepareLaunch>(&command)) {
    world_.Trace("  e{} <- prepare n{} seq {}", executor, prepare->node, prepare->seq);
    NotePrepare(member, prepare->node, prepare->executable);
  } else if (const auto* launch = std::get_if<Launch>(&command)) {
    world_.Trace("  e{} <- launch n{} id {}", executor, launch->node, launch->launch_id);
    NoteLaunch(member, launch->node, launch->launch_id, launch->ahead);
  } else if (const auto* receive = std::get_if<PrepareReceive>(&command)) {
    world_.Trace("  e{} <- receive n{} seq {} g{}", executor, receive->node, receive->seq,
                 receive->out.group);
  } else if (const auto* cancel = std::get_if<CancelNode>(&command)) {
    world_.Trace("  e{} <- cancel n{}", executor, cancel->node);
    world_.Count("cancel");
  } else if (const auto* send = std::get_if<PrepareSend>(&command)) {
    world_.Trace("  e{} <- send t{} {}:{}...", executor, send->transfer, send->items[0].shard.group,
                 send->items[0].shard.shard);
    world_.intruder->AskMachine(*member.machine, send->transfer);
  } else if (const auto* end = std::get_if<EndSend>(&command)) {
    world_.Trace("  e{} <- end send t{}", executor, end->transfer);
  } else if (const auto* free = std::get_if<FreeGroups>(&command)) {
    for (const GroupId group : free->groups) world_.Trace("  e{} <- free g{}", executor, group);
  }
  member.machine->Expect(member.session, command);
  hub_.Send(executor, std::move(command), std::move(payer));
}

void Controller::SendAll(ExecutorId first, ExecutorId last, Command command,
                         std::shared_ptr<MemoryBudget> payer) {
  const std::string& island = members_.at(first).machine->island();
  const auto* const launch = std::get_if<LaunchAll>(&command);
  if (launch != nullptr) {
    world_.Trace("  e{} to e{} <- launch for all n{} id {}", first, last, launch->node,
                 launch->launch_id);
    world_.Count(launch->ahead ? "launch for all, ahead" : "launch for all");
  } else {
    world_.Count("free for all");
  }
  for (auto& [id, member] : members_) {
    if (id < first || id > last || member.machine->island() != island) continue;
    if (launch != nullptr) {
      NotePrepare(member, launch->node, launch->executable);
      NoteLaunch(member, launch->node, launch->launch_id, launch->ahead);
    }
    if (const auto* free = std::get_if<FreeGroups>(&command)) {
      for (const GroupId group : free->groups) world_.Trace("  e{} <- free g{}", id, group);
    }
    member.machine->Expect(member.session, command);
  }
  hub_.SendAll(first, last, std::move(command), std::move(payer));
}

void Controller::OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) {
  uploads_[transfer] = std::move(blobs);
  world_.intruder->AskController(transfer);
}

void Controller::WithdrawUpload(TransferId transfer) { uploads_.erase(transfer); }

void Controller::PullToHost(TransferId transfer, ExecutorId executor, int32_t index,
                            int64_t bytes) {
  world_.Count("pull to host");
  Machine* machine = members_.at(executor).machine;
  const uint64_t epoch = world_.epoch;
  const Incarnation incarnation(members_.at(executor).session);
  const auto arrived = [this, &world = world_, epoch, transfer,
                        bytes](const absl::StatusOr<uint64_t>& value) {
    if (world.controller.get() != this || world.epoch != epoch) return;
    world_.Trace("fetch t{} arrives: {}", transfer, Describe(value.status()));
    if (value.ok()) {
      cluster_.arrays().FetchArrived(transfer, BytesRef(BytesOf(*value, bytes)));
    } else {
      cluster_.arrays().FetchArrived(transfer, value.status());
    }
    Settle();
  };
  Pulled done = world_.MayBeCut(
      [&world = world_, arrived](const absl::StatusOr<uint64_t>& value) {
        world.ToController([arrived, value] { arrived(value); });
      },
      uint64_t{1} << world_.IndexOf(machine));
  const Incarnation here(epoch);
  const PullRequest request{transfer, index, here, 0,
                            TicketFor(KeyOf(incarnation.value), transfer, here)};
  world_.queue.After(world_.DataDelay(), [machine, incarnation, request, done] {
    machine->Pull(incarnation, request, done);
  });
}

void Controller::WantTurn() {
  world_.Count("turn");
  const int64_t delay = world_.random.Between(0, world_.config.turn_delay);
  world_.queue.After(delay, [this, &world = world_, epoch = world_.epoch] {
    world.ToController([this, &world, epoch] {
      if (world.controller.get() != this || world.epoch != epoch) return;
      cluster_.Turn();
      Settle();
    });
  });
}

void Controller::Answered(SessionId session, uint64_t token, bool fetch,
                          const absl::StatusOr<BytesRef>& result) {
  for (SessionOwner* owner : world_.owners) {
    if (owner->session() == session) return owner->OnAnswer(token, fetch, result);
  }
  world_.Broken("G3", "session {} has ended, but {} is answered", session, token);
}

void Controller::OnWatched(SessionId session, uint64_t token, absl::Status status) {
  Answered(session, token, false,
           status.ok() ? absl::StatusOr<BytesRef>(BytesRef()) : std::move(status));
}

void Controller::OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) {
  Answered(session, token, true, bytes);
  if (bytes.ok() && world_.config.fetched_for > 0)
    world_.queue.After(world_.random.Between(0, world_.config.fetched_for),
                       [held = *std::move(bytes)] {});
}

void Controller::OnBound(SessionId session, uint64_t key, absl::StatusOr<uint64_t> program) {
  for (SessionOwner* owner : world_.owners) {
    if (owner->session() == session) return owner->OnBound(key, program);
  }
  world_.Broken("G3", "session {} has ended, but its program {} is bound", session, key);
}

}  // namespace fairway::sim
