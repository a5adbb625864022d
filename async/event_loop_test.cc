// SPDX-License-Identifier: Apache-2.0
#include "async/event_loop.h"

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;

TEST(EventLoop, RunsInTheOrderPosted) {
  EventLoop loop;
  std::vector<int> seen;
  for (int i = 0; i < 5; ++i) loop.Post("test", [&seen, i] { seen.push_back(i); });
  loop.Post("stop", [&] { loop.Stop(); });
  loop.Run();
  EXPECT_THAT(seen, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(EventLoop, PostFromManyThreadsRunsAllInTheLoop) {
  EventLoop loop;
  int count = 0;
  bool inside = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        loop.Post("count", [&] {
          inside = inside && loop.InLoop();
          if (++count == 4000) loop.Stop();
        });
      }
    });
  }
  loop.Run();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
  EXPECT_TRUE(inside);
  EXPECT_FALSE(loop.InLoop());
}

TEST(EventLoop, PostAfterIsNotEarlyAndKeepsTheOrderOfTimes) {
  for (bool quick = false; !quick;) {
    EventLoop loop;
    std::vector<int> seen;
    const auto start = std::chrono::steady_clock::now();
    loop.PostAfter(milliseconds(30), "late", [&] {
      seen.push_back(2);
      loop.Stop();
    });
    loop.PostAfter(milliseconds(10), "early", [&] {
      seen.push_back(1);
      EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(10));
    });
    // If this thread stood still between the two, the second one may be the later one.
    quick = std::chrono::steady_clock::now() - start < milliseconds(20);
    if (!quick) continue;
    loop.Run();
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));
    EXPECT_THAT(seen, testing::ElementsAre(1, 2));
  }
}

TEST(EventLoop, DestroysWhatNeverRan) {
  auto token = std::make_shared<int>(1);
  {
    EventLoop loop;
    loop.Post("never", [token] {});
    loop.PostAfter(milliseconds(3600000), "never", [token] {});
    EXPECT_EQ(token.use_count(), 3);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(EventLoop, SlowHandlersAreLoggedByName) {
  std::ostringstream text;
  auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  EventLoop loop;
  loop.Post("quick one", [] {});
  loop.Post("slow one", [&] {
    const auto until = std::chrono::steady_clock::now() + milliseconds(25);
    while (std::chrono::steady_clock::now() < until) {
    }
    loop.Stop();
  });
  loop.Run();
  spdlog::set_default_logger(before);
  EXPECT_THAT(text.str(), testing::HasSubstr("'slow one'"));
}

}  // namespace
}  // namespace fairway
