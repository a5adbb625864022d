// SPDX-License-Identifier: Apache-2.0
#include "worker/relay/relay_core.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TestLink final : public Link {
 public:
  void Send(Frame frame) override { sent.push_back(std::move(frame)); }
  size_t queued_bytes() const override { return queued; }
  void Close() override { closed = true; }
  std::string peer() const override { return "test"; }
  std::optional<Subject> subject() const override { return proved; }

  // The bodies of entries in log frames sent since the last call.
  std::vector<std::string> Bodies() {
    std::vector<std::string> out;
    for (const Frame& frame : std::exchange(sent, {})) {
      if (frame.type != kLogFrame) continue;
      const LogFrame decoded = DecodeLogFrame(frame.payload).value();
      for (const auto& entry : decoded.entries) out.emplace_back(entry.body);
    }
    return out;
  }
  // The reports sent since the last call.
  std::vector<LogReport> Reports() {
    std::vector<LogReport> out;
    for (const Frame& frame : std::exchange(sent, {})) {
      if (frame.type == kLogReportFrame) out.push_back(DecodeLogReport(frame.payload).value());
    }
    return out;
  }

  std::vector<Frame> sent;
  size_t queued = 0;
  bool closed = false;
  std::optional<Subject> proved;
};

// A relay with executor 1 (incarnation 11) and a relay (incarnation 22) above executors 2 and 3.
class RelayCoreTest : public ::testing::Test, public RelayActions {
 protected:
  void DialParent(const std::string& endpoint) override { dialed_.push_back(endpoint); }
  void Tell(v1::RelayTrouble trouble) override {
    told_.push_back(
        fmt::format("{} in {}: {}", trouble.incarnation(), trouble.version(), trouble.reason()));
  }
  ~RelayCoreTest() override { EXPECT_EQ(relay_.CheckInvariants(), absl::OkStatus()); }

  void Task(uint64_t version, const std::string& parent = {}) {
    v1::RelayTask task;
    task.set_version(version);
    task.set_parent(parent);
    task.set_secret("own");
    task.set_controller_incarnation(controller_incarnation_);
    v1::RelayTask::Child* child = task.add_children();
    child->set_incarnation(11);
    child->set_secret("s11");
    child->set_worker("w1");
    child->set_floor(4);
    child->add_below()->set_executor(1);
    child = task.add_children();
    child->set_incarnation(22);
    child->set_secret("s22");
    child->set_worker("w2");
    child->set_relay(true);
    child->add_below()->set_executor(2);
    child->add_below()->set_executor(3);
    ASSERT_TRUE(relay_.OnTask(task, &controller_, now_).ok());
  }
  absl::Status Ask(TestLink& link, uint64_t incarnation, uint64_t version, LogNumber applied) {
    v1::ToController message;
    message.mutable_log_ask()->set_version(version);
    message.mutable_log_ask()->set_incarnation(incarnation);
    message.mutable_log_ask()->set_applied(applied);
    message.mutable_log_ask()->set_controller_incarnation(asks_of_controller_);
    message.mutable_log_ask()->set_secret(secret_.empty() ? fmt::format("s{}", incarnation)
                                                          : secret_);
    return relay_.FromChild(&link, PackFrame(message), now_);
  }
  absl::Status Report(TestLink& link, const LogReport& report, uint64_t answers = 0) {
    Frame frame;
    frame.id = answers;
    frame.type = kLogReportFrame;
    frame.payload = EncodeLogReport(report);
    return relay_.FromChild(&link, frame, now_);
  }
  absl::Status Entries(uint64_t version, std::vector<std::pair<LogNumber, ExecutorIndex>> entries) {
    LogFrameWriter writer(version, {});
    for (const auto& [number, executor] : entries)
      writer.Add({number, LogSpan::One(executor), EntryKind::kCommand, 0}, std::to_string(number));
    Frame frame;
    frame.payload = writer.Take();
    return relay_.FromParent(frame, now_);
  }
  // As a relay does that runs.
  void Tick(milliseconds passed = milliseconds(100)) {
    for (const milliseconds step(100); passed.count() > 0; passed -= step) {
      now_ += std::min(step, passed);
      relay_.Tick(now_);
    }
  }

