// SPDX-License-Identifier: Apache-2.0
// Calls closures at given times.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_TIMER_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_TIMER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <absl/functional/any_invocable.h>

namespace fairway {

// One thread, which runs them in the order of their times; those of one time in the order in which
// they came. Thread-safe.
class Timer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Timer();
  ~Timer();

  // Not before `time`, on the timer's thread; once it is closed, at once on the caller's.
  void At(Time time, absl::AnyInvocable<void()> work);
  // Runs what is left without waiting for its time. Not from its own thread.
  void Close();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Time, uint64_t>, absl::AnyInvocable<void()>> queue_;
  uint64_t next_ = 0;
  bool closing_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_TIMER_H_
