// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "client/cli/printable.h"
#include "client/hosts/controller_host.h"
#include "client/hosts/verbs.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

struct Row {
  std::string name, host, release, island, state;
  bool well = false;
};

// What is to be said of a worker whose host answers.
std::string StateOfWorker(const DaemonFacts& facts, const absl::StatusOr<ClusterState>& state,
                          const std::string& name, bool& well) {
  if (facts.HasExpired())
    return "its certificate has expired; `fairway cluster up` has it join again";
  if (facts.release.empty()) return facts.HasJoined() ? "does not run" : "has not joined";
  if (!state.ok()) return "runs; the controller does not say more";
  const WorkerState worker = state->Of(name);
  well = worker.up && worker.island_up;
  if (well) return fmt::format("up, devices: {}", worker.devices);
  if (worker.up) return "up; other workers of its island are not";
  return fmt::format("runs, and is not up at the controller{}{}",
                     worker.last_error.empty() ? "" : ": ", worker.last_error);
}

Row RowOf(const Site& site, const Daemon& daemon, const absl::StatusOr<ClusterState>& state) {
  Row out{.name = daemon.name, .host = daemon.ssh, .release = "-", .island = "-", .state = {}};
  if (!daemon.island.empty()) out.island = daemon.island;
  if (!site.failed.ok()) {
    const char* const known = !state.ok()                 ? "nothing is known"
                              : state->Of(daemon.name).up ? "the controller has it"
                                                          : "the controller has lost it";
    out.state = fmt::format("its host is not reached; {}", known);
    return out;
  }
  const DaemonFacts facts = site.host.facts().Of(daemon.name);
  if (!facts.release.empty()) out.release = facts.release;
  if (daemon.name != kController) {
    out.state = StateOfWorker(facts, state, daemon.name, out.well);
  } else if (facts.release.empty()) {
    out.state = facts.made ? "does not run" : "is not installed";
  } else {
    out.well = state.ok();
    out.state = state.ok() ? "up" : "runs, and does not answer: " + Text(state.status());
  }
  return out;
}

void Print(const std::vector<Row>& rows) {
  size_t name = 4, host = 4, release = 7, island = 6;
  for (const Row& row : rows) {
    name = std::max(name, row.name.size());
    host = std::max(host, row.host.size());
    release = std::max(release, row.release.size());
    island = std::max(island, row.island.size());
  }
  const auto line = [&](const Row& row) {
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {:<{}}  {}\n", row.name, name, row.host, host, row.release,
               release, row.island, island, Printable(row.state));
  };
  line({"NAME", "HOST", "RELEASE", "ISLAND", "STATE"});
  for (const Row& row : rows) line(row);
  std::fflush(stdout);
}

}  // namespace

int ClusterStatus(Fleet& fleet) {
  fleet.ForEach([](Site& site) { return site.host.Probe(); });
  Site& controller = fleet.controller();
  absl::StatusOr<ClusterState> state = absl::UnavailableError("it does not run");
  if (controller.failed.ok() &&
      !controller.host.facts().Of(std::string(kController)).release.empty())
    state = AskState(controller.host, fleet.file().controller);
  std::vector<Row> rows;
  for (const auto& site : fleet.sites()) {
    for (const Daemon& daemon : site->daemons) rows.push_back(RowOf(*site, daemon, state));
  }
  Print(rows);
  return std::ranges::all_of(rows, [](const Row& row) { return row.well; }) ? 0 : kExitFailed;
}

}  // namespace fairway
