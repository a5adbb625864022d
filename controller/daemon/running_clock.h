// SPDX-License-Identifier: Apache-2.0
// A clock of the time during which this process ran.
#ifndef FAIRWAY_CONTROLLER_DAEMON_RUNNING_CLOCK_H_
#define FAIRWAY_CONTROLLER_DAEMON_RUNNING_CLOCK_H_

#include <algorithm>
#include <chrono>

#include "base/planted.h"

namespace fairway {

// While a process is stopped, or busy with one handler, messages pile up on its links. It must read
// those before it gives up whoever sent them. So its timeouts go by this clock, of which one
// Advance counts no more than `most`. A plain value: the caller gives the time.
class RunningClock {
 public:
  using Duration = std::chrono::steady_clock::duration;
  using Time = std::chrono::steady_clock::time_point;

  RunningClock(Time now, Duration most) : real_(now), now_(now), most_(most) {}

  // Called once per turn of the loop. Returns how much of the passed time does not count.
  Duration Advance(Time real) {
    const Duration passed = std::max(real - real_, Duration::zero());
    real_ = real;
    const Duration counts = Planted(Bug::kClockJumps) ? passed : std::min(passed, most_);
    now_ += counts;
    return passed - counts;
  }
  // The time at the last Advance.
  Time now() const { return now_; }

 private:
  Time real_;
  Time now_;
  const Duration most_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_RUNNING_CLOCK_H_
