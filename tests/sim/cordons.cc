// SPDX-License-Identifier: Apache-2.0
// Operators, who cordon and drain islands and open them again.
#include <memory>

#include "controller/cluster/fleet.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/world.h"

namespace fairway::sim {

void World::SetupCordons(uint64_t seed) {
  const auto r = std::make_shared<Random>(seed ^ 0x636f72646f6e);
  if (config.hostile > 0 || r->Percent(60)) return;
  const int64_t busy = 300000 + config.operations * config.think;
  const auto over = std::make_shared<bool>(false);
  for (int64_t i = r->Between(1, 12); i > 0; --i) {
    queue.After(r->Between(1000, busy), [this, r, over] {
      ToController([this, r, over] {
        if (!*over && controller != nullptr) CordonOrDrain(*r);
      });
    });
  }
  // In the end all may be used, so that no client waits for an island.
  ++down_;
  queue.After(busy, [this, over] {
    ToController([this, over] {
      --down_;
      *over = true;
      for (const std::string& island : cordoned) {
        if (controller != nullptr) (void)controller->cluster().fleet().UncordonIsland(island);
      }
      cordoned.clear();
      drained.clear();
    });
  });
}

void World::CordonOrDrain(Random& r) {
  const std::string island = fmt::format("i{}", r.Below(config.islands));
  Cluster::Fleet& fleet = controller->cluster().fleet();
  const int64_t kind = r.Below(100);
  absl::Status status;
  if (kind < 30) {
    status = fleet.CordonIsland(island, {.by = "op"}).status();
    if (status.ok()) cordoned.insert(island);
    Count("island cordoned");
  } else if (kind < 55) {
    status = fleet.UncordonIsland(island).status();
    cordoned.erase(island);
    drained.erase(island);
    Count("island uncordoned");
  } else {
    auto progress = fleet.DrainIsland(island, Cordon{.by = "op"});
    status = progress.status();
    while (status.ok() && !fleet.LookAtHolders(island, *progress)) {
    }
    if (status.ok()) cordoned.insert(island);
    Count(status.ok() && progress->drained ? "island drained" : "island cannot be drained yet");
    if (status.ok() && progress->drained && drained.insert(island).second) {
      Trace("island {} is drained", island);
      ++drains;
      for (auto& client : clients) client->IslandGivenUp(island);
    }
  }
  controller->Settle();
  if (!status.ok() && status.code() != absl::StatusCode::kNotFound)
    Broken("API", "island {} cannot be cordoned: {}", island, Describe(status));
}

}  // namespace fairway::sim
