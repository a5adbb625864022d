// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kinds.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(KindsTest, AWordThatIsNoneOfThoseIsNamedWithTheNearOneAndTheOthers) {
  EXPECT_EQ(NoSuch("kind", "iland", {"islands", "workers"}),
            "no kind 'iland'; did you mean islands? (there are islands, workers)");
  EXPECT_EQ(NoSuch("island", "zzzz", {"pod0"}), "no island 'zzzz' (there is pod0)");
  EXPECT_EQ(NoSuch("island", "\x1b[2J", {}), "no island '?[2J' (there is none)");
  EXPECT_EQ(NoSuch("worker", "w0", {"w\x1b", "x"}),
            "no worker 'w0'; did you mean w?? (there are w?, x)");
  EXPECT_EQ(NoSuch("session", "12", {"13"}), "no session '12' (there is 13)");
  std::vector<std::string> many;
  for (int i = 0; i < 12; ++i) many.push_back("w" + std::to_string(i));
  EXPECT_EQ(NoSuch("worker", "host-a", many),
            "no worker 'host-a' (there are w0, w1, w2, w3, w4, w5, w6, w7, w8, w9 and 2 more)");
}

}  // namespace
}  // namespace fairway