  // A relay with three relays below it, 31 to 33.
  void TaskWithRelays() {
    v1::RelayTask task;
    task.set_version(3);
    task.set_controller_incarnation(controller_incarnation_);
    for (uint32_t i = 1; i <= 3; ++i) {
      v1::RelayTask::Child* const child = task.add_children();
      child->set_incarnation(30 + i);
      child->set_secret(fmt::format("s{}", 30 + i));
      child->set_relay(true);
      child->add_below()->set_executor(i);
    }
    ASSERT_TRUE(relay_.OnTask(task, &controller_, now_).ok());
    for (uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(Ask(relays_[i - 1], 30 + i, 3, 0).ok());
  }
  // For this time these relays report at each tick, and answer after so long. `own`: how late this
  // relay asks.
  void Pass(milliseconds time, std::vector<milliseconds> answers, milliseconds own = {}) {
    for (; time.count() > 0; time -= milliseconds(100)) {
      const RelayCore::Time begin = now_;
      relay_.Ask(now_, own);
      std::vector<std::pair<milliseconds, TestLink*>> order;
      for (size_t i = 0; i < answers.size(); ++i) order.emplace_back(answers[i], &relays_[i]);
      std::ranges::sort(order);
      for (const auto& [after, link] : order) {
        now_ = begin + after;
        for (const Frame& frame : std::exchange(link->sent, {})) {
          if (frame.id != 0) (void)Report(*link, {3, 0, {}}, frame.id);
        }
      }
      now_ = begin + milliseconds(100);
      for (TestLink& link : relays_) (void)Report(link, {3, 0, {}});
      relay_.Tick(now_);
    }
  }

  RelayOptions options_{.self = Incarnation(99),
                        .patience = milliseconds(1000),
                        .link_bytes = 1000,
                        .limits = {.child_bytes = 200, .frame_bytes = 500}};
  RelayCore relay_{options_, this};
  TestLink controller_, parent_, executor_, below_;
  std::array<TestLink, 3> relays_;
  RelayCore::Time now_{0};
  std::vector<std::string> dialed_, told_;
  std::string secret_;                    // said in place of the right one
  uint64_t controller_incarnation_ = 77;  // of tasks
  uint64_t asks_of_controller_ = 77;
};

TEST_F(RelayCoreTest, PassesEntriesOnAndReportsToTheController) {
  Task(3);
  EXPECT_THAT(dialed_, IsEmpty());
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  ASSERT_TRUE(Ask(below_, 22, 3, 0).ok());
  ASSERT_TRUE(Entries(3, {{5, 1}, {6, 2}, {7, 3}}).ok());
  EXPECT_THAT(executor_.Bodies(), ElementsAre("5"));
  EXPECT_THAT(below_.Bodies(), ElementsAre("6", "7"));
  ASSERT_TRUE(Report(executor_, {3, 5, {{5, 5}}}).ok());
  EXPECT_THAT(controller_.sent, IsEmpty());
  Tick();
  const std::vector<LogReport> reports = controller_.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].applied, 7u);
  EXPECT_EQ(reports[0].ended, (LogRanges{{5, 5}}));
  Tick();  // a relay that has nothing to say says that it is there
  EXPECT_EQ(controller_.Reports().size(), 1u);
}

TEST_F(RelayCoreTest, BelowAnotherRelayItAsksThatOne) {
  Task(3, "host:1");
  EXPECT_THAT(dialed_, ElementsAre("host:1"));
  relay_.ParentUp(&parent_);
  ASSERT_EQ(parent_.sent.size(), 1u);
  v1::ToController message;
  ASSERT_TRUE(UnpackFrame(parent_.sent[0], &message).ok());
  EXPECT_EQ(message.log_ask().incarnation(), 99u);
  EXPECT_EQ(message.log_ask().version(), 3u);
  EXPECT_EQ(message.log_ask().applied(), 0u);
  parent_.sent.clear();
  ASSERT_TRUE(Entries(3, {{5, 1}}).ok());
  Tick();
  EXPECT_EQ(parent_.Reports().size(), 1u);
  EXPECT_THAT(controller_.sent, IsEmpty());
  relay_.ParentEnded(&parent_);
  relay_.ParentUp(&executor_);  // another link
  ASSERT_TRUE(UnpackFrame(executor_.sent[0], &message).ok());
  EXPECT_EQ(message.log_ask().applied(), 5u);
}

