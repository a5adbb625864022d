// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/steps.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "identity/join.h"

namespace fairway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{300};

// Whether the worker's certificate can be one of the cluster whose CAs have the hashes `known`. If
// the worker's CAs are missing it can be.
absl::Status CheckSameCluster(Site& site, const std::string& worker,
                              const std::vector<std::string>& known) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string own, site.host.Call("show_ca " + worker));
  if (own.empty()) return absl::OkStatus();
  for (const std::string& hash : CertificateHashes(own)) {
    if (std::ranges::find(known, hash) != known.end()) return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               "{} joined another cluster before: remove {}/workers/{} there, and type the same "
               "again",
               worker, site.host.folder(), worker);
}

// The workers of `wanted` that have no certificate, or one that is over, on hosts that have not
// failed.
std::vector<std::string> ThatLackOne(Fleet& fleet, const std::set<std::string>& wanted) {
  std::vector<std::string> out;
  for (const auto& site : fleet.sites()) {
    for (const Daemon& daemon : site->daemons) {
      if (site->failed.ok() && wanted.contains(daemon.name) &&
          !site->host.facts().Of(daemon.name).HasJoined())
        out.push_back(daemon.name);
    }
  }
  return out;
}

// How a worker joined whose host said `before` of it.
std::string Joined(const std::string& worker, const DaemonFacts& before) {
  if (before.HasExpired()) return worker + " joined again, since its certificate had expired";
  if (before.made || !before.certificate.empty())
    return worker + " joined again, since its certificate or its key was missing";
  return worker + " joined";
}

// Of each worker in `waiting`, whether it has ended; takes those on failed hosts out.
void FailEnded(Fleet& fleet, std::set<std::string>& waiting) {
  fleet.ForEach([&](Site& site) -> absl::Status {
    for (const Daemon& daemon : site.daemons) {
      if (!waiting.contains(daemon.name)) continue;
      FAIRWAY_ASSIGN_OR_RETURN(const std::string why, site.host.WhyEnded(daemon.name));
      if (!why.empty()) {
        return Error(absl::StatusCode::kAborted, "{} does not come up: {}{}", daemon.name, why,
                     why.find("was known with") == std::string::npos
                         ? ""
                         : "; `fairway cluster down` and `up` let it be another");
      }
    }
    return absl::OkStatus();
  });
  std::erase_if(waiting, [&](const std::string& w) { return !fleet.Of(w).failed.ok(); });
}

// What is known of a worker that runs, and is not up in time.
absl::Status NotUp(Site& site, const std::string& worker, const WorkerState& state,
                   std::chrono::milliseconds limit) {
  std::string why = state.last_error;
  if (state.up) {
    why = fmt::format("other workers of {} are missing", state.island);
  } else if (why.empty()) {
    const auto log = site.host.Call("last_log " + worker);
    why = log.ok() ? "the last line of its log: " + ReasonIn(*log) : Text(log.status());
  }
  return Error(absl::StatusCode::kDeadlineExceeded,
               "{} runs, and the controller has not shown it as up for {} s: {}", worker,
               limit.count() / 1000, why);
}

}  // namespace

void AwaitWorkers(Fleet& fleet, const ClusterState& before, std::set<std::string> waiting,
                  std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  constexpr int kLooksOfController = 5;  // at it, for each at the workers' hosts
  absl::StatusOr<ClusterState> state = before;
  for (int look = 1; !waiting.empty() && Clock::now() < deadline; ++look) {
    state = AskState(fleet.controller().host, fleet.file().controller);
    if (!state.ok()) break;
    std::erase_if(waiting, [&](const std::string& name) {
      const WorkerState now = state->Of(name);
      return now.up && now.island_up && now.incarnation != before.Of(name).incarnation;
    });
    if (waiting.empty()) return;
    if (look % kLooksOfController == 0) FailEnded(fleet, waiting);
    std::this_thread::sleep_for(kLookAgain);
  }
  for (const std::string& name : waiting) {
    Site& site = fleet.Of(name);
    if (!site.failed.ok()) continue;
    fleet.Fail(site, state.ok() ? NotUp(site, name, state->Of(name), limit)
                                : Annotate(state.status(), "the controller does not say whether " +
                                                               name + " is up"));
  }
}

absl::StatusOr<Plan> MakePlan(const ClusterFile& file, std::chrono::milliseconds limit) {
  Plan out{.limit = limit};
  FAIRWAY_ASSIGN_OR_RETURN(out.package, ReadPackage(file.package));
  FAIRWAY_ASSIGN_OR_RETURN(out.plugin, ReadPlugin(file.plugin));
  return out;
}

absl::Status Install(Site& site, const Plan& plan) {
  Host& host = site.host;
  FAIRWAY_RETURN_IF_ERROR(host.Probe());
  const bool has_worker =
      std::ranges::any_of(site.daemons, [](const Daemon& d) { return d.name != kController; });
  const bool copies_release = !host.facts().has.contains("releases/" + plan.package.release);
  const bool copies_plugin = has_worker && !plan.plugin.digits.empty() &&
                             !host.facts().has.contains("plugins/" + plan.plugin.digits);
  FAIRWAY_RETURN_IF_ERROR(CheckFacts(
      host.facts(), plan.package,
      (copies_release ? plan.package.bytes : 0) + (copies_plugin ? plan.plugin.bytes : 0)));
  if (copies_release) {
    FAIRWAY_RETURN_IF_ERROR(host.CopyRelease(plan.package));
    site.done.push_back("installed " + plan.package.release);
  }
  if (copies_plugin) {
    FAIRWAY_RETURN_IF_ERROR(host.CopyPlugin(plan.plugin));
    site.done.emplace_back("copied the plugin");
  }
  return absl::OkStatus();
}

