// SPDX-License-Identifier: Apache-2.0
// Connections of executors that break, and come back or not.
#include <gmock/gmock.h>

#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class ResumeTest : public WorkerHubTest {
 protected:
  ResumeTest() {
    supervisor_ = ConnectSupervisor("w0");
    pulse_ = ConnectPulse();
    executor_ = ConnectExecutor("w0", 11);
    EXPECT_EQ(executor_->Next().registered().link_grace_ms(), 3000);
  }

  std::unique_ptr<FarEnd> ConnectPulse() {
    auto far = Connect();
    v1::ToController message;
    message.mutable_pulse()->set_worker("w0");
    message.mutable_pulse()->set_host("h");
    message.mutable_pulse()->set_pid(10);
    far->Send(message);
    Settle();
    return far;
  }
  // The connection is gone, with all that was on its way.
  void Cut() {
    before_ = std::move(executor_);
    before_->link.reset();
    Settle();
  }
  v1::ResumeExecutor Words(uint64_t incarnation = 11) {
    v1::ResumeExecutor words;
    words.set_protocol(kLinkProtocol);
    words.set_controller_incarnation(77);
    words.set_executor(1);
    words.set_incarnation(incarnation);
    words.set_version(before_->follower->version());
    words.set_applied(before_->follower->applied());
    return words;
  }
  // Connects again and says this.
  v1::FromController Resume(const v1::ResumeExecutor& words) {
    executor_ = Connect();
    executor_->follower = before_->follower;
    v1::ToController message;
    *message.mutable_resume_executor() = words;
    executor_->Send(message);
    Settle();
    return executor_->Next();
  }
  void Command(uint64_t transfer) { hub_->Send(ExecutorId(1), EndSend{TransferId(transfer)}); }
  std::vector<uint64_t> Got() const {
    std::vector<uint64_t> out;
    for (const FarEnd* const far : {before_.get(), executor_.get()}) {
      if (far == nullptr) continue;
      for (const std::vector<fairway::Command>& frame : far->commands) {
        for (const fairway::Command& command : frame)
          out.push_back(std::get<EndSend>(command).transfer.value);
      }
    }
    return out;
  }
  // A report with a number.
  void SendReport(uint64_t number) {
    v1::ToController message;
    message.mutable_report()->set_incarnation(11);
    message.mutable_report()->set_finished_through(number);
    Frame frame = PackFrame(message);
    frame.id = number;
    executor_->link->Send(std::move(frame));
    Settle();
  }

  std::unique_ptr<FarEnd> supervisor_, pulse_, executor_, before_;
};

TEST_F(ResumeTest, AConnectionThatBreaksAndComesBackCostsNothing) {
  Command(1);
  Settle();
  Command(2);  // lost
  Cut();
  Command(3);
  Advance(milliseconds(2900));
  EXPECT_TRUE(hub_->Connected(ExecutorId(1)));
  EXPECT_TRUE(Resume(Words()).has_resumed());
  Command(4);
  Settle();
  EXPECT_THAT(Got(), ElementsAre(1, 2, 3, 4));
  executor_->ReportLog();
  Beat(*executor_);
  EXPECT_EQ(hub_->open_entries(), 0u);
  EXPECT_EQ(hub_->links_resumed(), 1u);
  EXPECT_EQ(hub_->Health().at(ExecutorId(1)).links_resumed, 1u);
  Advance(milliseconds(3000));
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_EQ(hub_->CheckInvariants(), absl::OkStatus());
}

TEST_F(ResumeTest, TheExecutorMayHearOfTheCutFirst) {
  std::unique_ptr<FarEnd> old = std::move(executor_);
  before_ = std::make_unique<FarEnd>();
  before_->follower = old->follower;
  EXPECT_TRUE(Resume(Words()).has_resumed());
  EXPECT_TRUE(old->closed);
  Command(1);
  old->Send(v1::ToController());  // nobody listens to it any more
  Settle();
  EXPECT_THAT(Got(), ElementsAre(1));
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(ResumeTest, ReportsComeOnceAndTheExecutorIsToldWhichCame) {
  SendReport(1);
  Cut();
  EXPECT_EQ(Resume(Words()).resumed().taken(), 1u);
  SendReport(1);  // again
  SendReport(2);
  EXPECT_THAT(reports_, SizeIs(2));
  SendReport(4);  // 3 is left out
  EXPECT_THAT(reports_, SizeIs(2));
  Advance(milliseconds(1100));
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("message 4 comes after 2"))));
}

TEST_F(ResumeTest, AnAnswerToACallbackThatWasLostComesAgain) {
  CallbackAnswer answer;
  answer.call = 5;
  hub_->Answer(ExecutorId(1), answer);
  Cut();
  answer.call = 6;
  hub_->Answer(ExecutorId(1), answer);
  EXPECT_TRUE(Resume(Words()).has_resumed());
  EXPECT_EQ(executor_->Next().callback_answer().call(), 5);
  EXPECT_EQ(executor_->Next().callback_answer().call(), 6);
}

TEST_F(ResumeTest, AfterTheGraceItIsLostAndDoesNotGoOn) {
  Cut();
  Advance(milliseconds(3100));
  EXPECT_THAT(lost_, SizeIs(1));
  EXPECT_THAT(Resume(Words()).not_resumed().reason(), HasSubstr("it was declared lost"));
  EXPECT_TRUE(executor_->closed);
  EXPECT_THAT(lost_, SizeIs(1));
  executor_ = ConnectExecutor("w0", 12);
  EXPECT_TRUE(executor_->Next().has_registered());
}

