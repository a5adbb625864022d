// SPDX-License-Identifier: Apache-2.0
// The controller's loop, and background events.
#include "tests/sim/controller.h"
#include "tests/sim/world.h"

namespace fairway::sim {

void World::ToController(Event run) {
  inbox_.push_back(std::move(run));
  WakeLoop();
}

void World::WakeLoop() {
  if (loop_wakes_ || inbox_.empty()) return;
  loop_wakes_ = true;
  queue.At(free_at_, [this] {
    // Events that take no time run at once.
    while (!inbox_.empty() && free_at_ <= queue.now()) {
      Event run = std::move(inbox_.front());
      inbox_.pop_front();
      const uint64_t before = controller == nullptr ? 0 : controller->cluster().units();
      run();
      if (controller == nullptr) continue;
      const auto units = static_cast<int64_t>(controller->cluster().units() - before);
      free_at_ = std::max(free_at_, queue.now() + units * config.unit_time);
    }
    loop_wakes_ = false;
    WakeLoop();
  });
}

void World::InBackground(int64_t delay, Event run) {
  ++background;
  queue.After(delay, [this, run = std::move(run)]() mutable {
    --background;
    run();
  });
}

}  // namespace fairway::sim
