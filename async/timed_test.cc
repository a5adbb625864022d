// SPDX-License-Identifier: Apache-2.0
#include "async/timed.h"

#include <ctime>
#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;

// Takes time, and next to no processor time.
void WaitInVain() { std::promise<void>().get_future().wait_for(milliseconds(60)); }

int64_t ProcessorMs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

TEST(RunTimedTest, TheLongestHandlerIsTheOneThatUsedTheMostProcessorTime) {
  std::thread([] {  // only these handlers run on it
    EXPECT_EQ(LongestHandlerHere().processor.count(), 0);
    RunTimed("sleeps", WaitInVain);
    EXPECT_LT(LongestHandlerHere().processor, milliseconds(40));
    RunTimed("works", [] {
      for (const int64_t until = ProcessorMs() + 42; ProcessorMs() < until;) {
      }
    });
    EXPECT_EQ(LongestHandlerHere().name, "works");
    EXPECT_GE(LongestHandlerHere().processor, milliseconds(40));
    RunTimed("sleeps", WaitInVain);
    EXPECT_EQ(LongestHandlerHere().name, "works");
  })
      .join();
}

}  // namespace
}  // namespace fairway
