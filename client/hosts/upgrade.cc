// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "client/hosts/steps.h"
#include "client/hosts/verbs.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

bool RunsAsPlanned(const Site& site, const Daemon& daemon, const Plan& plan,
                   const std::string& settings) {
  const DaemonFacts facts = site.host.facts().Of(daemon.name);
  return !facts.release.empty() && !facts.HasExpired() &&
         Difference(site, daemon, plan, settings).empty();
}

// Whether the release of the file takes the settings of what runs there. A worker that has to join
// lacks the files that they name, so it is looked at when it has.
absl::Status CheckSettings(Fleet& fleet, Site& site, const Plan& plan, const ClusterState& state) {
  for (const Daemon& daemon : site.daemons) {
    const DaemonFacts facts = site.host.facts().Of(daemon.name);
    const bool is_controller = daemon.name == kController;
    if (is_controller ? !facts.made : !facts.HasJoined()) continue;
    const std::string settings = is_controller
                                     ? ControllerSettings(fleet.file(), site.host.folder())
                                     : SettingsOf(fleet, site, daemon, plan, state);
    FAIRWAY_RETURN_IF_ERROR(site.host.CheckSettings(daemon.name, settings, plan.package.release));
  }
  return absl::OkStatus();
}

// Looks at all hosts, and copies what they lack. Ends nothing.
void Prepare(Fleet& fleet, const Plan& plan) {
  fleet.ForEach([&](Site& site) { return Install(site, plan); });
  if (fleet.Failed() > 0) return;
  const Daemon& controller = fleet.file().controller;
  ClusterState state;
  if (auto said = AskState(fleet.controller().host, controller); said.ok()) {
    state = *std::move(said);
  } else {
    state.link = ClientAddress(controller);  // it will have another one; any is as right
  }
  fleet.ForEach([&](Site& site) { return CheckSettings(fleet, site, plan, state); });
}

// Returns what the controller says when it runs as the file says.
absl::StatusOr<ClusterState> UpgradeController(Fleet& fleet, const Plan& plan) {
  Site& site = fleet.controller();
  FAIRWAY_RETURN_IF_ERROR(site.failed);
  const Daemon& daemon = fleet.file().controller;
  if (!RunsAsPlanned(site, daemon, plan, ControllerSettings(fleet.file(), site.host.folder()))) {
    FAIRWAY_ASSIGN_OR_RETURN(const bool ran, site.host.StopDaemon(daemon));
    if (ran) site.done.emplace_back("ended the controller, and all sessions with it");
    FAIRWAY_RETURN_IF_ERROR(StartController(fleet, plan.package.release));
  }
  return AwaitController(fleet, plan.limit);
}

// The workers of the island, on hosts that answer.
std::set<std::string> WorkersThere(Fleet& fleet, const std::string& island) {
  std::set<std::string> out;
  for (const Daemon& worker : fleet.file().workers) {
    if (worker.island == island && fleet.Of(worker.name).failed.ok()) out.insert(worker.name);
  }
  return out;
}

// Restarts the workers of the island that do not run as the file says, and waits for all.
absl::Status UpgradeIsland(Fleet& fleet, const Plan& plan, const std::string& island) {
  FAIRWAY_ASSIGN_OR_RETURN(const ClusterState before,
                           AskState(fleet.controller().host, fleet.file().controller));
  std::set<std::string> others = WorkersThere(fleet, island);
  std::set<std::string> restarted;
  for (const Daemon& worker : fleet.file().workers) {
    Site& site = fleet.Of(worker.name);
    if (others.contains(worker.name) &&
        !RunsAsPlanned(site, worker, plan, SettingsOf(fleet, site, worker, plan, before))) {
      others.erase(worker.name);
      restarted.insert(worker.name);
    }
  }
  fleet.ForEach([&](Site& site) -> absl::Status {
    for (const Daemon& daemon : site.daemons) {
      if (!restarted.contains(daemon.name)) continue;
      FAIRWAY_ASSIGN_OR_RETURN(const bool ran, site.host.StopDaemon(daemon));
      if (ran) site.done.push_back("ended " + daemon.name);
    }
    return absl::OkStatus();
  });
  StartWorkers(fleet, plan, before, restarted, plan.package.release);
  AwaitWorkers(fleet, ClusterState(), others, plan.limit);  // the controller may be a new one
  return absl::OkStatus();
}

int Stopped(Fleet& fleet, const std::string& where) {
  fleet.PrintDone();
  fmt::print(stderr,
             "fairway cluster upgrade: it stopped {}; what comes after runs as before. Mend what "
             "failed and type the same again, or name the package before in the file\n",
             where);
  return kExitFailed;
}

}  // namespace

int ClusterUpgrade(Fleet& fleet, std::chrono::milliseconds limit) {
  const auto plan = MakePlan(fleet.file(), limit);
  if (!plan.ok()) {
    fmt::print(stderr, "fairway cluster upgrade: {}\n", Text(plan.status()));
    return kExitFailed;
  }
  Prepare(fleet, *plan);
  // Not all hosts would get to the next version, and a third one refuses those that stay behind.
  if (fleet.Failed() > 0) return Stopped(fleet, "before anything was ended");
  const auto state = UpgradeController(fleet, *plan);
  if (!state.ok()) {
    if (fleet.controller().failed.ok()) fleet.Fail(fleet.controller(), state.status());
    return Stopped(fleet, "at the controller");
  }
  for (const std::string& island : fleet.file().Islands()) {
    const int before = fleet.Failed();
    const absl::Status status = UpgradeIsland(fleet, *plan, island);
    if (!status.ok()) fleet.Fail(fleet.controller(), status);
    if (fleet.Failed() > before) return Stopped(fleet, "at " + island);
  }
  fleet.ForEach([&](Site& site) { return site.host.Tidy(plan->plugin); });
  fleet.PrintDone();
  if (fleet.Failed() == 0) return 0;
  fmt::print(stderr, "fairway cluster upgrade: {} of {} hosts failed; the others are done\n",
             fleet.Failed(), fleet.sites().size());
  return kExitFailed;
}

}  // namespace fairway