TEST_F(ResumeTest, AnotherIncarnationOrControllerIsNotKnown) {
  Cut();
  v1::ResumeExecutor words = Words(10);
  EXPECT_THAT(Resume(words).not_resumed().reason(), HasSubstr("does not know the registration"));
  words = Words();
  words.set_controller_incarnation(76);
  EXPECT_THAT(Resume(words).not_resumed().reason(), HasSubstr("does not know the registration"));
  words = Words();
  words.set_executor(9);
  EXPECT_THAT(Resume(words).not_resumed().reason(), HasSubstr("does not know the registration"));
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_TRUE(Resume(Words()).has_resumed());
}

TEST_F(ResumeTest, AnExecutorThatIsBehindWhatTheLogKeepsIsLost) {
  Command(1);
  Settle();
  executor_->ReportLog();
  Settle();
  Cut();
  v1::ResumeExecutor words = Words();
  words.set_applied(0);
  EXPECT_THAT(Resume(words).not_resumed().reason(), HasSubstr("entries up to 0"));
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("it came back and could not go on"))));
}

TEST_F(ResumeTest, AKilledExecutorIsLostAsSoonAsItsSupervisorSaysSo) {
  Cut();
  EXPECT_THAT(lost_, IsEmpty());
  Died(*supervisor_, 11, "killed by SIGKILL");
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("killed by SIGKILL"))));
}

TEST_F(ResumeTest, AWorkerWhoseProcessesEndIsLostAtOnceInWhateverOrderThatIsSeen) {
  using Ends = std::vector<std::unique_ptr<FarEnd>*>;
  const std::vector<Ends> orders = {{&executor_, &supervisor_, &pulse_},
                                    {&pulse_, &supervisor_, &executor_},
                                    {&supervisor_, &executor_, &pulse_},
                                    {&supervisor_, &pulse_, &executor_}};
  for (size_t i = 0; i < orders.size(); ++i) {
    if (i > 0) {
      supervisor_ = ConnectSupervisor("w0");
      pulse_ = ConnectPulse();
      executor_ = ConnectExecutor("w0", 11 + i);
    }
    for (std::unique_ptr<FarEnd>* const end : orders[i]) {
      EXPECT_THAT(lost_, SizeIs(i));
      (*end)->link.reset();
      Settle();
    }
    EXPECT_THAT(lost_, SizeIs(i + 1)) << "order " << i;
  }
}

TEST_F(ResumeTest, TheLinksOfExecutorAndSupervisorMayBothBreakWhileThePulseStands) {
  Cut();
  supervisor_->link.reset();
  Settle();
  Advance(milliseconds(1000));
  supervisor_ = ConnectSupervisor("w0");
  EXPECT_TRUE(Resume(Words()).has_resumed());
  EXPECT_FALSE(pulse_->closed);
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(ResumeTest, TheOldPulseStandsUntilTheNewOneIsHeardOf) {
  Cut();
  supervisor_->link.reset();
  Settle();
  supervisor_ = ConnectSupervisor("w0");
  EXPECT_TRUE(Resume(Words()).has_resumed());
  // The supervisor dials another pulse, and all but the old one break before it has said anything.
  const auto unheard = Connect();
  Cut();
  supervisor_->link.reset();
  unheard->link.reset();
  Settle();
  EXPECT_FALSE(pulse_->closed);
  EXPECT_THAT(lost_, IsEmpty());
  supervisor_ = ConnectSupervisor("w0");
  const auto heard = ConnectPulse();
  EXPECT_TRUE(pulse_->closed);
  EXPECT_FALSE(heard->closed);
  EXPECT_TRUE(Resume(Words()).has_resumed());
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(ResumeTest, AnOperatorsRestartEndsAnExecutorWithoutAConnection) {
  Cut();
  supervisor_->received.clear();
  EXPECT_EQ(hub_->RestartExecutor("w0", "an operator asked for it").value(), Incarnation(11));
  Settle();
  EXPECT_EQ(supervisor_->Next().kill_executor().incarnation(), 11u);
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("an operator asked for it"))));
  EXPECT_THAT(Resume(Words()).not_resumed().reason(), HasSubstr("it was declared lost"));
}

TEST_F(ResumeTest, ManyReportsAreAcknowledgedBeforeTheNextHeartbeat) {
  executor_->received.clear();
  v1::ToController message;
  v1::Report* const report = message.mutable_report();
  report->set_incarnation(11);
  report->add_inlined()->set_bytes(std::string(300 << 10, 'x'));
  report->mutable_inlined(0)->mutable_shard()->set_group(1);
  executor_->Send(message);
  Settle();
  EXPECT_EQ(executor_->Next().heartbeat_ack().sequence(), 0u);
}

TEST_F(ResumeTest, BytesBetweenIslandsAreCountedOnceOverAllConnections) {
  const auto beat = [&](uint64_t bytes) {
    v1::ToController message;
    v1::Heartbeat::Pulled* const pulled = message.mutable_heartbeat()->add_pulled();
    pulled->set_endpoint("w0:1");
    pulled->set_bytes(bytes);
    executor_->Send(message);
    Settle();
  };
  beat(100);
  Cut();
  Resume(Words());
  beat(150);
  EXPECT_THAT(hub_->transferred_bytes(), ElementsAre(Pair(Pair("island0", "island0"), 150u)));
}

}  // namespace
}  // namespace fairway
