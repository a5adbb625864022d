// SPDX-License-Identifier: Apache-2.0
// When an executor tells the controller what has ended. Ends of launches are told together while
// others are under way, once the controller has launched ahead; everything else at once.
#ifndef FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_
#define FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace fairway {

// A pure state machine; time is given, from any origin.
class ReportPace {
 public:
  using Time = std::chrono::nanoseconds;
  // Half of what the controller launches ahead, so that it need not stop.
  static constexpr size_t kEndsPerReport = 8;

  // `executors` of the island tell of the same gangs: the more they are, the rarer each does.
  explicit ReportPace(int executors)
      : pause_(std::max<Time>(std::chrono::milliseconds(1),
                              executors * std::chrono::microseconds(25))) {}
  Time pause() const { return pause_; }

  void LaunchedAhead() { launched_ahead_ = true; }
  void LaunchEnded() { ++unreported_ends_; }
  // Something else than the end of a launch is to be told.
  void Urgent() { urgent_ = true; }

  // Whether to report now; else not later than pause() from now. `under_way`: launches that have
  // not ended.
  bool Due(size_t under_way, Time now) const {
    return urgent_ || !launched_ahead_ || under_way == 0 || unreported_ends_ >= kEndsPerReport ||
           now - reported_ >= pause_;
  }
  void Reported(Time now) {
    urgent_ = false;
    unreported_ends_ = 0;
    reported_ = now;
  }
  size_t unreported_ends() const { return unreported_ends_; }

 private:
  const Time pause_;
  bool launched_ahead_ = false;
  bool urgent_ = false;
  size_t unreported_ends_ = 0;
  Time reported_{0};
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_
