// SPDX-License-Identifier: Apache-2.0
// Names the handlers that hold an event loop up.
#ifndef FAIRWAY_ASYNC_TIMED_H_
#define FAIRWAY_ASYNC_TIMED_H_

#include <chrono>
#include <string_view>

namespace fairway {

inline constexpr std::chrono::milliseconds kSlowHandler{20};

// Logs a warning; out of line, so that the header stays light.
void LogSlowHandler(std::string_view name, std::chrono::steady_clock::duration took);

// Calls `f` and logs `name` when it took longer than kSlowHandler.
template <typename F>
void RunTimed(std::string_view name, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  const auto took = std::chrono::steady_clock::now() - start;
  if (took > kSlowHandler) LogSlowHandler(name, took);
}

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_TIMED_H_