TEST_F(RelayCoreTest, ANewTaskEndsAllLinksOfTheOldOne) {
  Task(3, "host:1");
  relay_.ParentUp(&parent_);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  EXPECT_FALSE(Ask(below_, 22, 4, 0).ok());  // not yet
  EXPECT_FALSE(Ask(below_, 23, 3, 0).ok());  // a stranger
  Task(4);
  EXPECT_TRUE(executor_.closed && parent_.closed);
  EXPECT_FALSE(controller_.closed);
  EXPECT_FALSE(Report(executor_, {3, 4, {}}).ok());
  EXPECT_FALSE(Ask(below_, 22, 3, 0).ok());  // not any more
  EXPECT_TRUE(Entries(3, {{5, 1}}).ok());    // counts for nothing
  EXPECT_EQ(relay_.bytes(), 0u);
  relay_.Stop();
  EXPECT_EQ(relay_.version(), 0u);
  EXPECT_FALSE(controller_.closed);
  EXPECT_TRUE(Entries(4, {{5, 1}}).ok());
  EXPECT_FALSE(Ask(below_, 22, 4, 0).ok());
}

TEST_F(RelayCoreTest, AChildWithoutALinkAndASilentRelayAreGivenUp) {
  Task(3);
  Tick(milliseconds(900));
  ASSERT_TRUE(Ask(below_, 22, 3, 0).ok());
  EXPECT_THAT(told_, IsEmpty());
  Tick(milliseconds(200));
  EXPECT_THAT(told_, ElementsAre("11 in 3: it has no connection"));
  EXPECT_FALSE(Ask(executor_, 11, 3, 4).ok());
  Tick(milliseconds(700));
  ASSERT_TRUE(Report(below_, {3, 0, {}}).ok());
  Tick(milliseconds(900));
  EXPECT_FALSE(below_.closed);
  Tick(milliseconds(200));
  EXPECT_TRUE(below_.closed);
  EXPECT_THAT(told_, ElementsAre("11 in 3: it has no connection", "22 in 3: it is silent"));
  Tick(milliseconds(5000));
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(RelayCoreTest, AnExecutorThatLacksConcludedEntriesIsToldToTheController) {
  Task(3);
  EXPECT_FALSE(Ask(executor_, 11, 3, 3).ok());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0], ::testing::EndsWith("entry 4 is concluded, so nobody has that any more"));
  EXPECT_FALSE(Ask(executor_, 11, 3, 4).ok());
}

TEST_F(RelayCoreTest, AnExecutorThatComesBackWithoutConcludedEntriesLosesItsOldLink) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  TestLink again;
  EXPECT_FALSE(Ask(again, 11, 3, 3).ok());
  EXPECT_TRUE(executor_.closed);
  EXPECT_EQ(relay_.CheckInvariants(), absl::OkStatus());
}

TEST_F(RelayCoreTest, ASlowChildIsGivenUpAndTheOthersGoOn) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  ASSERT_TRUE(Ask(below_, 22, 3, 0).ok());
  below_.queued = 1000;
  LogNumber n = 5;
  for (; n < 50; ++n) ASSERT_TRUE(Entries(3, {{n, 2}}).ok());
  for (int i = 0; i < 10; ++i) {
    Tick();
    ASSERT_TRUE(Report(below_, {3, 0, {}}).ok());
  }
  EXPECT_THAT(told_, IsEmpty());
  Tick();
  EXPECT_THAT(told_, ElementsAre("22 in 3: it does not take its entries"));
  EXPECT_TRUE(below_.closed);
  EXPECT_EQ(relay_.bytes(), 0u);
  ASSERT_TRUE(Entries(3, {{n, 1}, {n + 1, 2}}).ok());
  EXPECT_THAT(executor_.Bodies(), ElementsAre(std::to_string(n)));
  EXPECT_FALSE(Report(below_, {3, 5, {}}).ok());
}

TEST_F(RelayCoreTest, MuchForAChildThatTakesItIsNoTrouble) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  ASSERT_TRUE(Ask(below_, 22, 3, 0).ok());
  below_.queued = 1000;
  for (LogNumber n = 5; n < 50; ++n) ASSERT_TRUE(Entries(3, {{n, 2}}).ok());
  below_.queued = 0;
  for (LogNumber n = 5; n < 50; ++n) {
    Tick(milliseconds(500));
    EXPECT_THAT(told_, IsEmpty());
    ASSERT_TRUE(Report(below_, {3, n, {}}).ok());
  }
  EXPECT_EQ(relay_.bytes(), 0u);
}

