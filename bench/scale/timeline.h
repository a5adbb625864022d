// SPDX-License-Identifier: Apache-2.0
// The virtual time of the scale model: ordered events, and the CPU that a piece of real code used.
#ifndef FAIRWAY_BENCH_SCALE_TIMELINE_H_
#define FAIRWAY_BENCH_SCALE_TIMELINE_H_

#include <time.h>

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>

namespace fairway::scale {

using Nanos = int64_t;  // virtual time since the start, or a duration

// Events run in the order of their times; those of one time run in the order of insertion.
class Timeline {
 public:
  Nanos now() const { return now_; }

  // `time` must not be before now.
  void At(Nanos time, absl::AnyInvocable<void()> event) {
    events_.push({time > now_ ? time : now_, next_++, std::move(event)});
  }

  // Runs the next event. False: there is none.
  bool Step() {
    if (events_.empty()) return false;
    // The queue offers no way to move its top out; nothing is compared before the pop.
    Entry entry = std::move(const_cast<Entry&>(events_.top()));
    events_.pop();
    now_ = entry.time;
    entry.event();
    return true;
  }

 private:
  struct Entry {
    Nanos time = 0;
    uint64_t number = 0;
    absl::AnyInvocable<void()> event;
    bool operator<(const Entry& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };
  Nanos now_ = 0;
  uint64_t next_ = 0;
  std::priority_queue<Entry> events_;
};

// CPU time of this thread.
inline Nanos ThreadCpu() {
  timespec at = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return Nanos{at.tv_sec} * 1000000000 + at.tv_nsec;
}

// The cost of reading the CPU time.
inline Nanos ClockCost() {
  static const Nanos kCost = [] {
    Nanos least = INT64_MAX;
    for (int i = 0; i < 1000; ++i) {
      const Nanos begin = ThreadCpu();
      const Nanos cost = ThreadCpu() - begin;
      if (cost < least) least = cost;
    }
    return least;
  }();
  return kCost;
}

// The CPU time that `f` uses.
template <typename F>
Nanos MeasureCpu(F&& f) {
  const Nanos begin = ThreadCpu();
  std::forward<F>(f)();
  const Nanos used = ThreadCpu() - begin - ClockCost();
  return used > 0 ? used : 0;
}

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_TIMELINE_H_
