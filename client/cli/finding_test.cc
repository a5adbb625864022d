// SPDX-License-Identifier: Apache-2.0
#include "client/cli/finding.h"

#include <condition_variable>
#include <memory>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kLong{120};

TEST(RunChecks, FindingsAreInTheOrderOfTheChecks) {
  const Checked checked =
      RunChecks({{"a", kLong,
                  [](const Report& report) {
                    report(Pass("a", "1"));
                    report(Warn("a", "2", "mend it"));
                  }},
                 {"b", kLong, [](const Report& report) { report(Fail("b", "3", "mend it")); }}});
  EXPECT_TRUE(checked.all_ended);
  EXPECT_EQ(FindingsText(checked.findings),
            "PASS  a: 1\nWARN  a: 2  (fix: mend it)\nFAIL  b: 3  (fix: mend it)\n"
            "1 passed, 1 warnings, 1 failed, 0 skipped\n");
  EXPECT_TRUE(AnyFails(checked.findings));
}

TEST(RunChecks, OneThatHangsKeepsWhatItHasFoundAndHoldsUpNoOther) {
  struct Stuck {
    std::mutex mutex;
    std::condition_variable wake;
    bool over = false;
  };
  const auto stuck = std::make_shared<Stuck>();
  const Checked checked =
      RunChecks({{"stuck", std::chrono::milliseconds(50),
                  [stuck](const Report& report) {
                    report(Pass("stuck", "its first part"));
                    std::unique_lock lock(stuck->mutex);
                    stuck->wake.wait(lock, [&] { return stuck->over; });
                    report(Pass("stuck", "too late"));
                  }},
                 {"other", kLong, [](const Report& report) { report(Pass("other", "fine")); }}});
  EXPECT_FALSE(checked.all_ended);
  EXPECT_THAT(FindingsText(checked.findings),
              testing::StartsWith("PASS  stuck: its first part\n"
                                  "FAIL  stuck: not ended within 0.05 s  (fix: "));
  EXPECT_THAT(FindingsText(checked.findings), HasSubstr("\nPASS  other: fine\n"));
  const std::lock_guard lock(stuck->mutex);
  stuck->over = true;
  stuck->wake.notify_all();
}

TEST(FindingsText, WhatOthersWroteStaysOnItsLineAndControlsNoTerminal) {
  EXPECT_THAT(FindingsText({Fail("a", "x\nPASS  b: y\x1b[2J", "")}),
              testing::StartsWith("FAIL  a: x PASS  b: y?[2J\n0 passed"));
}

TEST(FindingsJson, HasEachFindingAndTheCounts) {
  const Json told = FindingsJson({Warn("a", "b", "c"), Skip("d", "e")});
  EXPECT_EQ(told["findings"][0],
            (Json{{"verdict", "WARN"}, {"what", "a"}, {"text", "b"}, {"fix", "c"}}));
  EXPECT_EQ(told["pass"], 0);
  EXPECT_EQ(told["warn"], 1);
  EXPECT_EQ(told["skip"], 1);
}

}  // namespace
}  // namespace fairway
