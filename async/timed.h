// SPDX-License-Identifier: Apache-2.0
// Names the handlers that hold an event loop up.
#ifndef FAIRWAY_ASYNC_TIMED_H_
#define FAIRWAY_ASYNC_TIMED_H_

#include <chrono>
#include <string_view>

namespace fairway {

// A handler that took longer is logged.
inline constexpr std::chrono::milliseconds kSlowHandler{20};
// The processor time of a shorter one is not looked at.
inline constexpr std::chrono::milliseconds kBriefHandler{2};

// The handler of this thread that used the most processor time; none used more than kBriefHandler:
// zero. Up to a millisecond of what ran before it may be counted with it: reading a thread's
// processor time costs a system call, so it is read at most once each millisecond.
struct LongestHandler {
  std::string_view name;
  std::chrono::nanoseconds processor{0};
};

// Of the calling thread, since its start.
LongestHandler LongestHandlerHere();

namespace timed_internal {
void Begins(std::chrono::steady_clock::time_point now);
void Ended(std::string_view name, std::chrono::steady_clock::duration took);
}  // namespace timed_internal

// Calls `f`. Logs `name` when it took longer than kSlowHandler. Calls on one thread do not nest.
template <typename F>
void RunTimed(std::string_view name, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  timed_internal::Begins(start);
  f();
  const auto took = std::chrono::steady_clock::now() - start;
  if (took > kBriefHandler) timed_internal::Ended(name, took);
}

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_TIMED_H_
