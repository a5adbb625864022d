// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <set>
#include <string>

#include "client/hosts/steps.h"
#include "client/hosts/verbs.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

// The command that makes a token for a client, on the controller's host.
std::string TokenCommand(const Fleet& fleet, const Host& host) {
  const std::string config =
      fleet.file().ssh_config.empty() ? "" : fmt::format("-F {} ", fleet.file().ssh_config);
  const bool other_user = fleet.file().sudo || host.facts().user == "root";
  const std::string owner = host.facts().controller_user;
  const std::string user = owner.empty() ? "fairway-controller" : owner;
  return fmt::format(
      "ssh {}{} {}{}{}/current/bin/fairway token create --role user --tenant NAME --from "
      "{}/controller",
      config, host.name(), fleet.file().sudo ? "sudo -n " : "",
      other_user ? fmt::format("runuser -u {} -- ", user) : "", host.folder(), host.folder());
}

// Notes daemons that run, but not as the file says.
void NoteDifferences(Fleet& fleet, const Plan& plan, const ClusterState& state) {
  for (const auto& site : fleet.sites()) {
    for (const Daemon& daemon : site->daemons) {
      const std::string settings = daemon.name == kController
                                       ? ControllerSettings(fleet.file(), site->host.folder())
                                       : SettingsOf(fleet, *site, daemon, plan, state);
      const std::string difference = Difference(*site, daemon, plan, settings);
      if (difference.empty() || !site->note.empty()) continue;
      site->note = difference + ": `fairway cluster upgrade` has it run what the file says";
    }
  }
}

// The controller serves when this returns OK.
absl::StatusOr<ClusterState> BringUpController(Fleet& fleet, const Plan& plan) {
  FAIRWAY_RETURN_IF_ERROR(fleet.controller().failed);
  if (fleet.controller().host.facts().Of(std::string(kController)).release.empty())
    FAIRWAY_RETURN_IF_ERROR(StartController(fleet, plan.package.release));
  return AwaitController(fleet, plan.limit);
}

// Those that do not run, or not for long.
std::set<std::string> StoppedWorkers(Fleet& fleet) {
  std::set<std::string> out;
  for (const Daemon& worker : fleet.file().workers) {
    const DaemonFacts facts = fleet.Of(worker.name).host.facts().Of(worker.name);
    if (facts.release.empty() || facts.HasExpired()) out.insert(worker.name);
  }
  return out;
}

}  // namespace

int ClusterUp(Fleet& fleet, std::chrono::milliseconds limit) {
  const auto plan = MakePlan(fleet.file(), limit);
  if (!plan.ok()) {
    fmt::print(stderr, "fairway cluster up: {}\n", Text(plan.status()));
    return kExitFailed;
  }
  fleet.ForEach([&](Site& site) { return Install(site, *plan); });
  const auto state = BringUpController(fleet, *plan);
  if (!state.ok()) {
    if (fleet.controller().failed.ok()) fleet.Fail(fleet.controller(), state.status());
    fleet.PrintDone();
    fmt::print(stderr,
               "fairway cluster up: no worker was started, since there is no controller; mend its "
               "host, and type the same again\n");
    return kExitFailed;
  }
  NoteDifferences(fleet, *plan, *state);
  // What starts runs what the controller runs, if that is not the file's package.
  const std::string running = fleet.controller().host.facts().Of(std::string(kController)).release;
  StartWorkers(fleet, *plan, *state, StoppedWorkers(fleet),
               running.empty() ? plan->package.release : running);
  fleet.PrintDone();
  if (fleet.Failed() > 0) {
    fmt::print(stderr, "fairway cluster up: {} of {} hosts failed; the others are up\n",
               fleet.Failed(), fleet.sites().size());
    return kExitFailed;
  }
  fmt::print("The cluster is up. Next, for each client a token:\n  {}\n",
             TokenCommand(fleet, fleet.controller().host));
  return 0;
}

}  // namespace fairway
