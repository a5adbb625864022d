// SPDX-License-Identifier: Apache-2.0
// Faults of processes, hosts and links, and which executors may be lost by them (rule F1).
#include <algorithm>

#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/host.h"
#include "tests/sim/machine.h"
#include "tests/sim/relays.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

constexpr int64_t kHostSilent = 3 * kSecond;
constexpr int64_t kCauseWait = kSecond;
constexpr int64_t kTicks = 400 * kMillisecond;
// An executor that hears of a cut goes on in this time: a pause, three messages, a turn of the
// loop.
constexpr int64_t kBack = kSecond;
// Message delays, a tick, other work of the loop.
constexpr int64_t kSlack = 2 * kSecond;

}  // namespace

Pulled World::MayBeCut(Pulled done, uint64_t bits) {
  if (config.cut_percent == 0 || !random.Percent(config.cut_percent)) return done;
  Count("pull cut");
  cut |= bits;
  auto told = std::make_shared<bool>(false);
  queue.After(random.Between(1, 2 * config.data_delay), [told, done] {
    if (!std::exchange(*told, true)) done(absl::UnavailableError("the connection was cut"));
  });
  return [told = std::move(told), done = std::move(done)](absl::StatusOr<uint64_t> value) {
    if (!std::exchange(*told, true)) done(std::move(value));
  };
}

// ---- relays

void World::SetupRelays(uint64_t seed, WorldKind kind) {
  Random r(seed ^ 0x72656c617973);
  if (!(kind.relays || r.Percent(kind.small ? 0 : 8)) || config.hostile > 0) return;
  config.fanout = static_cast<size_t>(r.Between(2, 4));
  config.large_island = static_cast<int>(r.Between(4, 16));
  config.relay_faults = r.Percent(30) ? 0 : static_cast<int>(r.Between(1, 6));
  config.double_percent = r.Percent(50) ? 0 : static_cast<int>(r.Between(5, 50));
  config.behind_percent = r.Percent(80) ? 0 : static_cast<int>(r.Between(5, 40));
  if (r.Percent(50)) config.relay_link_bytes = static_cast<size_t>(r.Between(500, 4000));
  if (r.Percent(40)) config.relay_child_bytes = static_cast<size_t>(r.Between(200, 2000));
  config.late_relay = config.relay_faults == 0 && config.link_delay <= 5000 && r.Percent(50);
  Trace("relays: fan-out {}, {} executors, {} faults, {} bytes for a child", config.fanout,
        config.large_island, config.relay_faults, config.relay_child_bytes);
}

void World::MakeRelayLate() {
  const bool rule = Unhurt() && config.relay_child_bytes > 2000;
  std::vector<RelayHost*> relays;
  for (auto& machine : machines) {
    if (machine->host().relay().relays()) relays.push_back(&machine->host().relay());
  }
  if (relays.empty()) return;
  random.Pick(relays)->BeLate(random.Between(10 * kSecond, 20 * kSecond), rule);
}

bool World::Unhurt() const {
  return config.losses + config.cuts + config.controller_losses + config.stops +
             config.relay_faults + config.behind_percent ==
         0;
}

void World::HurtRelay() {
  std::vector<Machine*> of_island;
  for (auto& machine : machines) {
    if (machine->island() == "i0") of_island.push_back(machine.get());
  }
  Machine* victim = random.Pick(of_island);
  for (Machine* const machine : of_island) {  // most often one that relays
    if (machine->host().relay().relays() && random.Percent(40)) victim = machine;
  }
  Host& host = victim->host();
  const int64_t kind = random.Below(100);
  if (kind < 5) {
    host.relay().BeLate(random.Between(kSecond, 20 * kSecond), false);
  } else if (kind < 30) {
    host.relay().Stop(random.Between(kSecond / 10, 60 * kSecond));
  } else if (kind < 45) {
    host.relay().Kill();
  } else if (kind < 55) {
    Count("links of a relay cut");
    pipes->CutAll(host);
    if (random.Percent(50))
      host.relay().CutLink(random.Percent(50), random.Between(1, kSecond / 2));
  } else if (kind < 80) {
    Count("hosts cannot reach each other");
    pipes->Block(host, random.Pick(of_island)->host(), random.Between(kSecond / 10, 60 * kSecond));
  } else if (controller != nullptr && victim->Fine()) {
    Cut(*victim, random.Percent(50), random.Between(1, kSecond / 2), false, true);
  }
}

