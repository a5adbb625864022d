// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/log_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;

TEST(LogTail, KeepsTheLastLinesHoweverTheyArrive) {
  LogTail tail(3);
  EXPECT_THAT(tail.Lines(), ElementsAre());
  tail.Append("one\ntw");
  EXPECT_THAT(tail.Lines(), ElementsAre("one", "tw"));
  tail.Append("o\n");
  tail.Append("three\nfour\n");
  EXPECT_THAT(tail.Lines(), ElementsAre("two", "three", "four"));
  tail.Append("open");
  EXPECT_THAT(tail.Lines(), ElementsAre("three", "four", "open"));
  tail.Append("\n\n");
  EXPECT_THAT(tail.Lines(), ElementsAre("four", "open", ""));
}

TEST(LogTail, TellsOfEachLineOnceWhenItHasEnded) {
  std::vector<std::string> told;
  LogTail tail(2, [&](std::string_view line) { told.emplace_back(line); });
  tail.Append("one\ntw");
  EXPECT_THAT(told, ElementsAre("one"));
  tail.Append("o\n\nopen");
  EXPECT_THAT(told, ElementsAre("one", "two", ""));
  tail.End();
  tail.End();
  EXPECT_THAT(told, ElementsAre("one", "two", "", "open"));
  EXPECT_THAT(tail.Lines(), ElementsAre("", "open"));
}

TEST(LogTail, CutsLongLines) {
  LogTail tail(2);
  for (int i = 0; i < 10; ++i) tail.Append(std::string(1000, 'x'));
  tail.Append("\nnext");
  ASSERT_EQ(tail.Lines().size(), 2u);
  EXPECT_EQ(tail.Lines()[0].size(), LogTail::kMaxLine);
  EXPECT_EQ(tail.Lines()[1], "next");
}

}  // namespace
}  // namespace fairway
