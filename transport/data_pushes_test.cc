// SPDX-License-Identifier: Apache-2.0
// What gangs push to each other's data ports.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/planes_for_test.h"

namespace fairway {
namespace {

// The source of a test takes `room` pushes.
class Pushes : public Planes {
 protected:
  void SetUp() override {
    source_ = *MakeTcpDataPlane(
        loop_, "127.0.0.1:0", "127.0.0.1", Incarnation(7), KeyOf(Incarnation(7)),
        [](PullRequest, Answer answer) { answer(View("pulled")); }, {}, {},
        [this](const PushName& name, std::shared_ptr<Blob>& bytes) {
          std::lock_guard lock(mutex_);
          if (pushed_.size() == room_) return false;
          pushed_.push_back(fmt::format("{}.{}.{} of {}: {}", name.launch, name.round, name.part,
                                        name.from, bytes->view()));
          return true;
        },
        {}, tls_);
    sink_ = Make(Incarnation(8), [](PullRequest, Answer) {});
  }
  void Push(int32_t part, std::string_view bytes, std::shared_ptr<void> pending = nullptr,
            Incarnation to = Incarnation(7)) {
    sink_->Push(source_->endpoint(), to, right_, {1, 2, part, {}}, bytes, std::move(pending));
  }
  void SetRoom(size_t room) {
    std::lock_guard lock(mutex_);
    room_ = room;
  }
  std::vector<std::string> pushed() {
    std::lock_guard lock(mutex_);
    return pushed_;
  }

  const Ticket right_ = GangTicket(KeyOf(Incarnation(7)));
  std::mutex mutex_;
  size_t room_ = 100;
  std::vector<std::string> pushed_;
};

INSTANTIATE_TEST_SUITE_P(All, Pushes, testing::Bool(), KindOf);

TEST_P(Pushes, BytesArriveInOrderUnderTheirNames) {
  const std::string longest(kMaxPushBytes, 'x');
  Push(1, "");
  Push(-2, "small");
  Push(3, longest);
  Push(4, "last");
  ASSERT_TRUE(RunUntil(loop_, [&] { return pushed().size() == 4; }));
  EXPECT_THAT(pushed(), testing::ElementsAre("1.2.1 of 8: ", "1.2.-2 of 8: small",
                                             "1.2.3 of 8: " + longest, "1.2.4 of 8: last"));
}

TEST_P(Pushes, OneThatIsNotTakenHoldsThoseBehindItAndNothingElse) {
  SetRoom(1);
  const std::string longest(kMaxPushBytes, 'x');
  for (int32_t part = 0; part < 200; ++part) Push(part, longest);
  Pull(5, 0, 6);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 1; }));
  EXPECT_EQ(got_.begin()->second.value()->view(), "pulled");
  auto other = Make(Incarnation(9), [](PullRequest, Answer) {});
  other->Push(source_->endpoint(), Incarnation(7), right_, {1, 2, 1000, {}}, "other", nullptr);
  SetRoom(150);
  source_->RetryPushes();
  ASSERT_TRUE(RunUntil(loop_, [&] { return pushed().size() == 150; }));
  source_->RetryPushes();
  SetRoom(1000);
  source_->RetryPushes();
  ASSERT_TRUE(RunUntil(loop_, [&] { return pushed().size() == 201; }));
}

TEST_P(Pushes, ThoseForAnotherIncarnationAreDropped) {
  Push(1, "late", nullptr, Incarnation(6));
  Push(2, "good");
  ASSERT_TRUE(RunUntil(loop_, [&] { return pushed().size() == 1; }));
  EXPECT_THAT(pushed(), testing::ElementsAre("1.2.2 of 8: good"));
}

TEST_P(Pushes, ThoseWithoutTheirTicketAreDroppedAndTheNextOneIsTaken) {
  const auto with = [&](const Ticket& ticket, int32_t part) {
    sink_->Push(source_->endpoint(), Incarnation(7), ticket, {1, 2, part, {}}, "bytes", nullptr);
  };
  with({}, 1);
  with({right_.first, ~right_.second}, 2);
  with(GangTicket(KeyOf(Incarnation(8))), 3);
  with(SinksTicket(1), 4);
  with(right_, 5);
  ASSERT_TRUE(RunUntil(loop_, [&] { return !pushed().empty(); }));
  EXPECT_THAT(pushed(), testing::ElementsAre("1.2.5 of 8: bytes"));
}

TEST_P(Pushes, WhatCannotBeSentIsReleased) {
  auto pending = std::make_shared<int>();
  const std::weak_ptr<int> seen = pending;
  Push(1, "sent", pending);
  ASSERT_TRUE(RunUntil(loop_, [&] { return pushed().size() == 1; }));
  EXPECT_TRUE(RunUntil(loop_, [&] { return pending.use_count() == 1; }));
  sink_->Push("127.0.0.1:1", Incarnation(7), right_, {}, "x", std::move(pending));
  EXPECT_TRUE(RunUntil(loop_, [&] { return seen.expired(); }));
}

}  // namespace
}  // namespace fairway
