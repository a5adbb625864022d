// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_GANG_ENDS_H_
#define FAIRWAY_WORKER_EXECUTOR_GANG_ENDS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>

namespace fairway {

// The ends of gangs on their way to the event loop. Waking the loop for each costs as much as
// handling it, so the end of a short gang waits for those of the gangs that are queued behind it.
// kFew may wait in any case, and more, up to kMost, while still more gangs are queued: so the loop
// adds gangs before the thread has none. A gang of several launch ids counts as so many ends. Ends
// wait only while launches of the same code follow that took less than kShort, and none that began
// more than kLongest ago when another launch begins. Thread-safe.
class GangEnds {
 public:
  static constexpr size_t kFew = 4;  // half of what a sequence has at work (kSequenceWindow)
  static constexpr size_t kMost = 24;
  static constexpr std::chrono::milliseconds kShort{1};
  static constexpr std::chrono::milliseconds kLongest{2};
  // How long a gang of several launch ids should take: its outputs come together.
  static constexpr std::chrono::milliseconds kBrief{4};
  using Clock = std::chrono::steady_clock;
  // See LaunchOutputs::brief. `ids` took so long.
  static size_t Brief(Clock::duration took, size_t ids) {
    const auto all = static_cast<int64_t>(ids);
    if (took >= all * kShort) return 0;
    const Clock::duration most = kBrief;
    return static_cast<size_t>(all * most.count() / std::max<int64_t>(took.count(), 1));
  }

  // `now`: the clock by which launches are short; thread-safe.
  explicit GangEnds(Clock::time_point (*now)() = Clock::now) : now_(now) {}

  // Runs `launch` on the thread of gangs. `code` tells which code it launches. `queued` says how
  // many other gangs are queued; for each of them Run will be called at once.
  void Run(const void* code, absl::FunctionRef<size_t()> queued, absl::FunctionRef<void()> launch);
  // Calls `end`, of a gang of so many launch ids, now or soon, on the thread of gangs if it comes
  // from there.
  void Add(absl::AnyInvocable<void()> end, size_t ids = 1);
  // Calls all ends that wait. Whoever lets the thread of gangs wait for long calls it before.
  void Flush();

 private:
  struct Running {
    absl::FunctionRef<size_t()> queued;
    Clock::time_point begin;
    bool ended = false;
  };

  Clock::time_point (*const now_)();
  std::mutex mutex_;
  std::vector<absl::AnyInvocable<void()>> ends_;  // guarded by mutex_, like the next four
  size_t ids_ = 0;                                // of ends_
  Clock::time_point since_;                       // when the launch of the first one began
  std::thread::id runs_on_;
  Running* running_ = nullptr;  // the launch that runs; used on that thread
  // The code of the last launch, if that was short and ended within Run. Of the thread of gangs.
  const void* short_ = nullptr;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_GANG_ENDS_H_
