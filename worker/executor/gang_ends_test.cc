// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/gang_ends.h"

#include <string>

#include <gtest/gtest.h>

namespace fairway {
namespace {

class GangEndsTest : public testing::Test {
 protected:
  // Runs one launch of `code` that ends within, and returns the ends that were told by then.
  std::string Run(const char& code, char end, bool queued) {
    ends_.Run(
        &code, [=] { return queued; }, [&] { Add(end); });
    return told_;
  }
  void Add(char end) {
    ends_.Add([this, end] { told_ += end; });
  }

  static inline GangEnds::Clock::time_point now_;  // stands still, however busy the machine is

  GangEnds ends_{[] { return now_; }};
  std::string told_;
  char one_ = 0, two_ = 0;  // code
};

TEST_F(GangEndsTest, TheEndOfTheLastQueuedGangIsToldAtOnceWithThoseBefore) {
  EXPECT_EQ(Run(one_, 'a', false), "a");
  EXPECT_EQ(Run(one_, 'b', true), "a");
  EXPECT_EQ(Run(one_, 'c', true), "a");
  EXPECT_EQ(Run(one_, 'd', false), "abcd");
}

TEST_F(GangEndsTest, NoMoreThanFourWait) {
  Run(one_, 'a', true);
  Run(one_, 'b', true);
  EXPECT_EQ(Run(one_, 'c', true), "");
  EXPECT_EQ(Run(one_, 'd', true), "abcd");
}

TEST_F(GangEndsTest, NoneWaitsForCodeThatIsNotKnownToBeShort) {
  Run(one_, 'a', true);
  std::string before;
  ends_.Run(
      &two_, [] { return true; }, [&] { before = told_; });
  EXPECT_EQ(before, "a");
}

TEST_F(GangEndsTest, NoneWaitsForCodeWhoseLastLaunchWasNotShort) {
  ends_.Run(
      &one_, [] { return true; },
      [&] {
        Add('a');
        now_ += GangEnds::kShort;
      });
  EXPECT_EQ(told_, "");
  std::string before;
  ends_.Run(
      &one_, [] { return true; }, [&] { before = told_; });
  EXPECT_EQ(before, "a");
}

TEST_F(GangEndsTest, NoneWaitsForALaunchThatGoesOnElsewhere) {
  Run(one_, 'a', true);
  ends_.Run(
      &one_, [] { return true; }, [] {});
  EXPECT_EQ(told_, "a");
  Add('b');  // its end, from another place
  EXPECT_EQ(told_, "ab");
}

TEST_F(GangEndsTest, AThreadThatWaitsLongTellsThemBefore) {
  Run(one_, 'a', true);
  ends_.Run(
      &one_, [] { return true; },
      [&] {
        EXPECT_EQ(told_, "");
        ends_.Flush();
        EXPECT_EQ(told_, "a");
        Add('b');
      });
  EXPECT_EQ(told_, "a");
  ends_.Flush();
  EXPECT_EQ(told_, "ab");
}

}  // namespace
}  // namespace fairway