void World::CheckRelays() {
  const WorkerHub::Relays relays = controller->relays();
  Count(fmt::format("tree of depth {}", relays.depth));
  if (Unhurt() && relays.troubles > (config.late_relay ? 1 : 0))
    Broken("link", "{} relays or children got another place, though nothing was in their way",
           relays.troubles);
}

// ---- executors, their hosts and links

void World::HurtExecutor(Machine& machine) {
  --down_;
  if (controller == nullptr || !machine.Fine()) return;  // it has a fault already
  const int64_t kind = random.Below(100);
  if (kind < 30) {
    Count("executor dies");
    machine.Killed();
  } else if (kind < 40) {
    Count("host dies");
    machine.host().Die(random.Percent(20) ? random.Between(5 * kSecond, 20 * kSecond)
                                          : random.Between(1000, kSecond));
  } else if (kind < 60) {
    CutLinks(machine);
  } else if (kind < 75) {
    StopExecutor(machine);
  } else if (kind < 87) {
    SilenceHost(machine);
  } else {
    ++down_;
    const auto restart = [this, &machine] {
      ToController([this, &machine] {
        if (controller != nullptr) controller->Restart(machine);
      });
    };
    restart();
    // Somebody else asks for a restart, too.
    queue.After(random.Between(1, 3 * kSecond), [this, restart] {
      --down_;
      if (random.Percent(50)) restart();
    });
  }
}

void World::CutLinks(Machine& machine) {
  const bool hub_first = random.Percent(50);
  const int64_t later = random.Between(1, random.Percent(50) ? kSecond / 5 : 3 * kSecond);
  const bool executor = random.Percent(80);
  const int64_t grace = config.link_grace;
  if (executor && grace == 0) {
    // The hub waits for the supervisor's account, which does not come.
    const int64_t told = kCauseWait + kTicks;
    MayBeLost(machine.session(), hub_first ? told : later + told);
  } else if (executor && hub_first && later + kBack > grace) {
    MayBeLost(machine.session(), -1);
    if (later > grace + kTicks)
      excuses_[machine.session()].back_by = controller->Now() + grace + kTicks;
  }
  Cut(machine, hub_first, later, executor, !executor || random.Percent(30));
}

void World::CutAndBack(Machine& machine) {
  if (controller == nullptr || !machine.Fine() || config.link_grace <= kBack + kSecond / 2) return;
  Count("link cut and back");
  Cut(machine, random.Percent(50), random.Between(1, kSecond / 2), true, random.Percent(30));
}

void World::Cut(Machine& machine, bool hub_first, int64_t later, bool executor, bool supervisor) {
  Count(hub_first ? "link cut: the controller hears first" : "link cut: the worker hears first");
  Trace("the link of {} is cut, the other end hears of it {} us later", machine.worker(), later);
  if (executor) machine.CutLink(hub_first, later);
  if (supervisor) machine.host().CutLink(hub_first, later);
}

