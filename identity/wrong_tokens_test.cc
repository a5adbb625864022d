// SPDX-License-Identifier: Apache-2.0
#include "identity/wrong_tokens.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const WrongTokens::Time kBegin(seconds(1'800'000'000));

TEST(WrongTokensTest, TheEleventhOfAnAddressInAMinuteIsDelayed) {
  WrongTokens wrong;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(wrong.Count("a", kBegin + seconds(i)), milliseconds(0));
  EXPECT_EQ(wrong.Count("a", kBegin + seconds(10)), milliseconds(2000));
  EXPECT_EQ(wrong.Count("b", kBegin + seconds(10)), milliseconds(0));  // another address
  EXPECT_EQ(wrong.Count("a", kBegin + seconds(59)), milliseconds(2000));
  // A minute after the first one the count begins anew.
  EXPECT_EQ(wrong.Count("a", kBegin + seconds(60)), milliseconds(0));
}

TEST(WrongTokensTest, HoweverManyAddressesThereAreTheTableIsBounded) {
  WrongTokens wrong;
  for (int i = 0; i < 10'000; ++i) {
    const milliseconds delay = wrong.Count(std::to_string(i), kBegin + seconds(i / 1000));
    // A full table cannot tell who is wrong often, so it takes all others for such.
    if (i < 4096) EXPECT_EQ(delay, milliseconds(0));
    if (i == 4096) EXPECT_EQ(delay, milliseconds(2000));
  }
  EXPECT_EQ(wrong.num_addresses(), 4096u);
  EXPECT_EQ(wrong.Count("later", kBegin + seconds(70)), milliseconds(0));
  EXPECT_EQ(wrong.num_addresses(), 1u);
}

TEST(WrongTokensTest, OnlySoManyRefusalsWaitAtOneTime) {
  WrongTokens wrong;
  int waiting = 0;
  for (int i = 0; i < 1000; ++i) waiting += wrong.Count("a", kBegin) > milliseconds(0) ? 1 : 0;
  EXPECT_EQ(waiting, 256);
  EXPECT_EQ(wrong.Count("a", kBegin + milliseconds(1999)), milliseconds(0));
  EXPECT_EQ(wrong.Count("a", kBegin + milliseconds(2000)), milliseconds(2000));
}

TEST(WrongTokensTest, AClockThatIsSetBackKeepsNothingForLong) {
  WrongTokens wrong;
  for (int i = 0; i < 20; ++i) wrong.Count("a", kBegin);
  EXPECT_EQ(wrong.Count("a", kBegin - std::chrono::hours(1)), milliseconds(0));
}

}  // namespace
}  // namespace fairway
