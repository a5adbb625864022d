// SPDX-License-Identifier: Apache-2.0
// Checks that what the hub says has happened, and that it says so in time.
#include <algorithm>
#include <chrono>

#include "controller/cluster/fleet.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/host.h"
#include "tests/sim/intruder.h"
#include "tests/sim/wire.h"
#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The hub shows a stall after 3 s of silence; beats come every 500 ms and may be late.
constexpr int64_t kStalled = 3000 * kMillisecond;
constexpr int64_t kStalledSlack = 2000 * kMillisecond;

WorkerHubOptions HubOptions(const World& world) {
  WorkerHubOptions options;
  options.controller = Incarnation(world.epoch);
  options.data_endpoint = ":1";
  options.link_grace = milliseconds(world.config.link_grace / kMillisecond);
  options.deadline = milliseconds(world.config.deadline / kMillisecond);
  // Islands and commands are small here. Still, versions have to wait in half of the worlds, and
  // links have little room in some.
  if (world.config.operations % 2 == 0) options.links.few = 0;
  if (world.config.operations % 4 < 2 && world.config.hostile == 0) options.links.link_bytes = 500;
  options.links.fanout = world.config.fanout;
  options.links.relay_patience = world.config.relay_patience;
  options.links.relay_soon = world.RelaySoon();
  options.links.exact = [&world] { return RunningClock::Time(microseconds(world.queue.now())); };
  options.links.secret = [n = 0]() mutable { return fmt::format("secret {}", ++n); };
  if (world.config.fanout > 0) {
    options.links.link_bytes = world.config.relay_link_bytes;
    options.links.relay_bytes = 10 * world.config.relay_child_bytes;
  }
  return options;
}

ClusterOptions WithKey(ClusterOptions options, uint64_t epoch) {
  options.data_key = KeyOfController(epoch);
  return options;
}

}  // namespace

Controller::Controller(World& world, ClusterOptions options)
    : world_(world),
      loop_(world, world.epoch),
      clock_(RunningClock::Time(microseconds(world.queue.now())), milliseconds(200)),
      cluster_(WithKey(std::move(options), world.epoch), this),
      hub_(loop_, HubOptions(world), this, [this] { return clock_.now(); }) {}

void Controller::TickHub() {
  clock_.Advance(RunningClock::Time(microseconds(world_.queue.now())));
  hub_.Tick();
  hub_.AskRelays({});
  CheckStalled();
}

absl::StatusOr<ExecutorId> Controller::OnExecutorUp(const ExecutorSpec& spec) {
  Machine* const machine = world_.FindMachine(spec.worker);
  for (auto& [id, member] : members_) {
    if (member.machine != machine) continue;
    if (member.up) world_.Broken("F1", "{} is up twice", spec.worker);
    member.session = spec.incarnation.value;  // commands for it come already
    member.up = true;
  }
  const absl::StatusOr<ExecutorId> id = cluster_.fleet().ExecutorUp(spec);
  if (!id.ok()) {
    world_.Broken("F1", "{} cannot register: {}", spec.worker, Describe(id.status()));
    return id;
  }
  world_.Trace("{} registers as e{}, incarnation {}", spec.worker, *id, spec.incarnation);
  members_[*id] = {machine, spec.incarnation.value, true};
  for (const DeviceUsage& usage : cluster_.fleet().Usage()) {
    if (usage.executor == *id) machine_of_[usage.device] = machine;
  }
  world_.Registered(spec.incarnation.value);
  Settle();
  return id;
}

void Controller::OnExecutorLost(ExecutorId id, const absl::Status& cause) {
  Member& member = members_.at(id);
  Machine& machine = *member.machine;
  if (!member.up) return world_.Broken("F1", "{} is lost twice", machine.worker());
  world_.Trace("controller loses {}: {}", machine.worker(), Describe(cause));
  member.up = false;
  world_.Lost(machine, member.session, cause);
  if (machine.session() == member.session) {
    world_.Count("executor declared lost");
  } else {
    world_.BreakGangs(&machine, member.session);  // launches that were sent after its end
  }
  for (auto& client : world_.clients) client->ExecutorLost(machine);
  cluster_.fleet().ExecutorLost(id, cause);
  Settle();
}