void World::StopExecutor(Machine& machine) {
  const bool supervisor_too = random.Percent(40);
  const int64_t least = supervisor_too ? config.deadline / 2 : kSecond / 10;
  const bool may_be_long = supervisor_too || random.Percent(40);
  const int64_t time = random.Between(least, may_be_long ? 3 * config.deadline / 2 : 5 * kSecond);
  Count("executor stopped");
  Trace("the executor of {} stops for {} us", machine.worker(), time);
  machine.Sleep();
  const uint64_t session = machine.session();
  // The hub heard its last heartbeat at most 500 ms and a message delay ago; a stopped controller
  // has yet to read it. The deadline counts the controller's time.
  const int64_t by = controller->Now() + config.deadline + kSecond + kSlack;
  queue.After(config.deadline - kSecond, [this, &machine, session, by] {
    if (machine.session() != session || !machine.asleep() || controller == nullptr) return;
    MayBeLost(session, std::max(by - controller->Now(), kSlack));
  });
  if (supervisor_too) {
    Count("worker stopped");
    machine.host().Sleep();
    ++down_;
    queue.After(std::max(int64_t{1}, time + random.Between(-kSecond, kSecond)), [this, &machine] {
      --down_;
      machine.host().Wake();
    });
  }
  ++down_;
  queue.After(time, [this, &machine, session] {
    --down_;
    if (machine.session() != session || !machine.asleep()) return;
    Count("stopped executor goes on");
    if (const auto it = excuses_.find(session); it != excuses_.end()) it->second.must_by = -1;
    machine.Wake();
  });
}

void World::SilenceHost(Machine& machine) {
  const int64_t time = random.Between(kSecond / 2, 8 * kSecond);
  Count("host silent");
  Trace("the host of {} is silent for {} us", machine.worker(), time);
  const uint64_t session = machine.session();
  if (time >= kHostSilent) {
    queue.After(kHostSilent, [this, session] { MayBeLost(session, kSlack); });
  }
  machine.host().Silence(time);
}

// ---- losses

void World::MayBeLost(uint64_t session, int64_t within) {
  Trace("incarnation {} may be lost{}", session, within < 0 ? "" : ", and must be");
  // The first deadline holds; a cause without one sets none.
  const auto [it, fresh] = excuses_.try_emplace(session);
  const int64_t by = within < 0 || controller == nullptr ? -1 : controller->Now() + within;
  if (fresh || it->second.must_by < 0) it->second.must_by = by;
}

void World::GivenUpBy(uint64_t session) {
  // It registers anew when its launches have ended. Until then the controller takes the
  // connection for one that was cut, and waits for the grace.
  MayBeLost(session, config.link_grace + 2 * kSecond);
}

void World::WentOn(uint64_t session) {
  if (const auto it = excuses_.find(session); it != excuses_.end()) it->second.back_by = -1;
}

void World::Lost(const Machine& machine, uint64_t session, const absl::Status& cause) {
  if (!excuses_.contains(session))
    Broken("F1", "{} of incarnation {} is lost, though nothing happened to it: {}",
           machine.worker(), session, Describe(cause));
  registered_.erase(session);
  const auto account = accounts_.find(session);
  const std::string text = Describe(cause);
  const bool asked = text.find("an operator asked") != std::string::npos;
  if (account != accounts_.end() && !asked && text.find(account->second) == std::string::npos)
    Broken("F1", "the loss of {}: {}, while its supervisor says: {}", machine.worker(), text,
           account->second);
}

void World::CheckLosses() {
  for (const uint64_t session : registered_) {
    const auto excuse = excuses_.find(session);
    if (excuse == excuses_.end()) continue;
    for (const int64_t by : {excuse->second.must_by, excuse->second.back_by}) {
      if (by >= 0 && controller->Now() > by)
        return Broken("F1", "incarnation {} is gone, and not lost since", session);
    }
  }
}

// ---- the controller

void World::StopController() {
  --down_;
  const int64_t time = random.Between(1000, random.Percent(50) ? kSecond / 2 : 20 * kSecond);
  Count("controller stopped");
  Trace("the controller stops for {} us", time);
  free_at_ = std::max(free_at_, queue.now()) + time;
}

void World::LoseController() {
  if (controller == nullptr) {
    --down_;
    return;
  }
  Count("controller lost");
  Trace("the controller dies");
  for (auto& client : clients) client->ControllerLost();
  controller.reset();
  free_at_ = queue.now();
  queue.After(random.Between(1000, kSecond), [this] {
    --down_;
    StartController();
  });
}

void World::StartController() {
  ++epoch;
  registered_.clear();
  excuses_.clear();
  accounts_.clear();
  controller = std::make_unique<Controller>(*this, config.cluster);
  given_up_.clear();
  cordoned.clear();
  drained.clear();
}

}  // namespace fairway::sim
