// SPDX-License-Identifier: Apache-2.0
// Decides when an executor reports to the controller. Once the controller launches ahead, the ends
// of launches wait for each other while other launches are under way. Everything else goes at once.
#ifndef FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_
#define FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace fairway {

// Owned by ExecutorSession. A pure state machine; the caller passes the time, from any origin.
class ReportPace {
 public:
  using Time = std::chrono::nanoseconds;
  // Half of the number of gangs that the controller launches ahead, so that it need not stop.
  static constexpr size_t kEndsPerReport = 8;

  // All `executors` of the island report the same gangs: the more there are, the longer each waits.
  explicit ReportPace(int executors)
      : pause_(std::max<Time>(std::chrono::milliseconds(1),
                              executors * std::chrono::microseconds(25))) {}
  Time pause() const { return pause_; }

  void LaunchedAhead() { launched_ahead_ = true; }
  void LaunchEnded() { ++unreported_ends_; }
  // Something other than the end of a launch is to be reported.
  void Urgent() { urgent_ = true; }

  // Returns whether to report now. If not, report at the latest pause() from now. `under_way`:
  // launches that have not ended.
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
