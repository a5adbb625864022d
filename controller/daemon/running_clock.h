// SPDX-License-Identifier: Apache-2.0
// The time during which this process ran.
#ifndef FAIRWAY_CONTROLLER_DAEMON_RUNNING_CLOCK_H_
#define FAIRWAY_CONTROLLER_DAEMON_RUNNING_CLOCK_H_

#include <algorithm>
#include <chrono>

#include "base/planted.h"

namespace fairway {

// While a process is stopped, or busy with one handler, what others say piles up on its links. All
// that waits for others, then gives them up, is to read that first: so it goes by this clock, of
// which one Advance counts no more than `most`. A value; time is given.
class RunningClock {
 public:
  using Duration = std::chrono::steady_clock::duration;
  using Time = std::chrono::steady_clock::time_point;

  RunningClock(Time now, Duration most) : real_(now), now_(now), most_(most) {}

  // Once in a turn of the loop. How much of the time since the last call does not count.
  Duration Advance(Time real) {
    const Duration passed = std::max(real - real_, Duration::zero());
    real_ = real;
    const Duration counts = Planted(Bug::kClockJumps) ? passed : std::min(passed, most_);
    now_ += counts;
    return passed - counts;
  }
  // As of the last Advance.
  Time now() const { return now_; }

 private:
  Time real_;
  Time now_;
  const Duration most_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_RUNNING_CLOCK_H_
