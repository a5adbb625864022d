// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/island_links.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/daemon/held_link_for_test.h"
#include "log/follower.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One registration of an executor.
struct Registration {
  explicit Registration(uint32_t id) : follower(id) {}
  HeldLink link;
  LogFollower follower;
  std::vector<std::string> taken;

  void Deliver() {
    for (; !link.held.empty(); link.held.pop_front()) {
      const auto frame = DecodeLogFrame(link.held.front());
      ASSERT_TRUE(frame.ok()) << frame.status();
      const auto fresh = follower.Take(*frame);
      ASSERT_TRUE(fresh.ok()) << fresh.status();
      for (const LogFrame::Received& entry : *fresh) {
        taken.emplace_back(entry.body);
        ASSERT_TRUE(follower.Ended(entry.header.number, false).ok());
      }
    }
  }
};

class IslandLinksTest : public ::testing::Test {
 protected:
  Registration& Join(uint32_t id) {
    registrations_[id] = std::make_unique<Registration>(id);
    links_.Join(ExecutorId(id), &registrations_[id]->link);
    return *registrations_[id];
  }
  void Append(uint32_t id, std::string body, bool lingers = false) {
    ASSERT_TRUE(links_.Append(ExecutorId(id), {std::move(body), {}}, lingers).ok());
  }
  absl::Status Report(uint32_t id) {
    return links_.Take(ExecutorId(id), EncodeLogReport(registrations_.at(id)->follower.Next()));
  }
  absl::Status Resume(uint32_t id) {
    Registration& executor = *registrations_.at(id);
    executor.follower.Resend();
    return links_.Resume(ExecutorId(id), &executor.link, executor.follower.version(),
                         executor.follower.applied());
  }
  void Send() {
    links_.Send(now_, sent_);
    EXPECT_TRUE(links_.CheckInvariants().ok()) << links_.CheckInvariants();
  }
  void Tick() {
    links_.SendAll(now_, sent_);
    EXPECT_TRUE(links_.CheckInvariants().ok()) << links_.CheckInvariants();
  }

  IslandLinks links_{{.few = 1, .version_pause = milliseconds(50), .link_bytes = 1000}};
  IslandLinks::Clock::time_point now_{std::chrono::hours(1)};
  LinkTraffic sent_;
  std::map<uint32_t, std::unique_ptr<Registration>> registrations_;
};

// The bytes of compiled code are those that the core has, however often they are sent.
TEST_F(IslandLinksTest, LongCodeIsSharedAndNotCopied) {
  Registration& executor = Join(7);
  const auto code = std::make_shared<const std::string>(1 << 20, 'c');
  Append(7, "a");
  ASSERT_TRUE(links_.Append(ExecutorId(7), {"b", {code}}, false).ok());
  Append(7, "d");
  Send();
  executor.link.written = true;
  while (executor.taken.size() < 3) {
    if (executor.link.last_tail.size() > 0) {
      EXPECT_EQ(executor.link.last_tail.bytes, code);
      executor.link.last_tail = {};
    }
    executor.Deliver();
    ASSERT_TRUE(Report(7).ok());
    Tick();
  }
  EXPECT_THAT(executor.taken, ElementsAre("a", "b" + *code, "d"));
  EXPECT_EQ(code.use_count(), 1);  // it is reported, so the log has it no more
}

TEST_F(IslandLinksTest, EntriesGoInOrderAndAreForgottenOnceTheyAreReported) {
  Registration& executor = Join(7);
  EXPECT_TRUE(links_.wants_send());
  Append(7, "a");  // before a version has the executor
  Send();
  Append(7, "b");
  Append(7, "c");
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a", "b", "c"));
  EXPECT_EQ(links_.open(), 3u);
  EXPECT_TRUE(Report(7).ok());
  EXPECT_EQ(links_.open(), 0u);
  EXPECT_FALSE(links_.wants_send());
  EXPECT_EQ(sent_.messages, 2u);
}

TEST_F(IslandLinksTest, WhatLingersGoesWithOthersOrWhenThereIsMuchOrWithATick) {
  Registration& executor = Join(7);
  Send();
  Append(7, "a", true);
  EXPECT_FALSE(links_.wants_send());
  Append(7, "b");
  EXPECT_TRUE(links_.wants_send());
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a", "b"));
  Append(7, "c", true);
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, SizeIs(2));
  Tick();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a", "b", "c"));
  Append(7, std::string(70000, 'd'), true);
  EXPECT_TRUE(links_.wants_send());
}