TEST_F(RelayCoreTest, AChildWhoseLinkBreaksHasItsPatienceAlsoIfItWasIdle) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  Tick(milliseconds(5000));
  const std::string gone = "11 in 3: it has no connection";
  relay_.ChildEnded(&executor_, now_);
  Tick(milliseconds(1000));
  EXPECT_THAT(told_, Not(Contains(gone)));
  TestLink again;
  EXPECT_TRUE(Ask(again, 11, 3, 4).ok());
  relay_.ChildEnded(&again, now_);
  Tick(milliseconds(1100));
  EXPECT_THAT(told_, Contains(gone));
}

TEST_F(RelayCoreTest, AChildThatSaysWhatCannotBeIsLeftToTheController) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  ASSERT_TRUE(Ask(below_, 22, 3, 0).ok());
  EXPECT_FALSE(Report(executor_, {3, 9, {}}).ok());
  EXPECT_TRUE(executor_.closed);
  EXPECT_THAT(told_, ElementsAre("11 in 3: a child has entries up to 9, expected 4 to 4"));
  TestLink again;
  EXPECT_EQ(Ask(again, 11, 3, 4).code(), absl::StatusCode::kFailedPrecondition);
  Frame garbage;
  garbage.type = kLogReportFrame;
  garbage.payload = "\xff";
  EXPECT_FALSE(relay_.FromChild(&below_, garbage, now_).ok());
  EXPECT_TRUE(below_.closed);
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(RelayCoreTest, AChildThatTakesBackWhatItHasIsLeftToTheController) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 6).ok());
  TestLink again;
  EXPECT_FALSE(Ask(again, 11, 3, 5).ok());
  EXPECT_THAT(told_, ElementsAre("11 in 3: a child has entries up to 5, expected 6 to 6"));
  EXPECT_TRUE(executor_.closed);
}

TEST_F(RelayCoreTest, ARelayThatDidNotRunDoesNotJudgeItsChildrenForThat) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  ASSERT_TRUE(Ask(below_, 22, 3, 0).ok());
  Tick();
  now_ += milliseconds(5000);
  relay_.Tick(now_);
  EXPECT_THAT(told_, IsEmpty());
  Tick(milliseconds(1000));
  EXPECT_THAT(told_, IsEmpty());
  Tick();
  EXPECT_THAT(told_, ElementsAre("22 in 3: it is silent"));
}

TEST_F(RelayCoreTest, ARelayThatIsLateAgainAndAgainIsGivenUp) {
  TaskWithRelays();
  Pass(milliseconds(1900), {milliseconds(1), milliseconds(45), milliseconds(2)});
  EXPECT_THAT(told_, IsEmpty());
  Pass(milliseconds(1000), {milliseconds(1), milliseconds(45), milliseconds(2)});
  EXPECT_THAT(told_, ElementsAre(HasSubstr("32 in 3: it is late: more than half of its last 20 "
                                           "answers took 45 ms")));
  EXPECT_TRUE(relays_[1].closed);
  EXPECT_FALSE(relays_[0].closed || relays_[2].closed);
}

