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

// Has one thread, which runs the closures in the order of their times, and closures of one time in
// the order of At. Thread-safe.
class Timer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Timer();
  ~Timer();

  // Runs `work` not before `time`, on the timer's thread; after Close, at once on the caller's
  // thread.
  void At(Time time, absl::AnyInvocable<void()> work);
  // Runs the remaining closures without waiting for their time. Not from the timer's own thread.
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
