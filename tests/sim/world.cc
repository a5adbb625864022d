// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/world.h"

#include <algorithm>

#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/hog.h"
#include "tests/sim/host.h"
#include "tests/sim/hostile.h"
#include "tests/sim/intruder.h"
#include "tests/sim/machine.h"
#include "tests/sim/neighbour.h"
#include "tests/sim/relays.h"

namespace fairway::sim {
namespace {

constexpr int64_t kTick = kSecond / 10;
constexpr int64_t kPatience = 600 * kSecond;  // after this, open work counts as waiting for ever
constexpr uint64_t kMaxSteps = 200000;

// 0 to 9, then letters.
char Digit(int value) { return static_cast<char>(value < 10 ? '0' + value : 'a' + value - 10); }

}  // namespace

World::World(uint64_t seed, bool verbose, WorldKind kind)
    : random(seed), verdict(verbose), pipes(std::make_unique<Pipes>(*this)), verbose_(verbose) {
  config.gang_inputs = kind.gang_inputs;
  config.blocks = seed % 4 != 0;
  Setup(seed, kind);
}
World::~World() {
  // Gangs and their runs hold each other.
  for (auto& [key, gang] : gangs_) {
    if (gang != nullptr) gang->joined.clear();
  }
  for (auto& [key, gang] : steps_) gang->joined.clear();
}

void World::Print(const std::string& line) {
  std::fputs(fmt::format("{:>11} {}\n", queue.now(), line).c_str(), stdout);
}

void World::SetupSize(bool small) {
  Random& r = random;
  config.islands = static_cast<int>(r.Between(1, small ? 2 : 4));
  config.sessions = static_cast<int>(r.Between(1, small ? 2 : 5));
  config.operations = static_cast<int>(small ? r.Between(2, 14) : r.Between(10, 60));
}

void World::Setup(uint64_t seed, WorldKind kind) {
  Random& r = random;
  const bool small = kind.small;
  SetupSize(small);
  config.memory = r.Percent(50) ? 0 : 64 * r.Between(8, 40);
  config.link_delay = r.Percent(30) ? 200 : r.Percent(50) ? 5000 : 100000;
  config.data_delay = r.Percent(30) ? 200 : r.Percent(50) ? 5000 : 200000;
  config.think = r.Percent(50) ? 500 : 10000;
  config.duration = r.Percent(50) ? 1000 : r.Percent(80) ? 20000 : 1500000;
  config.losses = r.Percent(50) ? 0 : static_cast<int>(r.Between(1, 4));
  config.controller_losses = r.Percent(85) ? 0 : 1;
  config.deadline = (r.Percent(70) ? 10 : 60) * kSecond;
  config.failing_percent = r.Percent(60) ? 0 : 20;
  SetupFaults();
  config.cluster.admission_grace_ms = r.Between(200, 2000);
  config.cluster.inline_upload_bytes = r.Percent(50) ? 64 : 1024;
  config.cluster.stored_array_bytes = r.Percent(30) ? -1 : r.Percent(50) ? 1024 : r.Between(0, 256);
  config.cluster.inline_output_bytes = r.Percent(30) ? 0 : r.Between(8, 512);
  config.cluster.inline_gang_bytes = r.Between(64, 1024);
  config.cluster.inline_session_bytes = r.Between(128, 4096);
  config.cluster.max_gangs_per_device = static_cast<int>(r.Between(1, 6));
  config.cluster.max_singles_per_device = static_cast<int>(r.Between(1, 6));
  if (r.Percent(60)) config.cluster.turn_units = static_cast<uint64_t>(r.Between(1, 80));
  if (config.cluster.turn_units <= 40)  // most launches end in several turns
    config.cluster.ends_at_once = config.cluster.turn_units % 4;
  if (config.cluster.turn_units <= 60)  // and are prepared by several commands
    config.cluster.shards_at_once = 1 + config.cluster.turn_units % 5;
  if (r.Percent(30)) config.turn_delay = r.Percent(70) ? 10000 : 200000;
  if (r.Percent(20)) config.unit_time = r.Between(2, 50);
  if (r.Percent(50)) config.cluster.node_pieces = static_cast<size_t>(r.Between(1, 8));
  config.gangs_at_work = static_cast<int>(r.Between(1, kGangsAtWork));
  if (r.Percent(60)) config.executor_units = static_cast<uint64_t>(r.Between(1, 40));
  if (config.executor_units <= 30) config.executor_shards = 1 + config.executor_units % 4;
  if (!small && r.Percent(5)) SetupHostile();
  if (r.Percent(50)) {
    config.cluster.fetching_bytes = r.Between(1, 256);
    config.cluster.fetched_memory = r.Between(64, 1024);
    config.cluster.counted_fetch_bytes = 1;
    config.fetched_for = r.Percent(50) ? 1000 : 500000;
  }
  // In some worlds little memory for commands; nodes that wait for it are patient. (A neighbour of
  // hostile sessions would wait for them.)
  if (config.operations % 3 == 0 && config.hostile == 0) {
    config.cluster.command_memory = 128 << config.operations / 3 % 5;
    config.cluster.least_commands = config.operations % 2 * 64;
  }
  config.cluster.command_grace_ms = 1000 * kSecond;
  SetupRelays(seed, kind);
  intruder = std::make_unique<Intruder>(*this, seed);
  Trace("world: {} islands, {} sessions of {} operations, memory {}, losses {} + {}",
        config.islands, config.sessions, config.operations, config.memory, config.losses,
        config.controller_losses);
  SetupMachines(small ? 2 : 3);
  StartController();
  for (auto& machine : machines)
    queue.After(r.Between(0, 1000), [&m = *machine] { m.host().Start(); });
  MakeSessions();
  ScheduleFaults();
  SetupCordons(seed);
  queue.After(kTick, [this] { ToController([this] { Tick(); }); });
}

void World::SetupMachines(int most_executors) {
  Random& r = random;
  for (int i = 0; i < config.islands; ++i) {
    int executors = static_cast<int>(r.Between(1, most_executors));
    if (i == 0 && config.large_island > 0) executors = config.large_island;
    for (int e = 0; e < executors; ++e) {
      const std::string island = fmt::format("i{}", i);
      const bool reserved = island == config.reserved;
      int devices = static_cast<int>(r.Percent(20) ? r.Between(4, 5) : r.Between(1, 3));
      if (reserved && e == 0) devices = Hog::kDevices + 2;
      machines.push_back(std::make_unique<Machine>(*this, fmt::format("w{}{}", i, Digit(e)), island,
                                                   executors, devices,
                                                   reserved ? 0 : config.memory));
    }
  }
}

void World::SetupHostile() {
  Random& r = random;
  config.hostile = static_cast<int>(r.Between(1, 3));
  config.reserved = "i0";
  config.islands = std::max(config.islands, 2);
  config.sessions = static_cast<int>(r.Below(2));
  config.operations = static_cast<int>(r.Between(10, 50));
  config.memory = r.Percent(70) ? 0 : 64 * r.Between(40, 400);
  config.cluster.turn_units = static_cast<uint64_t>(r.Percent(50) ? r.Between(50, 300) : 2000);
  config.cluster.shards_at_once = config.cluster.turn_units;  // about as many as by default
  if (config.turn_delay > 10000)  // or thousands of their commands take longer than worlds wait
    config.executor_units = std::max(config.executor_units, uint64_t{50});
  config.scarce_records = r.Percent(50);
  if (config.scarce_records)
    config.cluster.record_memory = static_cast<size_t>(r.Between(4, 6)) << 20;
  config.cluster.node_pieces = 512;
  // The neighbour is tested against the others' work, without these faults.
  config.controller_losses = config.stops = config.cuts = 0;
  config.cut_percent = config.lone_percent = config.full_percent = 0;
}

void World::MakeSessions() {
  for (int s = 0; s < config.sessions; ++s) {
    clients.push_back(std::make_unique<Client>(*this, s));
    owners.push_back(clients.back().get());
  }
  for (int h = 0; h < config.hostile; ++h) others.push_back(std::make_unique<Hostile>(*this, h));
  if (config.hostile > 0) {
    others.push_back(std::make_unique<Neighbour>(*this));
    others.push_back(std::make_unique<Hog>(*this));
  }
  for (const auto& other : others) owners.push_back(other.get());
  for (SessionOwner* owner : owners)
    queue.After(random.Between(0, 300000), [owner] { owner->Begin(); });
}

void World::SetupFaults() {
  Random& r = random;
  config.stops = r.Percent(80) ? 0 : static_cast<int>(r.Between(1, 3));
  config.cut_percent = r.Percent(85) ? 0 : static_cast<int>(r.Between(1, 8));
  config.link_grace = (r.Percent(70) ? 3 : r.Percent(35) ? 1 : 0) * kSecond;
  config.cuts = r.Percent(50) ? 0 : static_cast<int>(r.Between(1, 5));
  config.lone_percent = r.Percent(85) ? 0 : static_cast<int>(r.Between(1, 8));
  config.full_percent = r.Percent(90) ? 0 : static_cast<int>(r.Between(1, 5));
}

void World::ScheduleFaults() {
  const int64_t busy = 300000 + config.operations * config.think;
  for (int i = 0; i < config.losses; ++i) {
    ++down_;
    queue.After(random.Between(1000, busy), [this] {
      Machine& machine = *random.Pick(machines);
      if (machine.island() == config.reserved) {
        --down_;
      } else {
        HurtExecutor(machine);
      }
    });
  }
  for (int i = 0; i < config.cuts; ++i) {
    queue.After(random.Between(1000, busy), [this] {
      Machine& machine = *random.Pick(machines);
      if (machine.island() != config.reserved) CutAndBack(machine);
    });
  }
  for (int i = 0; i < config.relay_faults; ++i)
    queue.After(random.Between(1000, busy), [this] { HurtRelay(); });
  if (config.late_relay) queue.After(random.Between(1, 5) * kSecond, [this] { MakeRelayLate(); });
  for (int i = 0; i < config.controller_losses; ++i) {
    ++down_;
    queue.After(random.Between(1000, busy), [this] { LoseController(); });
  }
  for (int64_t i = random.Between(0, 4); i > 0; --i) {
    queue.After(random.Between(1000, busy), [this] {
      ToController([this] {
        if (controller != nullptr) controller->Compile(*random.Pick(machines));
      });
    });
  }
  for (int i = 0; i < config.stops; ++i) {
    ++down_;
    queue.After(random.Between(1000, busy), [this] { StopController(); });
  }
}

Machine* World::FindMachine(const std::string& worker) {
  for (auto& machine : machines) {
    if (machine->worker() == worker) return machine.get();
  }
  return nullptr;
}

int World::IndexOf(const Machine* machine) const {
  for (size_t i = 0; i < machines.size(); ++i) {
    if (machines[i].get() == machine) return static_cast<int>(i);
  }
  return -1;
}

// ---- gangs

void World::BreakGang(const std::shared_ptr<Gang>& gang, const absl::Status& cause) {
  if (gang->complete || gang->broken || gang->MembersAreApart()) return;
  gang->broken = true;
  gang->cause = cause;
  for (const auto& [machine, session] : gang->members) {
    const auto run = gang->joined.find(machine);
    if (run == gang->joined.end()) continue;
    queue.After(random.Between(1, 2 * kSecond), [m = machine, r = run->second] { m->EndRun(r); });
  }
}

void World::BreakGangs(Machine* machine, uint64_t session) {
  const auto has = [&](const auto& members) {
    return std::find(members.begin(), members.end(), std::pair(machine, session)) != members.end();
  };
  for (auto& [key, gang] : gangs_) {
    if (gang != nullptr && has(gang->members)) BreakGang(gang);
  }
  for (auto& [key, sequence] : sequences_) sequence.broken |= has(sequence.members);
  for (auto& [key, gang] : steps_) {
    if (has(gang->members)) BreakGang(gang);
  }
}

std::shared_ptr<Gang> World::GangOfStep(uint64_t controller, const Machine& machine,
                                        LaunchId launch, ExecutableId code) {
  std::shared_ptr<Gang>& gang = steps_[{controller, machine.island(), launch}];
  if (gang != nullptr) {
    if (gang->code != &codes.at(code))
      Broken("G1", "{}: launch id {} is code {}, elsewhere it is {}", machine.worker(), launch,
             code, gang->code->spec.id);
    return gang;
  }
  gang = std::make_shared<Gang>();
  gang->code = &codes.at(code);
  const size_t arguments = gang->code->spec.parameters.size();
  gang->inputs.assign(arguments, std::vector<uint64_t>(gang->code->spec.devices.size(), 0));
  const SequenceLaunch* sequence = SequenceOfStep({controller, machine.island(), launch});
  if (sequence == nullptr) {
    Broken("G1", "{}: a step has launch id {}, of which no sequence is", machine.worker(), launch);
    return gang;
  }
  gang->members = sequence->members;
  gang->places = sequence->places;
  if (gang->MembersAreApart()) return gang;
  gang->broken = sequence->broken;
  for (const auto& [first, stretch] : sequence->left_out) {
    if (gang->broken || launch < first || stretch.first < launch) continue;
    gang->broken = true;
    gang->cause = stretch.second;
  }
  return gang;
}

World::SequenceLaunch* World::SequenceOfStep(const OnIsland& step) {
  auto sequence = sequences_.upper_bound(step);
  if (sequence == sequences_.begin()) return nullptr;
  --sequence;
  const bool of_it = std::get<0>(sequence->first) == std::get<0>(step) &&
                     std::get<1>(sequence->first) == std::get<1>(step) &&
                     std::get<2>(step) <= sequence->second.last;
  return of_it ? &sequence->second : nullptr;
}

void World::LeftOut(uint64_t controller, const Machine& machine, LaunchId first, LaunchId last,
                    const absl::Status& cause) {
  SequenceLaunch* sequence = SequenceOfStep({controller, machine.island(), first});
  if (sequence == nullptr && first == last) {
    for (auto& [key, gang] : gangs_) {
      if (gang == nullptr || std::get<0>(key) != controller || std::get<2>(key) != first) continue;
      if (gang->members.empty() || gang->members[0].first->island() != machine.island()) continue;
      return BreakGang(gang, cause);
    }
  }
  if (sequence == nullptr || sequence->last < last)
    return Broken("G1", "{}: launches {} to {} are left out, of which no sequence is",
                  machine.worker(), first, last);
  sequence->left_out.emplace(first, std::pair(last, cause));
  const auto end = steps_.upper_bound({controller, machine.island(), last});
  for (auto step = steps_.lower_bound({controller, machine.island(), first}); step != end; ++step)
    BreakGang(step->second, cause);
}

void World::FinishGang(const std::shared_ptr<Gang>& gang) {
  if (gang->broken) return;
  gang->complete = true;
  if (gang->members.size() == 1) {
    const auto [machine, run] = *gang->joined.begin();
    return machine->EndRun(run);
  }
  for (const auto& [machine, session] : gang->members)
    queue.After(random.Between(0, 1000),
                [m = machine, r = gang->joined.at(machine)] { m->EndRun(r); });
}

// ---- the end

bool World::ClientsDone() const {
  return std::all_of(owners.begin(), owners.end(),
                     [](const SessionOwner* owner) { return owner->done(); });
}

void World::Tick() {
  if (controller != nullptr) {
    controller->Tick();
    CheckLosses();
    for (const IslandStatus& island : controller->cluster().fleet().Islands()) {
      int64_t& since = down_since_.try_emplace(island.name, queue.now()).first->second;
      if (island.up) {
        since = queue.now();
        given_up_.erase(island.name);
      } else if (queue.now() - since > 3 * kSecond && queue.now() % kSecond < kTick) {
        Count("island given up");
        for (auto& client : clients) client->IslandGivenUp(island.name);
        if (!given_up_.insert(island.name).second) continue;
        controller->cluster().fleet().IslandGivenUp(island.id, absl::UnavailableError("given up"));
        controller->Settle();
      }
    }
    for (auto& machine : machines) {
      machine->CheckTotals();
      machine->CheckOnTheWay();
    }
  }
  const bool waiting = std::any_of(owners.begin(), owners.end(),
                                   [](const SessionOwner* owner) { return owner->waiting(); });
  switch (phase_) {
    case Phase::kBusy:
      if (!ClientsDone() || down_ > 0 || controller == nullptr || !controller->AllUp()) break;
      phase_ = Phase::kSettling;
      phase_since_ = queue.now();
      break;
    case Phase::kSettling:
    case Phase::kReading:
      if (waiting) break;
      if (phase_ == Phase::kSettling) {
        for (auto& client : clients) client->ReadAll();
        phase_ = Phase::kReading;
      } else {
        for (SessionOwner* owner : owners) owner->End();
        phase_ = Phase::kClosing;
      }
      phase_since_ = queue.now();
      break;
    case Phase::kClosing:
      // Executors report applied entries with the next heartbeat at the latest.
      if (queue.size() > background || !inbox_.empty() || controller->open_entries() > 0) break;
      CheckEmpty();
      ended_ = true;
      return;
  }
  if (phase_ != Phase::kBusy && queue.now() - phase_since_ > kPatience) {
    for (const std::string& line : controller->cluster().inspection().Unfinished())
      Trace("{}", line);
    for (SessionOwner* owner : owners) owner->ReportWaiting();
    Broken("G3", "something is still under way: {} events, {} nodes, {} entries", queue.size(),
           controller->cluster().inspection().counts().nodes, controller->open_entries());
  }
  queue.After(kTick, [this] { ToController([this] { Tick(); }); });
}

void World::CheckEmpty() {
  if (config.fanout > 0) CheckRelays();
  const ClusterCounts counts = controller->cluster().inspection().counts();
  if (counts.nodes + counts.groups + counts.arrays + counts.sessions > 0)
    Broken("B1", "left in the core: {} nodes, {} groups, {} arrays, {} sessions", counts.nodes,
           counts.groups, counts.arrays, counts.sessions);
  for (const DeviceUsage& usage : controller->cluster().fleet().Usage()) {
    if (usage.used != 0) Broken("B2", "device {} still counts {} bytes", usage.device, usage.used);
  }
  if (controller->compiling() > 0)
    Broken("G3", "{} compilations are not answered", controller->compiling());
  for (auto& machine : machines) {
    if (const std::string left = machine->Leftovers(); !left.empty())
      Broken("B1", "left on {}: {}", machine->worker(), left);
  }
}

void World::Run() {
  while (verdict.ok() && !ended_) {
    queue.RunOne();
    if (steps > kMaxSteps) Broken("sim", "{} steps and no end", steps);
  }
  controller.reset();
}

}  // namespace fairway::sim
