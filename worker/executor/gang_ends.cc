// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/gang_ends.h"

#include <algorithm>
#include <utility>

namespace fairway {

void GangEnds::Run(const void* code, absl::FunctionRef<size_t()> queued,
                   absl::FunctionRef<void()> launch) {
  Running running{queued, now_()};
  bool flush = code != short_;
  {
    std::lock_guard lock(mutex_);
    flush = flush || (!ends_.empty() && running.begin - since_ >= kLongest);
    runs_on_ = std::this_thread::get_id();
    running_ = &running;
  }
  if (flush) Flush();
  launch();
  const bool brief = now_() - running.begin < kShort;
  {
    std::lock_guard lock(mutex_);
    runs_on_ = std::thread::id();
    running_ = nullptr;
  }
  short_ = brief && running.ended ? code : nullptr;
  // Nobody knows when a launch ends that goes on elsewhere.
  if (!running.ended) Flush();
}

void GangEnds::Add(absl::AnyInvocable<void()> end, size_t ids) {
  {
    std::lock_guard lock(mutex_);
    ends_.push_back(std::move(end));
    ids_ += ids;
    if (runs_on_ == std::this_thread::get_id()) {
      running_->ended = true;
      if (ends_.size() == 1) since_ = running_->begin;
      const size_t queued = running_->queued();
      if (queued > 0 && ids_ < std::clamp(queued, kFew, kMost)) return;
    }
  }
  Flush();
}

void GangEnds::Flush() {
  std::vector<absl::AnyInvocable<void()>> ends;
  {
    std::lock_guard lock(mutex_);
    ends.swap(ends_);
    ids_ = 0;
  }
  for (auto& end : ends) std::move(end)();
}

}  // namespace fairway