TEST_F(IslandLinksTest, TellsHowLongAnExecutorHasAcknowledgedNothing) {
  const auto later = [&](int ms) {
    now_ += milliseconds(ms);
    Tick();
    return links_.Health(ExecutorId(7), now_);
  };
  Registration& executor = Join(7);
  Append(7, "before its first version");
  EXPECT_EQ(links_.Health(ExecutorId(7), now_).open_entries, 1u);
  EXPECT_EQ(links_.Health(ExecutorId(7), now_).still.count(), 0) << "it had no tick yet";
  Send();
  executor.Deliver();
  EXPECT_TRUE(Report(7).ok());
  EXPECT_EQ(later(100).open_entries, 0u);
  Append(7, "abc");
  Append(7, "d");
  EXPECT_EQ(later(100).still, milliseconds(100));
  EXPECT_EQ(later(900).still, milliseconds(1000));
  executor.Deliver();
  Append(7, "e");
  EXPECT_TRUE(Report(7).ok());
  const LinkHealth one = later(100);
  EXPECT_EQ(one.open_entries, 1u);
  EXPECT_GT(one.open_bytes, 0u);
  EXPECT_EQ(one.still.count(), 0) << "two had come";
  links_.Cut(ExecutorId(7));
  EXPECT_EQ(later(2000).still, milliseconds(2000)) << "it has no link";
  EXPECT_TRUE(Resume(7).ok());
  Send();
  executor.Deliver();
  EXPECT_TRUE(Report(7).ok());
  EXPECT_EQ(later(100).still.count(), 0);
  EXPECT_EQ(links_.Health(ExecutorId(8), now_).open_entries, 0u) << "no such member";
}

TEST_F(IslandLinksTest, ManyThatComeAtOnceAreFewVersions) {
  Join(1);
  Send();
  EXPECT_EQ(sent_.messages, 1u);
  Join(2);
  Append(2, "a");
  Send();  // too soon
  EXPECT_EQ(sent_.messages, 1u);
  Join(3);
  now_ += milliseconds(50);
  Tick();
  EXPECT_EQ(sent_.messages, 4u);
  registrations_[2]->Deliver();
  EXPECT_THAT(registrations_[2]->taken, ElementsAre("a"));
  EXPECT_FALSE(links_.wants_send());
}

TEST_F(IslandLinksTest, WhatIsOnItsWayOverANewVersionComesOnceAndIsReportedAnew) {
  Registration& executor = Join(1);
  Append(1, "a");
  Append(1, "b");
  Send();
  executor.Deliver();
  const std::string old = EncodeLogReport(executor.follower.Next());
  Append(1, "c");
  Send();
  now_ += milliseconds(50);
  Join(2);
  Send();
  EXPECT_TRUE(links_.Take(ExecutorId(1), old).ok());
  EXPECT_EQ(links_.open(), 3u) << "it is of the version before";
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(Report(1).ok());
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, ANewVersionSendsNothingTwiceOnALinkThatStands) {
  constexpr size_t kBulk = 300 << 10;
  Registration& executor = Join(1);
  executor.link.written = true;
  Append(1, std::string(kBulk, 'a'));
  Send();
  const uint64_t before = sent_.bytes;
  for (uint32_t other = 2; other < 5; ++other) {
    Join(other);
    now_ += milliseconds(50);
    Tick();
  }
  EXPECT_LT(sent_.bytes - before, kBulk);
  Append(1, "b");
  Tick();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre(std::string(kBulk, 'a'), "b"));
  EXPECT_TRUE(Report(1).ok());
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, AFullLinkOverANewVersionGetsTheRestLater) {
  Registration& executor = Join(1);
  Send();
  executor.Deliver();
  Append(1, std::string(300 << 10, 'a'));
  Append(1, "b");
  Send();  // what is queued fills the link
  Join(2);
  now_ += milliseconds(50);
  Tick();
  EXPECT_THAT(executor.link.held, SizeIs(1));
  executor.Deliver();
  EXPECT_TRUE(Report(1).ok());  // of the version before
  Tick();
  executor.Deliver();
  EXPECT_THAT(executor.taken, SizeIs(2));
  EXPECT_TRUE(Report(1).ok());
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, WhatWasForOneThatLeftConcernsNobody) {
  Join(1);
  Join(2);
  Append(1, "a");
  Append(2, "b");
  Send();
  Append(1, "c");
  links_.Leave(ExecutorId(1));
  const auto left = std::move(registrations_[1]);
  links_.Leave(ExecutorId(1));  // again
  Registration& successor = Join(1);
  Append(1, "d");
  now_ += milliseconds(50);
  Send();
  EXPECT_EQ(links_.open(), 2u);
  successor.Deliver();
  EXPECT_THAT(successor.taken, ElementsAre("d"));
  EXPECT_TRUE(Report(1).ok());
  links_.Leave(ExecutorId(1));
  links_.Leave(ExecutorId(2));
  Send();
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, AFullLinkGetsMoreWhenItsExecutorHasReported) {
  Registration& executor = Join(1);
  Send();
  executor.Deliver();
  Append(1, std::string(300 << 10, 'a'));  // in bulk
  Append(1, "b");
  Send();
  Append(1, "c");
  Send();
  EXPECT_THAT(executor.link.held, SizeIs(1));
  executor.Deliver();
  EXPECT_TRUE(Report(1).ok());
  EXPECT_TRUE(links_.wants_send());
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, SizeIs(3));
}

