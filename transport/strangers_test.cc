// SPDX-License-Identifier: Apache-2.0
#include "transport/strangers.h"

#include <sys/resource.h>

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(StrangersTest, ANetworkIsAnAddressOrTheFirstHalfOfOne) {
  EXPECT_EQ(NetworkOfPeer("10.0.0.7:4711"), "10.0.0.7");
  EXPECT_EQ(NetworkOfPeer("[2001:db8:1:2:3:4:5:6]:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(NetworkOfPeer("[2001:db8:1:2:ffff::1]:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(NetworkOfPeer("[2001:db8:1:3::1]:80"), "2001:db8:1:3::/64");
  EXPECT_EQ(NetworkOfPeer("[::ffff:10.0.0.7]:80"), "10.0.0.7");
  EXPECT_EQ(NetworkOfPeer("[fe80::1%eth0]:80"), "fe80::/64");
  EXPECT_EQ(NetworkOfPeer("unix"), "unix");
}

class StrangersLine : public testing::Test {
 protected:
  uint64_t Come(const std::string& peer) {
    return strangers_.Add(peer, [this, peer] { ended_.push_back(peer); });
  }
  std::vector<std::string> Ended() { return std::exchange(ended_, {}); }

  std::vector<std::string> ended_;
  Strangers strangers_{4};
};

TEST(StrangersTest, WhereFewFilesMayBeOpenTheyAreAPartOfThem) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto with = [&limit](rlim_t files) {
    const rlimit few{.rlim_cur = files, .rlim_max = limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const size_t most = Strangers().most();
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return most;
  };
  EXPECT_EQ(with(1024), 16u);
  EXPECT_EQ(with(60), 1u);
  if (limit.rlim_max >= 1 << 16) EXPECT_EQ(with(1 << 16), Strangers::kMost);
}

TEST_F(StrangersLine, TheOldestOfTheNetworkThatHasMostMakesRoom) {
  Come("1.1.1.1:1");
  for (const char* peer : {"2.2.2.2:1", "2.2.2.2:2", "2.2.2.2:3"}) Come(peer);
  EXPECT_THAT(Ended(), IsEmpty());
  Come("3.3.3.3:1");
  EXPECT_THAT(Ended(), ElementsAre("2.2.2.2:1"));
  Come("2.2.2.2:4");
  EXPECT_THAT(Ended(), ElementsAre("2.2.2.2:2"));
  EXPECT_EQ(strangers_.size(), 4u);
}

TEST_F(StrangersLine, OfNetworksWithAsManyTheOldestOfAllMakesRoom) {
  Come("9.9.9.9:1");
  for (const char* peer : {"1.1.1.1:1", "1.1.1.1:2", "9.9.9.9:2"}) Come(peer);
  Come("5.5.5.5:1");
  EXPECT_THAT(Ended(), ElementsAre("9.9.9.9:1"));
}

TEST_F(StrangersLine, WhoIsKnownOrGoneCountsNoMore) {
  const uint64_t first = Come("1.1.1.1:1");
  for (const char* peer : {"1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}) Come(peer);
  strangers_.Remove(first);
  strangers_.Remove(first);
  Come("1.1.1.1:5");
  EXPECT_THAT(Ended(), IsEmpty());
  strangers_.EndAll();
  EXPECT_THAT(Ended(), ElementsAre("1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4", "1.1.1.1:5"));
  EXPECT_EQ(strangers_.size(), 0u);
}

TEST(PaceTest, ANetworkBeginsSoManyASecond) {
  Pace pace;
  auto now = std::chrono::steady_clock::time_point();
  int begun = 0;
  const auto take = [&](const std::string& peer) { return pace.Take(peer, now); };
  while (take("1.1.1.1:1")) ++begun;
  EXPECT_EQ(begun, Pace::kAtOnce);
  EXPECT_TRUE(take("2.2.2.2:1"));
  now += std::chrono::milliseconds(500);
  for (begun = 0; take(fmt::format("1.1.1.1:{}", begun)); ++begun) {
  }
  EXPECT_EQ(begun, Pace::kASecond / 2);
  now += std::chrono::hours(1);
  for (begun = 0; take("1.1.1.1:1"); ++begun) {
  }
  EXPECT_EQ(begun, Pace::kAtOnce);
}

TEST(PaceTest, WhoEndedOneWellMayBeginAnother) {
  Pace pace;
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  for (int i = 0; i < 10 * Pace::kAtOnce; ++i) {
    ASSERT_TRUE(pace.Take("1.1.1.1:1", now)) << i;
    pace.GiveBack("1.1.1.1:1", now);
  }
  // It has no more than before.
  int begun = 0;
  while (pace.Take("1.1.1.1:1", now)) ++begun;
  EXPECT_EQ(begun, Pace::kAtOnce);
  pace.GiveBack("2.2.2.2:1", now);
  for (begun = 0; pace.Take("2.2.2.2:1", now); ++begun) {
  }
  EXPECT_EQ(begun, Pace::kAtOnce);
}

TEST(PaceTest, AllTogetherBeginTwiceAsManyAndThoseWhoBeganFewGoOn) {
  Pace pace;
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  int begun = 0;
  for (int network = 0; network < 3; ++network) {
    while (pace.Take(fmt::format("6.6.6.{}:1", network), now)) ++begun;
  }
  EXPECT_NEAR(begun, 2 * Pace::kAtOnce, Pace::kFew + 1);
  for (int i = 0; i < Pace::kFew; ++i) EXPECT_TRUE(pace.Take("1.1.1.1:1", now)) << i;
}

TEST(PaceTest, ThoseWhoBeganFewBeginAsManyTogetherAgainAndProvenNetworksGoOn) {
  ProvenNetworks proven;
  proven.Add("1.1.1.1:1");
  Pace pace(&proven);
  auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  const auto begun_by_many = [&] {
    int begun = 0;
    for (int i = 0; i < 4000; ++i)
      begun += static_cast<int>(pace.Take(fmt::format("10.{}.{}.1:1", i / 250, i % 250), now));
    return begun;
  };
  EXPECT_EQ(begun_by_many(), 4 * Pace::kAtOnce);
  EXPECT_FALSE(pace.Take("2.2.2.2:1", now));
  for (int i = 0; i < Pace::kAtOnce; ++i) EXPECT_TRUE(pace.Take("1.1.1.1:1", now)) << i;
  EXPECT_FALSE(pace.Take("1.1.1.1:1", now));
  now += std::chrono::milliseconds(500);
  EXPECT_EQ(begun_by_many(), 2 * Pace::kASecond);
}

TEST(PaceTest, ManyNetworksAreForgottenInTime) {
  Pace pace;
  auto now = std::chrono::steady_clock::time_point();
  for (int i = 0; i < 100'000; ++i) {
    now += std::chrono::milliseconds(4);
    ASSERT_TRUE(pace.Take(fmt::format("10.{}.{}.1:1", i / 250, i % 250), now));
  }
}

TEST(StrangersFlood, FromThousandsOfNetworksItEndsNoneOfTheFewOfAProvenOne) {
  ProvenNetworks proven;
  proven.Add("10.0.0.1:1");
  Strangers strangers(64, &proven);
  size_t ended = 0, ended_proven = 0;
  strangers.Add("10.0.0.2:1", [&] { ++ended; });
  for (size_t i = 0; i <= Strangers::kSpared; ++i)
    strangers.Add("10.0.0.1:1", [&] { ++ended_proven; });
  for (int i = 0; i < 5000; ++i)
    strangers.Add(fmt::format("10.1.{}.{}:1", i / 250, i % 250), [&] { ++ended; });
  EXPECT_EQ(ended_proven, 1u);
  EXPECT_EQ(strangers.size(), 64u);
  EXPECT_EQ(ended + ended_proven, 5010u - 64);
}

TEST(StrangersFlood, ANetworkThatProvedItselfLongAgoIsForgotten) {
  ProvenNetworks proven;
  proven.Add("10.0.0.1:1");
  proven.Add("10.0.0.2:1");
  for (size_t i = 2; i < ProvenNetworks::kMost; ++i)
    proven.Add(fmt::format("10.1.{}.{}:1", i / 250, i % 250));
  proven.Add("10.0.0.1:2");
  proven.Add("10.0.0.3:1");
  EXPECT_TRUE(proven.Has("10.0.0.1"));
  EXPECT_FALSE(proven.Has("10.0.0.2"));
  EXPECT_TRUE(proven.Has("10.0.0.3"));
}

// A flood from many networks: each is looked at once for each connection, and only while the port
// is full.
TEST(StrangersFlood, OfAHundredThousandFromOneAddressNoneOfAnotherIsEnded) {
  Strangers strangers(Strangers::kMost);
  bool honest = true;
  strangers.Add("10.0.0.1:1", [&] { honest = false; });
  size_t ended = 0;
  for (int i = 0; i < 100'000; ++i)
    strangers.Add(fmt::format("127.0.0.{}:{}", 2 + i % 3, i % 60'000), [&] { ++ended; });
  EXPECT_TRUE(honest);
  EXPECT_EQ(ended, 100'001 - Strangers::kMost);
}

}  // namespace
}  // namespace fairway