absl::Status StartController(Fleet& fleet, const std::string& release) {
  Site& site = fleet.controller();
  const Daemon& daemon = fleet.file().controller;
  FAIRWAY_RETURN_IF_ERROR(site.host.Switch(release));
  if (!site.host.facts().Of(daemon.name).made) {
    FAIRWAY_RETURN_IF_ERROR(site.host.Init(daemon.address));
    site.done.emplace_back("made the cluster's CA");
  }
  FAIRWAY_RETURN_IF_ERROR(
      site.host.WriteSettings(daemon.name, ControllerSettings(fleet.file(), site.host.folder())));
  FAIRWAY_ASSIGN_OR_RETURN(const bool started, site.host.StartDaemon(daemon, release));
  if (started) site.done.emplace_back("started the controller");
  return absl::OkStatus();
}

absl::StatusOr<ClusterState> AwaitController(Fleet& fleet, std::chrono::milliseconds limit) {
  Host& host = fleet.controller().host;
  const auto deadline = Clock::now() + limit;
  for (;;) {
    absl::StatusOr<ClusterState> state = AskState(host, fleet.file().controller);
    if (state.ok() || !absl::IsAborted(state.status())) return state;
    FAIRWAY_ASSIGN_OR_RETURN(const std::string why, host.WhyEnded(std::string(kController)));
    if (!why.empty()) return Error(absl::StatusCode::kAborted, "the controller has ended: {}", why);
    if (Clock::now() >= deadline)
      return Annotate(state.status(), "the controller runs, and does not answer");
    std::this_thread::sleep_for(kLookAgain);
  }
}

std::string SettingsOf(const Fleet& fleet, const Site& site, const Daemon& worker, const Plan& plan,
                       const ClusterState& state) {
  return WorkerSettings(fleet.file(), worker, site.host.folder(), state.link,
                        site.host.PathOf(plan.plugin));
}

std::string Difference(const Site& site, const Daemon& daemon, const Plan& plan,
                       const std::string& settings) {
  const DaemonFacts facts = site.host.facts().Of(daemon.name);
  if (facts.release.empty()) return "";
  if (facts.release != plan.package.release)
    return fmt::format("{} runs {}", daemon.name, facts.release);
  if (facts.settings != Sha256(settings)) return daemon.name + " runs with other settings";
  return "";
}

void StartWorkers(Fleet& fleet, const Plan& plan, const ClusterState& state,
                  const std::set<std::string>& workers, const std::string& release) {
  if (workers.empty()) return;
  // One thread at a time asks the controller's host.
  const auto authorities = fleet.controller().host.Call("show_ca controller");
  const auto tokens =
      MakeTokens(fleet.controller().host, fleet.file().controller, ThatLackOne(fleet, workers));
  ClusterState before = state;
  std::mutex mutex;  // for both
  std::set<std::string> started;
  const auto start = [&](Site& site, const Daemon& worker) -> absl::Status {
    Host& host = site.host;
    const DaemonFacts facts = host.facts().Of(worker.name);
    if (facts.made || !facts.certificate.empty()) {
      FAIRWAY_RETURN_IF_ERROR(authorities.status());
      FAIRWAY_RETURN_IF_ERROR(CheckSameCluster(site, worker.name, CertificateHashes(*authorities)));
    }
    if (!facts.HasJoined()) {
      FAIRWAY_RETURN_IF_ERROR(tokens.status());
      const auto token = tokens->find(worker.name);
      if (token == tokens->end()) return absl::InternalError("there is no token for it");
      FAIRWAY_ASSIGN_OR_RETURN(const bool joined,
                               host.Join(worker.name, ClientAddress(fleet.file().controller),
                                         token->second.ca_hash, token->second.token));
      if (joined) site.done.push_back(Joined(worker.name, facts));
    }
    bool was_started = false;
    if (facts.release.empty()) {  // else it looks at its files by itself
      FAIRWAY_RETURN_IF_ERROR(
          host.WriteSettings(worker.name, SettingsOf(fleet, site, worker, plan, state)));
      FAIRWAY_ASSIGN_OR_RETURN(was_started, host.StartDaemon(worker, host.facts().current));
    }
    const std::lock_guard lock(mutex);
    started.insert(worker.name);
    if (was_started) {
      site.done.push_back("started " + worker.name);
    } else {
      before.workers.erase(worker.name);  // another command was quicker: any executor will do
    }
    return absl::OkStatus();
  };
  fleet.ForEach([&](Site& site) -> absl::Status {
    const bool has = site.host.facts().has.contains("releases/" + release);
    for (const Daemon& daemon : site.daemons) {
      if (!workers.contains(daemon.name)) continue;
      FAIRWAY_RETURN_IF_ERROR(site.host.Switch(has ? release : plan.package.release));
      FAIRWAY_RETURN_IF_ERROR(start(site, daemon));
    }
    return absl::OkStatus();
  });
  AwaitWorkers(fleet, before, started, plan.limit);
}

}  // namespace fairway
