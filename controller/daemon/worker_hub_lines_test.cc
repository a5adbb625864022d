// SPDX-License-Identifier: Apache-2.0
// What workers have logged, and who waits for it.
#include <gmock/gmock.h>

#include "base/recent_lines.h"
#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class WorkerHubLinesTest : public WorkerHubTest {
 protected:
  // A worker's daemon, whose host answers by its pulse.
  std::unique_ptr<FarEnd> ConnectWorker(const std::string& worker, int64_t pid) {
    auto supervisor = ConnectSupervisor(worker, pid);
    pulses_.push_back(Connect());
    v1::ToController message;
    message.mutable_pulse()->set_worker(worker);
    message.mutable_pulse()->set_host("h");
    message.mutable_pulse()->set_pid(pid);
    pulses_.back()->Send(message);
    Settle();
    return supervisor;
  }
  void Ask(const std::string& worker) {
    hub_->AskRecentLines(worker, [this](absl::StatusOr<WorkerTail> tail) {
      answers_.push_back(tail.ok() ? tail->host + " " + tail->text : Text(tail.status()));
      older_ = tail.ok() && tail->older;
    });
    Settle();
  }
  // The number of the question that the worker has got next.
  static uint64_t QuestionTo(FarEnd& worker) {
    while (!worker.received.empty()) {
      const v1::FromController message = worker.Next();
      if (message.has_ask_recent_lines()) return message.ask_recent_lines().id();
    }
    return 0;
  }
  void Answer(FarEnd& worker, uint64_t id, std::string text) {
    v1::ToController message;
    message.mutable_recent_lines()->set_id(id);
    message.mutable_recent_lines()->set_text(std::move(text));
    worker.Send(message);
    Settle();
  }

  std::vector<std::unique_ptr<FarEnd>> pulses_;
  std::vector<std::string> answers_;
  bool older_ = false;
};

TEST_F(WorkerHubLinesTest, AllWhoAskMeanwhileGetTheAnswerToOneQuestion) {
  const auto worker = ConnectSupervisor("w0");
  Ask("w0");
  Ask("w0");
  const uint64_t id = QuestionTo(*worker);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(QuestionTo(*worker), 0u);
  Answer(*worker, id + 1, "to nothing\n");
  EXPECT_THAT(answers_, ElementsAre());
  Answer(*worker, id, "a line\n");
  EXPECT_THAT(answers_, ElementsAre("h a line\n", "h a line\n"));
  Answer(*worker, id, "once more\n");
  EXPECT_EQ(answers_.size(), 2u);
  Ask("w0");
  EXPECT_GT(QuestionTo(*worker), id);
}

TEST_F(WorkerHubLinesTest, WhoDoesNotAnswerIsNamedAndHasOneQuestionToAnswerAfterwards) {
  const auto worker = ConnectWorker("w0", 17);
  const auto other = ConnectWorker("w1", 18);
  Ask("w0");
  const uint64_t id = QuestionTo(*worker);
  Beat(*worker);
  Advance(std::chrono::milliseconds(2900));
  EXPECT_THAT(answers_, ElementsAre());
  Beat(*worker);  // its loop runs, and the answer is not made
  Advance(std::chrono::milliseconds(200));
  EXPECT_THAT(answers_, ElementsAre("worker w0 (host h, pid 17) has not answered within 3 s: it is "
                                    "stopped or busy; read its log on its host"));
  Beat(*other);
  Ask("w1");
  Answer(*other, QuestionTo(*other), "well\n");
  EXPECT_EQ(answers_.back(), "h well\n");

  Ask("w0");
  EXPECT_EQ(QuestionTo(*worker), 0u);
  Answer(*worker, id, "here\n");
  EXPECT_EQ(answers_.back(), "h here\n");
}

TEST_F(WorkerHubLinesTest, NobodyWaitsForAWorkerThatIsSilentOrAway) {
  auto worker = ConnectWorker("w0", 17);
  Advance(std::chrono::milliseconds(4000));
  Ask("w0");
  EXPECT_THAT(answers_.back(), StartsWith("worker w0 (host h, pid 17) has been silent for 4 s"));
  EXPECT_EQ(QuestionTo(*worker), 0u);
  Ask("w9");
  EXPECT_THAT(answers_.back(), StartsWith("worker w9 is not connected"));

  Beat(*worker);
  Ask("w0");
  const size_t before = answers_.size();
  worker = nullptr;
  Settle();
  ASSERT_EQ(answers_.size(), before + 1);
  EXPECT_THAT(answers_.back(), HasSubstr("went away while it was asked"));
  EXPECT_THAT(hub_->Workers(), ElementsAre());
}

TEST_F(WorkerHubLinesTest, AWorkerOfTheVersionBeforeIsNotAskedAndTheErrorSaysToUpgradeIt) {
  const auto worker = Connect();
  v1::ToController message;
  message.mutable_register_worker()->set_worker("old");
  message.mutable_register_worker()->set_host("h");
  message.mutable_register_worker()->set_pid(3);
  message.mutable_register_worker()->set_protocol(13);
  worker->Send(message);
  Settle();
  Ask("old");
  EXPECT_THAT(answers_,
              ElementsAre("worker old (host h, pid 3) speaks link protocol 13, and its log can be "
                          "had from 14 on: upgrade it (docs/upgrade.md); until then read the log "
                          "on its host"));
  EXPECT_EQ(QuestionTo(*worker), 0u);
  EXPECT_FALSE(worker->closed);
}

TEST_F(WorkerHubLinesTest, AWorkerThatSaysTooMuchIsCut) {
  const auto worker = ConnectSupervisor("w0");
  Ask("w0");
  Answer(*worker, QuestionTo(*worker), std::string(RecentLines::kBytes, 'x') + "the end\n");
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].size(), 2 + RecentLines::kBytes);
  EXPECT_TRUE(answers_[0].ends_with("xthe end\n"));
  EXPECT_TRUE(older_);
}

TEST_F(WorkerHubLinesTest, TheWorkersAreThoseThatAreConnectedOrHaveAnExecutor) {
  const auto supervisor = ConnectSupervisor("w0");
  auto executor = ConnectExecutor("w1", 11);
  EXPECT_THAT(hub_->Workers(), ElementsAre("w0", "w1"));
  executor = nullptr;
  Settle();
  EXPECT_THAT(hub_->Workers(), ElementsAre("w0", "w1"));
}

}  // namespace
}  // namespace fairway
