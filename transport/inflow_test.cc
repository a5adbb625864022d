// SPDX-License-Identifier: Apache-2.0
#include "transport/inflow.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMebi = 1 << 20;

class Call final : public Inflow::Call {
 public:
  void Over(const absl::Status& why) override { over.push_back(why); }
  std::vector<absl::Status> over;
};

// Connections by the numbers of their descriptors, and what has come by each.
class InflowsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Inflow> Add(int fd, const std::string& owner) {
    auto inflow = AddTo(inflows_, fd, owner);
    EXPECT_TRUE(inflow.ok()) << inflow.status();
    (*inflow)->Begin(calls_[fd] = std::make_shared<Call>());
    return *inflow;
  }
  // One without calls.
  absl::StatusOr<std::shared_ptr<Inflow>> AddTo(Inflows& inflows, int fd,
                                                const std::string& owner) {
    moved_[fd];
    return inflows.Add(fmt::format("peer {}", fd), {owner, owner}, fd, 1, now_);
  }
  void Look() {
    now_ += milliseconds(50);
    inflows_.Look(now_);
  }

  std::chrono::steady_clock::time_point now_{};
  std::map<int, Inflows::Moved> moved_;
  std::map<int, std::shared_ptr<Call>> calls_;
  std::vector<int> shut_;
  Inflows Make(Inflows::Limits limits) {
    return Inflows(
        limits,
        [this](int fd, uint64_t) -> std::optional<Inflows::Moved> {
          if (!moved_.contains(fd)) return std::nullopt;
          return moved_[fd];
        },
        [this](int fd, uint64_t) { shut_.push_back(fd); });
  }
  Inflows inflows_ = Make({});
};

// There may be four connections.
class FewConnectionsTest : public InflowsTest {
 protected:
  FewConnectionsTest() {
    AddCalling(1, "token 1");
    EXPECT_TRUE(Add(2, "token 1").ok());
    AddCalling(3, "token 1");
    AddCalling(4, "token 2");
  }
  absl::Status Add(int fd, const std::string& holder) { return AddTo(few_, fd, holder).status(); }
  void AddCalling(int fd, const std::string& holder) {
    const auto inflow = AddTo(few_, fd, holder);
    ASSERT_TRUE(inflow.ok()) << inflow.status();
    (*inflow)->Begin(calls_[fd] = std::make_shared<Call>());
  }
  // Those that were told that they end, with the reason.
  std::vector<int> LookAndTold() {
    few_.Look(now_ += milliseconds(50));
    std::vector<int> told;
    for (const auto& [fd, call] : calls_) {
      if (!call->over.empty()) told.push_back(fd);
    }
    return told;
  }
  Inflows few_ = Make({.connections = 4});
};

TEST_F(FewConnectionsTest, ForOneMoreTheOldestWithoutCallsOfTheTokenThatHasMostEnds) {
  EXPECT_TRUE(Add(5, "token 3").ok());
  EXPECT_THAT(shut_, ElementsAre(2));
  EXPECT_EQ(few_.Find("peer 2"), nullptr);
  EXPECT_THAT(LookAndTold(), IsEmpty());
}

TEST_F(FewConnectionsTest, ATokenThatHasMostMakesRoomForItsOwn) {
  EXPECT_TRUE(Add(5, "token 1").ok());
  EXPECT_THAT(shut_, ElementsAre(2));
  EXPECT_TRUE(Add(6, "token 1").ok());
  EXPECT_THAT(shut_, ElementsAre(2, 5));
}

TEST_F(FewConnectionsTest, ATokenThatHasMostAndCallsOnAllIsRefusedUntilOneHasEnded) {
  (*few_.Find("peer 2")).Begin(calls_[2] = std::make_shared<Call>());
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = Add(5, "token 1");
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(
        Text(refused),
        HasSubstr(
            "token 1 has 3 of the 4 connections that clients may have, nobody has more, and calls "
            "are under way on all of these: this one is refused. Close some"));
  }
  EXPECT_THAT(LookAndTold(), IsEmpty());
  EXPECT_THAT(shut_, IsEmpty());
  moved_.erase(1);  // it has ended
  LookAndTold();
  EXPECT_TRUE(Add(5, "token 1").ok());
}

