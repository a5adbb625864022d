// SPDX-License-Identifier: Apache-2.0
#include "scheduler/session_policy.h"

#include <cstdint>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;

class RoundRobinTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> Pick(int times) {
    std::vector<uint64_t> out;
    for (int i = 0; i < times; ++i) out.push_back(policy_.Pick(ready_)->first.value);
    return out;
  }

  std::map<SessionId, int> ready_ = {{SessionId(2), 0}, {SessionId(5), 0}, {SessionId(7), 0}};
  RoundRobin policy_;
};

TEST_F(RoundRobinTest, ReadySessionsTakeTurns) {
  EXPECT_THAT(Pick(7), ElementsAre(2, 5, 7, 2, 5, 7, 2));
}

TEST_F(RoundRobinTest, ASessionThatIsNotReadyIsPassedOverAndOneThatBecomesReadyHasItsTurn) {
  EXPECT_THAT(Pick(1), ElementsAre(2));
  ready_.erase(SessionId(5));
  EXPECT_THAT(Pick(1), ElementsAre(7));
  ready_[SessionId(9)] = 0;
  EXPECT_THAT(Pick(3), ElementsAre(9, 2, 7));
}

TEST_F(RoundRobinTest, ASessionForWhichRoomWasMadeGoesNext) {
  Pick(1);
  policy_.ServeNext(SessionId(7));
  EXPECT_THAT(Pick(2), ElementsAre(7, 2));
}

}  // namespace
}  // namespace fairway
