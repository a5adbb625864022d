// SPDX-License-Identifier: Apache-2.0
// Decides when an executor reports to the controller. Once the controller launches ahead, the ends
// of launches wait for each other while other launches are under way, and so does what else the
// core says may wait. Everything else goes at once.
#ifndef FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_
#define FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace fairway {

// Owned by ExecutorSession (in the simulation: by a machine); one for each registration. A pure
// state machine; the caller passes the time, from any origin.
class ReportPace {
 public:
  using Time = std::chrono::nanoseconds;
  // Half of the number of launches that the controller sends ahead (ClusterOptions), so that it
  // need not stop.
  static constexpr size_t kEndsPerReport = 16;

  // All `executors` of the island report the same gangs: the more there are, the longer each waits.
  explicit ReportPace(int executors)
      : news_pause_(DirectPauseOf(executors)), log_pause_(news_pause_) {}
  // The log is reported to a relay with so many children, which merges their reports. What else is
  // news still goes to the controller. 0: there is no relay, as at first.
  void Below(int children) { log_pause_ = children == 0 ? news_pause_ : PauseOf(children); }
  Time pause() const { return news_ ? news_pause_ : log_pause_; }

  void LaunchedAhead() { launched_ahead_ = true; }
  void LaunchEnded() { ++unreported_ends_; }

  // What the caller does next: nothing, send the core's next report, or call TimerEnded pause()
  // from now.
  enum class Next : uint8_t { kNothing, kSend, kTimer };

  // The core wants to report something, which may wait or not. `news`: more than what the log's
  // reports tell. Returns whether the caller must call Step in a later turn of its loop.
  bool Wanted(bool may_wait, bool news) {
    (may_wait ? waits_ : urgent_) = true;
    news_ |= news;
    return !stopped_ && !std::exchange(step_to_come_, true);
  }
  // `under_way`: launches that have not ended.
  Next Step(size_t under_way, Time now) {
    step_to_come_ = false;
    return Decide(under_way, now);
  }
  Next TimerEnded(size_t under_way, Time now) {
    timer_runs_ = false;
    return waits_ ? Decide(under_way, now) : Next::kNothing;
  }
  // The link has ended: nothing is reported any more.
  void Stop() { stopped_ = true; }

 private:
  Next Decide(size_t under_way, Time now) {
    if (stopped_) return Next::kNothing;
    const bool last = under_way == 0 && unreported_ends_ > 0;
    const bool due = urgent_ || !launched_ahead_ || last || unreported_ends_ >= kEndsPerReport ||
                     now - reported_ >= pause();
    if (!due) return std::exchange(timer_runs_, true) ? Next::kNothing : Next::kTimer;
    urgent_ = waits_ = news_ = false;
    unreported_ends_ = 0;
    reported_ = now;
    return Next::kSend;
  }

  // 1 ms, and longer where each of many reporters costs the receiver a message.
  static Time PauseOf(int reporters) {
    return std::max<Time>(std::chrono::milliseconds(1), reporters * std::chrono::microseconds(25));
  }
  // Eight executors on a few cores dispatch a tenth more gangs with 2 ms than with 1 ms.
  static Time DirectPauseOf(int executors) {
    return std::max<Time>(PauseOf(executors), std::min(executors * std::chrono::microseconds(250),
                                                       std::chrono::microseconds(2000)));
  }

  const Time news_pause_;
  Time log_pause_;
  bool launched_ahead_ = false;
  bool urgent_ = false;        // something that may not wait is to be reported
  bool waits_ = false;         // something that may is
  bool news_ = false;          // some of that is news
  bool step_to_come_ = false;  // the caller will call Step
  // The caller will call TimerEnded. Invariant: true while something waits, unless a step is to
  // come.
  bool timer_runs_ = false;
  bool stopped_ = false;
  size_t unreported_ends_ = 0;
  Time reported_{0};
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_REPORT_PACE_H_
