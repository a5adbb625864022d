// SPDX-License-Identifier: Apache-2.0
#include "scheduler/transfer_waits.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr SessionId kGreedy(1), kOther(2), kThird(3);
constexpr DeviceId kDevice(7), kElsewhere(8);

class TransferWaitsTest : public testing::Test {
 protected:
  bool Begin(uint64_t launch, SessionId session, DeviceId device = kDevice) {
    return waits.Begin(NodeId(launch), session, device);
  }
  // All for which there is room; each begins.
  std::vector<uint64_t> Go() {
    std::vector<uint64_t> nodes;
    while (const NodeId next = waits.Next()) {
      nodes.push_back(next.value);
      EXPECT_TRUE(Begin(next.value, sessions.at(next.value)));
    }
    return nodes;
  }

  std::map<uint64_t, SessionId> sessions{{3, kGreedy}, {4, kGreedy}, {5, kOther}, {6, kThird}};
  TransferWaits waits{{.per_session = 2, .per_device = 3}};
};

TEST_F(TransferWaitsTest, ASessionHasFewOnADevice) {
  EXPECT_TRUE(Begin(1, kGreedy));
  EXPECT_TRUE(Begin(2, kGreedy));
  EXPECT_FALSE(Begin(3, kGreedy));
  EXPECT_TRUE(Begin(4, kGreedy, kElsewhere));
  EXPECT_TRUE(Begin(5, kOther));
  EXPECT_TRUE(Begin(1, kGreedy)) << "it was asked again";
  EXPECT_THAT(Go(), IsEmpty());
  waits.End(NodeId(5));
  EXPECT_THAT(Go(), IsEmpty()) << "room for another session";
  waits.End(NodeId(1));
  EXPECT_THAT(Go(), ElementsAre(3));
}

TEST_F(TransferWaitsTest, AllSessionsShareADeviceByTurns) {
  EXPECT_TRUE(Begin(1, kGreedy));
  EXPECT_TRUE(Begin(2, kGreedy));
  EXPECT_TRUE(Begin(7, kOther));
  for (const auto& [launch, session] : sessions) EXPECT_FALSE(Begin(launch, session));
  waits.End(NodeId(7));
  EXPECT_THAT(Go(), ElementsAre(5)) << "the greedy session has what it may have";
  waits.End(NodeId(1));
  EXPECT_THAT(Go(), ElementsAre(6)) << "the third session comes after the second";
  waits.End(NodeId(2));
  EXPECT_THAT(Go(), ElementsAre(3));
}

TEST_F(TransferWaitsTest, WhatEndsIsForgotten) {
  EXPECT_TRUE(Begin(1, kGreedy));
  EXPECT_TRUE(Begin(2, kGreedy));
  EXPECT_FALSE(Begin(3, kGreedy));
  waits.End(NodeId(3));
  waits.End(NodeId(1));
  EXPECT_THAT(Go(), IsEmpty()) << "what waited has ended";
  waits.End(NodeId(2));
  waits.End(NodeId(9));
  EXPECT_EQ(waits.known(), 0u);
  EXPECT_TRUE(Begin(3, kGreedy));
}

TEST_F(TransferWaitsTest, WhatWasTakenOutMayStayAway) {
  EXPECT_TRUE(Begin(1, kGreedy));
  EXPECT_TRUE(Begin(2, kGreedy));
  EXPECT_FALSE(Begin(3, kGreedy));
  EXPECT_FALSE(Begin(4, kGreedy));
  waits.End(NodeId(1));
  EXPECT_EQ(waits.Next(), NodeId(3));
  EXPECT_EQ(waits.Next(), NodeId(4)) << "the first did not begin";
  EXPECT_EQ(waits.Next(), NodeId());
}

}  // namespace
}  // namespace fairway
