// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "client/hosts/verbs.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

// Ends the controller of the site, or its workers.
absl::Status Stop(Site& site, bool controller) {
  for (const Daemon& daemon : site.daemons) {
    if ((daemon.name == kController) != controller) continue;
    FAIRWAY_ASSIGN_OR_RETURN(const bool ran, site.host.StopDaemon(daemon));
    if (ran) site.done.push_back("ended " + daemon.name);
  }
  return absl::OkStatus();
}

}  // namespace

int ClusterDown(Fleet& fleet, bool purge) {
  fleet.ForEach([](Site& site) { return site.host.Probe(); });
  fleet.ForEach([](Site& site) { return Stop(site, false); });
  fleet.ForEach([](Site& site) { return Stop(site, true); });
  if (purge) {
    fleet.ForEach([](Site& site) -> absl::Status {
      FAIRWAY_ASSIGN_OR_RETURN(const bool removed, site.host.Purge());
      if (removed) site.done.push_back("removed " + site.host.folder());
      return absl::OkStatus();
    });
  }
  fleet.PrintDone();
  if (fleet.Failed() == 0) return 0;
  fmt::print(stderr,
             "fairway cluster down: {} of {} hosts failed, and what runs there goes on: type the "
             "same again when they are back\n",
             fleet.Failed(), fleet.sites().size());
  return kExitFailed;
}

}  // namespace fairway