TEST_F(RelayCoreTest, RelaysThatAreEquallyLateAreKept) {
  TaskWithRelays();
  Pass(milliseconds(9000), {milliseconds(45), milliseconds(50), milliseconds(45)});
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(RelayCoreTest, ARelayThatIsLateItselfJudgesNobodyForThat) {
  TaskWithRelays();
  const milliseconds late(45);
  Pass(milliseconds(9000), {late, late, milliseconds(1)}, milliseconds(40));
  EXPECT_THAT(told_, IsEmpty());
  // It does not run for a while, and what it has measured counts for nothing.
  for (int i = 0; i < 3; ++i) {
    now_ += milliseconds(600);
    Pass(milliseconds(2000), {late, milliseconds(1), milliseconds(1)});
  }
  EXPECT_THAT(told_, IsEmpty());
  Pass(milliseconds(100), {late, milliseconds(1), milliseconds(1)});
  EXPECT_THAT(told_, ElementsAre(HasSubstr("31 in 3: it is late")));
}

TEST_F(RelayCoreTest, ARelayThatAnswersNothingOrTakesMuchIsNotLate) {
  TaskWithRelays();
  Pass(milliseconds(9000), {milliseconds(1), milliseconds(2)});  // 33 does not know questions
  EXPECT_THAT(told_, IsEmpty());
  relays_[1].queued = 1;  // it is not asked while there is more to be written
  Pass(milliseconds(9000), {milliseconds(1), milliseconds(45)});
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(RelayCoreTest, AQuestionIsAnsweredAtOnceAndOnce) {
  Task(3);
  Frame frame;
  frame.payload = LogFrameWriter(3, {}).Take();
  frame.id = 5;
  ASSERT_TRUE(relay_.FromParent(frame, now_).ok());
  ASSERT_EQ(controller_.sent.size(), 1u);
  EXPECT_EQ(controller_.sent[0].id, 5u);
  controller_.sent.clear();
  controller_.queued = 1000;
  frame.id = 6;
  ASSERT_TRUE(relay_.FromParent(frame, now_).ok());
  EXPECT_THAT(controller_.sent, IsEmpty());  // there is no room
  controller_.queued = 0;
  Tick();
  Tick();
  ASSERT_EQ(controller_.sent.size(), 2u);
  EXPECT_EQ(controller_.sent[0].id, 6u);
  EXPECT_EQ(controller_.sent[1].id, 0u);
}

TEST_F(RelayCoreTest, AChildThatDialsAgainReplacesItsOldLink) {
  Task(3);
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  ASSERT_TRUE(Entries(3, {{5, 1}}).ok());
  TestLink again;
  ASSERT_TRUE(Ask(again, 11, 3, 4).ok());
  EXPECT_TRUE(executor_.closed);
  EXPECT_THAT(again.Bodies(), ElementsAre("5"));
  relay_.ChildEnded(&executor_, now_);
  ASSERT_TRUE(Entries(3, {{6, 1}}).ok());
  EXPECT_THAT(again.Bodies(), ElementsAre("6"));
  relay_.ChildEnded(&again, now_);
}

// Each controller counts versions from 1, and a child may not know yet that its own is gone. So it
// comes for a version that this relay does have, with an incarnation or a secret that it has not.
TEST_F(RelayCoreTest, AChildOfAnotherControllerIsNotTakenForAnImpostor) {
  controller_incarnation_ = 78;
  Task(3, "host:1");
  relay_.ParentUp(&parent_);
  v1::ToController message;
  ASSERT_TRUE(UnpackFrame(parent_.sent[0], &message).ok());
  EXPECT_EQ(message.log_ask().controller_incarnation(), 78u);
  EXPECT_EQ(Ask(executor_, 12, 3, 4).code(), absl::StatusCode::kFailedPrecondition);
  secret_ = "of the relay's link to that controller";
  EXPECT_EQ(Ask(below_, 22, 3, 0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(relay_.IsChild(&below_));
  asks_of_controller_ = 78;
  EXPECT_EQ(Ask(below_, 22, 3, 0).code(), absl::StatusCode::kPermissionDenied);
  secret_.clear();
  EXPECT_TRUE(Ask(below_, 22, 3, 0).ok());
}

TEST_F(RelayCoreTest, WhoCannotProveToBeAChildGetsNothingAndTheChildKeepsItsLink) {
  Task(3, "host:1");
  relay_.ParentUp(&parent_);
  v1::ToController message;
  ASSERT_TRUE(UnpackFrame(parent_.sent[0], &message).ok());
  EXPECT_EQ(message.log_ask().secret(), "own");
  ASSERT_TRUE(Ask(executor_, 11, 3, 4).ok());
  TestLink stranger;
  secret_ = "guessed";
  const absl::Status wrong = Ask(stranger, 11, 3, 4);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(wrong.message(),
            "it says that it is the executor of worker w1, but its proof is wrong");
  EXPECT_EQ(Ask(stranger, 22, 3, 0).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Ask(stranger, 33, 3, 0).code(), absl::StatusCode::kPermissionDenied);
  secret_.clear();
  stranger.proved = Subject{Role::kWorker, "w7"};  // a certificate of another worker
  EXPECT_EQ(Ask(stranger, 11, 3, 4).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(relay_.IsChild(&stranger));
  EXPECT_TRUE(relay_.IsChild(&executor_));
  EXPECT_FALSE(executor_.closed);
  ASSERT_TRUE(Entries(3, {{5, 1}}).ok());
  EXPECT_THAT(executor_.Bodies(), ElementsAre("5"));
  EXPECT_THAT(stranger.sent, IsEmpty());
}

}  // namespace
}  // namespace fairway
