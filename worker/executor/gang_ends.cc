// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/gang_ends.h"

#include <utility>

namespace fairway {

void GangEnds::Run(const void* code, absl::FunctionRef<bool()> queued,
                   absl::FunctionRef<void()> launch) {
  if (code != short_) Flush();
  Running running{queued};
  {
    std::lock_guard lock(mutex_);
    runs_on_ = std::this_thread::get_id();
    running_ = &running;
  }
  const Clock::time_point begin = now_();
  launch();
  const bool brief = now_() - begin < kShort;
  {
    std::lock_guard lock(mutex_);
    runs_on_ = std::thread::id();
    running_ = nullptr;
  }
  short_ = brief && running.ended ? code : nullptr;
  // Nobody knows when a launch ends that goes on elsewhere.
  if (!running.ended) Flush();
}

void GangEnds::Add(absl::AnyInvocable<void()> end) {
  {
    std::lock_guard lock(mutex_);
    ends_.push_back(std::move(end));
    if (runs_on_ == std::this_thread::get_id()) {
      running_->ended = true;
      if (ends_.size() < kMost && running_->queued()) return;
    }
  }
  Flush();
}

void GangEnds::Flush() {
  std::vector<absl::AnyInvocable<void()>> ends;
  {
    std::lock_guard lock(mutex_);
    ends.swap(ends_);
  }
  for (auto& end : ends) std::move(end)();
}

}  // namespace fairway