void Controller::OnReport(ExecutorId id, Incarnation incarnation, Report report) {
  world_.Trace("report of e{} incarnation {}: through {}, {} more, {} failures", id, incarnation,
               report.finished_through, report.finished.size(), report.failures.size());
  const Member& member = members_.at(id);
  member.machine->Heard(member.session, *world_.received);
  if (!member.up) world_.Broken("F1", "{} is lost and reports", member.machine->worker());
  if (const absl::Status same = SentAgain(*world_.received, incarnation, report); !same.ok())
    world_.Broken("codec", "a report of {}: {}", member.machine->worker(), Describe(same));
  if (member.session != incarnation.value) world_.Count("fenced report");
  for (const Report::Failure& failure : report.failures) {
    if (failure.status.code() == absl::StatusCode::kInternal)
      world_.Broken("G2", "e{} reports {}", id, Describe(failure.status));
  }
  cluster_.fleet().OnReport(id, incarnation, std::move(report));
  Settle();
}

void Controller::OnLaunchesEnded(std::vector<NodeId> nodes) {
  for (const NodeId node : nodes) world_.Trace("n{} has ended on all executors", node);
  cluster_.fleet().LaunchesEnded(std::move(nodes));
  Settle();
}

void Controller::OnCrowded(ExecutorId) {}
void Controller::OnCallback(ExecutorId, CallbackCall) {}
void Controller::OnCallbackGivenUp(ExecutorId, uint64_t) {}

void Controller::Restart(const Machine& machine) {
  const std::string& worker = machine.worker();
  std::map<std::string, uint64_t> all, up;  // by worker, the latest registration
  for (const auto& [id, member] : members_) {
    if (member.machine->island() != machine.island()) continue;
    all[member.machine->worker()] = member.session;
    if (hub_.Connected(id)) up[member.machine->worker()] = member.session;
  }
  std::map<std::string, uint64_t>& ended = restarts_[machine.island()];
  const bool some_are_away = std::any_of(all.begin(), all.end(), [&](const auto& entry) {
    const auto was = ended.find(entry.first);
    return was != ended.end() && was->second == entry.second;
  });
  if (!some_are_away) ended.clear();
  const bool under_way = ended.contains(worker);
  world_.Count(under_way ? "restart under way" : "restart");
  if (!under_way) {
    for (const auto& [name, session] : up) world_.MayBeLost(session, -1);
  }
  const auto was = hub_.RestartExecutor(worker, "an operator asked for it");
  if (!was.ok()) {
    if (up.contains(worker))
      world_.Broken("F1", "{} cannot be restarted: {}", worker, Describe(was.status()));
    return;
  }
  if (was->value != (under_way ? ended : all)[worker])
    world_.Broken("F1", "{} of incarnation {} is said to be ended", worker, *was);
  for (const auto& [id, member] : members_) {
    if (up.contains(member.machine->worker()) && member.up != under_way)
      world_.Broken("F1", "{} is {} by a restart of {}{}", member.machine->worker(),
                    member.up ? "not ended" : "ended", machine.island(),
                    under_way ? ", which is under way" : "");
  }
  if (!under_way) ended = all;
}

void Controller::Compile(const Machine& machine) {
  const uint64_t number = next_program_++;
  compiling_.insert(number);
  const auto program = std::make_shared<const std::string>(fmt::format("program {}", number));
  const auto done = [this, number, program](const absl::StatusOr<CompiledCode>& code) {
    world_.Count(code.ok() ? "compiled" : "compilation fails");
    if (compiling_.erase(number) == 0)
      world_.Broken("G3", "the compilation of {} is answered again", *program);
    if (code.ok() ? code->code != "code of " + *program
                  : code.status().code() != absl::StatusCode::kUnavailable)
      world_.Broken("G3", "the compilation of {} gives {}", *program,
                    code.ok() ? code->code : Describe(code.status()));
  };
  hub_.Compile(machine.island(), PackCompileRequest(*program, {}), done);
}

bool Controller::AllUp() const {
  return std::all_of(world_.machines.begin(), world_.machines.end(), [&](const auto& machine) {
    return machine->Fine() && std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
             return entry.second.machine == machine.get() && entry.second.up &&
                    entry.second.session == machine->session();
           });
  });
}

void Controller::CheckStalled() {
  const std::map<ExecutorId, milliseconds> stalled = hub_.Stalled();
  const int64_t now = world_.queue.now();
  for (const auto& [id, member] : members_) {
    if (!member.up) continue;
    const Machine& machine = *member.machine;
    const bool shown = stalled.contains(id);
    if (shown) world_.Count("executor stalled");
    if (machine.session() != member.session || world_.config.stops > 0) continue;
    const bool slept = machine.asleep() || now - machine.woke_at() < kStalledSlack;
    if (shown && !slept && machine.Fine())
      world_.Broken("liveness", "{} is shown as stalled", machine.worker());
    if (!shown && machine.asleep() && now - machine.slept_at() > kStalled + kStalledSlack)
      world_.Broken("liveness", "{} is not shown as stalled", machine.worker());
  }
}

}  // namespace fairway::sim