TEST_F(FewConnectionsTest, AnotherTokensConnectionComesInAndTheNewestOfThatWhichHasMostIsTold) {
  (*few_.Find("peer 2")).Begin(calls_[2] = std::make_shared<Call>());
  AddCalling(5, "token 3");
  EXPECT_THAT(shut_, IsEmpty());
  EXPECT_THAT(LookAndTold(), ElementsAre(3));
  EXPECT_EQ(calls_[3]->over[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      Text(calls_[3]->over[0]),
      HasSubstr("token 1 has 3 of the 4 connections that clients may have, nobody has more, "
                "and calls are under way on all of these: this one, its newest, ends to "
                "make room for another's. Close some"));
  EXPECT_THAT(LookAndTold(), ElementsAre(3));
  EXPECT_THAT(calls_[3]->over, testing::SizeIs(1));
  EXPECT_THAT(shut_, ElementsAre(3));
  AddCalling(6, "token 4");
  EXPECT_THAT(LookAndTold(), ElementsAre(2, 3));
}

TEST_F(FewConnectionsTest, OneThatHasEndedMakesRoom) {
  moved_.erase(4);
  LookAndTold();
  EXPECT_TRUE(Add(5, "token 1").ok());
  EXPECT_THAT(shut_, IsEmpty());
}

TEST_F(InflowsTest, WhoSendsMoreThanItLeavesToOthersIsToldAndThenEnds) {
  Add(1, "red");
  Add(2, "blue");
  moved_[1].received = 541 * kMebi;
  moved_[2].received = 20 * kMebi;
  Look();
  ASSERT_EQ(calls_[1]->over.size(), 1u);
  EXPECT_EQ(calls_[1]->over[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(calls_[1]->over[0]),
              HasSubstr("messages of 540 MiB were on their way by this connection"));
  EXPECT_THAT(shut_, IsEmpty());
  Look();
  EXPECT_THAT(shut_, ElementsAre(1));
  EXPECT_EQ(inflows_.Find("peer 1"), nullptr);
  moved_[2].received = 60 * kMebi;  // there is room again
  Look();
  EXPECT_THAT(calls_[2]->over, IsEmpty());
}

TEST_F(InflowsTest, AMessageOfHalfAGigabyteMayComeAndThenAnother) {
  const auto inflow = Add(1, "red");
  for (uint64_t i = 0; i < 5; ++i) {
    moved_[1].received += 512 * kMebi + 3 * kMebi;  // with its framing
    Look();
    inflow->Took(512 * kMebi);
    Look();
  }
  EXPECT_THAT(calls_[1]->over, IsEmpty());
}

TEST_F(InflowsTest, WhatItTakesToSendManySmallMessagesDoesNotAddUp) {
  const auto inflow = Add(1, "red");
  for (int i = 0; i < 20'000'000; ++i) {  // nearly 2 GB
    moved_[1].received += 50 + 45;
    inflow->Took(50);
    if (i % 10'000 == 0) Look();
  }
  Look();
  EXPECT_THAT(calls_[1]->over, IsEmpty());
}

TEST_F(InflowsTest, AllConnectionsOfATokenCountTogetherAndTheOneThatHasMostEnds) {
  for (int fd = 1; fd <= 6; ++fd) Add(fd, "red");
  Add(7, "blue");
  for (int fd = 1; fd <= 6; ++fd) moved_[fd].received = 90 * kMebi;
  moved_[4].received = 110 * kMebi;
  moved_[7].received = 100 * kMebi;
  Look();
  for (const auto& [fd, call] : calls_) EXPECT_EQ(call->over.size(), fd == 4 ? 1u : 0u) << fd;
}

// Six tokens that have as much each leave that to a seventh.
TEST_F(InflowsTest, TokensHaveAsMuchEachAsTheyLeaveToOthers) {
  for (int fd = 1; fd <= 6; ++fd) {
    Add(fd, fmt::format("token {}", fd));
    moved_[fd].received = 150 * kMebi;
  }
  Look();
  for (const auto& [fd, call] : calls_) EXPECT_THAT(call->over, IsEmpty()) << fd;
  Add(7, "token 7");
  moved_[7].received = 60 * kMebi;
  Look();
  EXPECT_THAT(calls_[7]->over, IsEmpty());
}

TEST_F(InflowsTest, LittleIsLeftToWhoeverComes) {
  for (int fd = 1; fd <= 40; ++fd) {
    Add(fd, fmt::format("token {}", fd));
    moved_[fd].received = 31 * kMebi;
  }
  Look();
  for (const auto& [fd, call] : calls_) EXPECT_THAT(call->over, IsEmpty()) << fd;
}

TEST_F(InflowsTest, WithoutCallsNothingIsUnderWay) {
  const auto inflow = Add(1, "red");
  for (int i = 0; i < 5; ++i) {
    moved_[1].received += 300 * kMebi;
    Look();
    inflow->End(calls_[1].get());  // it was cancelled
    Look();
    inflow->Begin(calls_[1]);
  }
  EXPECT_THAT(calls_[1]->over, IsEmpty());
}

TEST_F(InflowsTest, AConnectionThatHasEndedIsForgotten) {
  Add(1, "red");
  moved_[1].received = 500 * kMebi;
  Look();
  moved_.erase(1);
  Look();
  EXPECT_EQ(inflows_.Find("peer 1"), nullptr);
  EXPECT_THAT(shut_, IsEmpty());
}

}  // namespace
}  // namespace fairway
