// SPDX-License-Identifier: Apache-2.0
#include "async/timed.h"

#include <ctime>

#include <spdlog/spdlog.h>

namespace fairway {
namespace {

using std::chrono::nanoseconds;

nanoseconds ProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

struct Clocks {
  std::chrono::steady_clock::time_point read_at;  // when `processor` was read
  nanoseconds processor{0};
  LongestHandler longest;
};

thread_local Clocks clocks;

double Milliseconds(nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

LongestHandler LongestHandlerHere() { return clocks.longest; }

void timed_internal::Begins(std::chrono::steady_clock::time_point now) {
  if (now - clocks.read_at < std::chrono::milliseconds(1)) return;
  clocks.read_at = now;
  clocks.processor = ProcessorTime();
}

void timed_internal::Ended(std::string_view name, std::chrono::steady_clock::duration took) {
  const nanoseconds used = ProcessorTime() - clocks.processor;
  if (used > clocks.longest.processor) clocks.longest = {name, used};
  if (took > kSlowHandler)
    spdlog::warn("handler '{}' held the event loop for {:.1f} ms ({:.1f} ms of processor time)",
                 name, Milliseconds(took), Milliseconds(used));
}

}  // namespace fairway