TEST_F(IslandLinksTest, LiesAreRefusedAndChangeNothing) {
  Join(1);
  Join(2);
  EXPECT_FALSE(links_.Take(ExecutorId(1), EncodeLogReport({1, 0, {}})).ok());  // no frame was sent
  Send();
  Append(1, "a");
  Append(2, "b");
  Append(1, "c");
  Send();
  for (const LogReport& lie :
       {LogReport{1, 9, {}}, LogReport{2, 0, {}}, LogReport{1, 3, {{4, 4}}},  // not sent
        LogReport{1, 3, {{2, 2}}},                                            // for another
        LogReport{1, 0, {{1, 1}}}})  // ended before it came
    EXPECT_FALSE(links_.Take(ExecutorId(1), EncodeLogReport(lie)).ok());
  EXPECT_FALSE(links_.Take(ExecutorId(1), "").ok());
  EXPECT_EQ(links_.open(), 3u);
  EXPECT_TRUE(links_.Take(ExecutorId(1), EncodeLogReport({1, 3, {{1, 1}, {3, 3}}})).ok());
  EXPECT_EQ(links_.open(), 1u);
}

// ---- links that break

TEST_F(IslandLinksTest, WhatWasLostWithALinkIsSentOnTheNextOnce) {
  Registration& executor = Join(7);
  Append(7, "a");
  Send();
  executor.Deliver();
  Append(7, "b");
  Send();
  executor.link.held.clear();  // lost
  links_.Cut(ExecutorId(7));
  Append(7, "c");
  Tick();
  EXPECT_THAT(executor.link.held, IsEmpty());
  ASSERT_EQ(Resume(7), absl::OkStatus());
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(Report(7).ok());
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, AnExecutorWithoutALinkOutlivesVersions) {
  Registration& executor = Join(7);
  Append(7, "a");
  Append(7, "b");
  Send();
  executor.Deliver();
  links_.Cut(ExecutorId(7));
  Append(7, "c");
  for (const uint32_t other : {8, 9}) {
    Join(other);
    now_ += milliseconds(50);
    Send();
  }
  Append(7, "d");
  ASSERT_EQ(Resume(7), absl::OkStatus());
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(Report(7).ok());
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, AVersionThatBeginsAmidAReplaySendsTheRestOfIt) {
  Registration& executor = Join(7);
  Send();
  executor.link.written = true;
  const std::string most(800, 'x');
  for (int i = 0; i < 4; ++i) Append(7, most);
  Send();
  executor.link.held.clear();  // all lost, with the version
  links_.Cut(ExecutorId(7));
  executor.link.written = false;
  ASSERT_EQ(Resume(7), absl::OkStatus());
  Join(8);
  now_ += milliseconds(50);
  while (executor.taken.size() < 4) {
    const size_t before = executor.taken.size();
    Tick();
    executor.Deliver();
    ASSERT_GT(executor.taken.size(), before);
  }
  EXPECT_TRUE(Report(7).ok());
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, AnExecutorThatJoinedAndLostItsLinkBeforeAVersionBeginsWithTheVersion) {
  Registration& executor = Join(7);
  Append(7, "a");
  links_.Cut(ExecutorId(7));
  Send();
  ASSERT_EQ(Resume(7), absl::OkStatus());
  Send();
  executor.Deliver();
  EXPECT_THAT(executor.taken, ElementsAre("a"));
}

