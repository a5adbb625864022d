// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cordon_text.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

v1::DrainIslandResponse ProgressForTest() {
  v1::DrainIslandResponse progress;
  v1::IslandHolder* holder = progress.add_holders();
  holder->set_session(7);
  holder->set_tenant(
      "re\x1b"
      "d");
  holder->set_arrays(2);
  holder->set_bytes(3 << 20);
  holder->set_running(1);
  holder = progress.add_holders();
  holder->set_session(3);
  holder->set_ended(true);
  holder->set_unfinished(4);
  progress.set_watching(1);
  return progress;
}

TEST(CordonTextTest, ADrainSaysWhatHoldsTheIsland) {
  EXPECT_EQ(BeginText("i0", true),
            "i0 is cordoned; `fairway uncordon i0` ends that. Nothing is moved: this waits until "
            "sessions end or give up what they have there. It may be interrupted\n");
  EXPECT_EQ(BeginText("i0", false).substr(0, 24), "i0 was cordoned already;");
  v1::DrainIslandResponse progress = ProgressForTest();
  EXPECT_EQ(HoldersText("i0", progress),
            "2 sessions hold i0:\n"
            "  SESSION    TENANT  ARRAYS  BYTES    RUNNING  UNFINISHED\n"
            "  7          re?d    2       3.0 MiB  1        0\n"
            "  3 (ended)  -       0       0        0        4\n"
            "1 session sees it and has nothing there\n");
  progress.mutable_holders()->RemoveLast();
  progress.set_watching(0);
  EXPECT_EQ(HoldersText("i0", progress).substr(0, 20), "1 session holds i0:\n");
  EXPECT_EQ(DrainedText("i0"),
            "i0 is drained: nobody has anything there, and work that comes to it fails until "
            "`fairway uncordon i0`\n");
}

TEST(CordonTextTest, WhoHoldsItChangesWithTheSessionsOnly) {
  v1::DrainIslandResponse progress = ProgressForTest();
  const std::string before = WhoHolds(progress);
  progress.mutable_holders(0)->set_bytes(1);
  progress.mutable_holders()->SwapElements(0, 1);
  EXPECT_EQ(WhoHolds(progress), before);
  progress.set_more_holders(1);
  EXPECT_NE(WhoHolds(progress), before);
}

TEST(CordonTextTest, WhatIsNotDrainedNamesTheFirstFew) {
  v1::DrainIslandResponse progress = ProgressForTest();
  EXPECT_EQ(
      Describe(NotDrained("i0", std::chrono::seconds(5), progress)),
      "DEADLINE_EXCEEDED: i0 is not drained after 5s: session 7 (tenant re?d) has 2 arrays of "
      "3.0 MiB and 1 nodes; session 3 (tenant unknown) has 0 arrays of 0 and 4 nodes. It "
      "stays cordoned (`fairway uncordon i0`)");
  for (int i = 0; i < 10; ++i) *progress.add_holders() = progress.holders(0);
  progress.set_more_holders(20);
  EXPECT_TRUE(Describe(NotDrained("i0", std::chrono::seconds(5), progress))
                  .ends_with("; and 27 sessions more. It stays cordoned (`fairway uncordon i0`)"));
}

}  // namespace
}  // namespace fairway
