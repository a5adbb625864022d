// SPDX-License-Identifier: Apache-2.0
// Names the handlers that hold up an event loop.
#ifndef FAIRWAY_ASYNC_TIMED_H_
#define FAIRWAY_ASYNC_TIMED_H_

#include <chrono>
#include <string_view>

namespace fairway {

// A handler that takes longer is logged.
inline constexpr std::chrono::milliseconds kSlowHandler{20};
// The processor time of a shorter handler is not measured.
inline constexpr std::chrono::milliseconds kBriefHandler{2};

// The handler of this thread that used the most processor time; zero: none used more than
// kBriefHandler. The time may include up to a millisecond of earlier handlers: reading a thread's
// processor time costs a system call, so it is read at most once each millisecond.
struct LongestHandler {
  std::string_view name;
  std::chrono::nanoseconds processor{0};
};

// Returns that of the calling thread, since its start.
LongestHandler LongestHandlerHere();

namespace timed_internal {
void Begins(std::chrono::steady_clock::time_point now);
void Ended(std::string_view name, std::chrono::steady_clock::duration took);
}  // namespace timed_internal

// Calls `f`. Logs `name` if it took longer than kSlowHandler. Calls on one thread do not nest.
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