TEST_F(IslandLinksTest, AnExecutorThatIsBehindWhatItSaidOrBeyondWhatItWasSentDoesNotGoOn) {
  Registration& executor = Join(7);
  Append(7, "a");
  Append(7, "b");
  Send();
  executor.Deliver();
  ASSERT_TRUE(Report(7).ok());  // the log has neither any more
  links_.Cut(ExecutorId(7));
  const auto resume = [&](uint64_t version, LogNumber applied) {
    return links_.Resume(ExecutorId(7), &executor.link, version, applied).code();
  };
  EXPECT_EQ(resume(1, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(resume(1, 3), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(resume(2, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(resume(1, 2), absl::StatusCode::kOk);
  links_.Leave(ExecutorId(7));
  EXPECT_EQ(resume(1, 2), absl::StatusCode::kFailedPrecondition);
}

// A launch for all: one entry, which nobody ends before its work has ended.
TEST_F(IslandLinksTest, WhatIsForAllIsOneEntryAndHasEndedOnceAllHaveEndedIt) {
  Registration &one = Join(1), &two = Join(2), &three = Join(3);
  Send();
  const auto all = [&](uint32_t first, uint32_t last, uint64_t node) {
    ASSERT_TRUE(links_
                    .AppendAll(ExecutorId(first), ExecutorId(last),
                               {fmt::format("all {}", node), {}}, false, NodeId(node), nullptr)
                    .ok());
  };
  all(1, 3, 7);
  all(2, 3, 8);
  EXPECT_EQ(links_.open(), 2u);
  Send();
  for (Registration* const each : {&one, &two, &three}) each->Deliver();
  EXPECT_THAT(one.taken, ElementsAre("all 7"));
  EXPECT_THAT(two.taken, ElementsAre("all 7", "all 8"));
  EXPECT_THAT(links_.TakeEnded(), IsEmpty());
  ASSERT_TRUE(Report(2).ok());
  ASSERT_TRUE(Report(3).ok());
  EXPECT_THAT(links_.TakeEnded(), ElementsAre(NodeId(8)));
  links_.Leave(ExecutorId(1));  // it never ends it
  EXPECT_THAT(links_.TakeEnded(), IsEmpty());
  now_ += milliseconds(50);
  Send();
  two.Deliver();
  three.Deliver();
  ASSERT_TRUE(Report(2).ok());  // again, in the new version
  ASSERT_TRUE(Report(3).ok());
  EXPECT_THAT(links_.TakeEnded(), ElementsAre(NodeId(7)));
}

TEST_F(IslandLinksTest, WhatIsForAllWhileOneWaitsForAVersionEndsWithTheLastOfItsEntries) {
  Registration& one = Join(1);
  Send();
  Registration& two = Join(2);
  ASSERT_TRUE(
      links_.AppendAll(ExecutorId(1), ExecutorId(2), {"all", {}}, false, NodeId(7), nullptr).ok());
  ASSERT_TRUE(
      links_.AppendAll(ExecutorId(1), ExecutorId(2), {"free", {}}, false, NodeId(), nullptr).ok());
  now_ += milliseconds(50);
  Send();
  one.Deliver();
  two.Deliver();
  EXPECT_THAT(one.taken, ElementsAre("all", "free"));
  EXPECT_THAT(two.taken, ElementsAre("all", "free"));
  ASSERT_TRUE(Report(2).ok());
  EXPECT_THAT(links_.TakeEnded(), IsEmpty());
  ASSERT_TRUE(Report(1).ok());
  EXPECT_THAT(links_.TakeEnded(), ElementsAre(NodeId(7)));
  EXPECT_EQ(links_.open(), 0u);
}

TEST_F(IslandLinksTest, WhatIsForAllOfWhomNobodyIsLeftHasEnded) {
  Join(1);
  Join(2);
  Join(3);
  Send();
  Join(4);
  ASSERT_TRUE(
      links_.AppendAll(ExecutorId(3), ExecutorId(4), {"all", {}}, false, NodeId(7), nullptr).ok());
  links_.Leave(ExecutorId(4));
  links_.Leave(ExecutorId(3));
  now_ += milliseconds(50);
  Send();
  EXPECT_THAT(links_.TakeEnded(), ElementsAre(NodeId(7)));
  ASSERT_TRUE(
      links_.AppendAll(ExecutorId(3), ExecutorId(4), {"all", {}}, false, NodeId(8), nullptr).ok());
  EXPECT_TRUE(links_.wants_send());
  EXPECT_THAT(links_.TakeEnded(), ElementsAre(NodeId(8)));
}

// What an executor does not take is charged to whoever had it sent.
TEST_F(IslandLinksTest, AnEntryIsChargedUntilItIsConcludedOrItsExecutorHasLeft) {
  const auto payer = std::make_shared<MemoryBudget>(1 << 20);
  const auto append = [&](uint32_t id) {
    ASSERT_TRUE(links_.Append(ExecutorId(id), {std::string(100, 'b'), {}}, false, payer).ok());
  };
  Registration& one = Join(1);
  Join(2);
  append(1);  // it waits for a version
  EXPECT_EQ(payer->used(), 127);
  Send();
  append(1);
  append(2);
  EXPECT_EQ(payer->used(), 381);
  EXPECT_EQ(links_.charged_bytes(), 381);
  Send();
  one.Deliver();
  EXPECT_EQ(payer->used(), 381) << "nobody knows yet that they came";
  ASSERT_TRUE(Report(1).ok());
  EXPECT_EQ(payer->used(), 127);
  links_.Leave(ExecutorId(2));
  Send();
  EXPECT_EQ(payer->used(), 0);
  EXPECT_EQ(links_.charged_bytes(), 0);
}

}  // namespace
}  // namespace fairway
