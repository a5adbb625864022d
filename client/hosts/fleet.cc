// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/fleet.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "client/cli/printable.h"

namespace fairway {
namespace {

constexpr size_t kMostAtATime = 16;

}  // namespace

bool Site::Has(std::string_view daemon) const {
  return std::ranges::any_of(daemons, [&](const Daemon& d) { return d.name == daemon; });
}

std::string Site::Name() const {
  std::vector<std::string> names;
  for (const Daemon& daemon : daemons) names.push_back(daemon.name);
  return fmt::format("{} ({})", host.name(), fmt::join(names, ", "));
}

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Make(std::string command, ClusterFile file) {
  FAIRWAY_ASSIGN_OR_RETURN(auto ssh, Ssh::Make(file.ssh_config));
  return std::unique_ptr<Fleet>(new Fleet(std::move(command), std::move(file), std::move(ssh)));
}

Fleet::Fleet(std::string command, ClusterFile file, std::unique_ptr<Ssh> ssh)
    : command_(std::move(command)), file_(std::move(file)), ssh_(std::move(ssh)) {
  const auto add = [&](const Daemon& daemon) {
    auto site = std::ranges::find_if(
        sites_, [&](const auto& known) { return known->host.name() == daemon.ssh; });
    if (site == sites_.end()) {
      sites_.push_back(
          std::make_unique<Site>(Site{.host = Host(*ssh_, daemon.ssh, file_.sudo, file_.folder)}));
      site = sites_.end() - 1;
    }
    (*site)->daemons.push_back(daemon);
  };
  add(file_.controller);
  for (const Daemon& worker : file_.workers) add(worker);
}

Site& Fleet::Of(std::string_view worker) {
  for (const auto& site : sites_) {
    if (site->Has(worker)) return *site;
  }
  return controller();  // not reached: each worker of the file has a site
}

void Fleet::ForEach(const std::function<absl::Status(Site&)>& work) {
  std::vector<Site*> all;
  for (const auto& site : sites_) all.push_back(site.get());
  ForEach(all, work);
}

void Fleet::ForEach(const std::vector<Site*>& sites,
                    const std::function<absl::Status(Site&)>& work) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < sites.size(); i = next++) {
      if (!sites[i]->failed.ok()) continue;
      if (absl::Status status = work(*sites[i]); !status.ok()) Fail(*sites[i], std::move(status));
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(kMostAtATime, sites.size()); ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
}

void Fleet::Fail(Site& site, absl::Status why) {
  const std::lock_guard lock(printing_);
  fmt::print(stderr, "{}: {}: {}\n", command_, site.Name(), Printable(Text(why)));
  site.failed = std::move(why);
}

void Fleet::PrintDone() {
  for (const auto& site : sites_) {
    if (!site->failed.ok()) continue;
    const std::string done =
        site->done.empty() ? "no change" : fmt::format("{}", fmt::join(site->done, ", "));
    fmt::print("{}: {}{}{}\n", site->Name(), Printable(done), site->note.empty() ? "" : "; ",
               Printable(site->note));
  }
  std::fflush(stdout);
}

int Fleet::Failed() const {
  return static_cast<int>(
      std::ranges::count_if(sites_, [](const auto& site) { return !site->failed.ok(); }));
}

}  // namespace fairway
