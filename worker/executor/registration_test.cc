// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "log/codec.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::seconds;
using ::testing::IsEmpty;
using With = CommandInbox::With;

std::string FrameWithCommand() {
  LogFrameWriter writer(1, {});
  EntryHeader header;
  header.number = 2;
  header.span = LogSpan::One(3);
  header.kind = EntryKind::kCommand;
  writer.Add(header, EncodeCommand(EndSend{TransferId(20)}).value());
  return writer.Take();
}

v1::Registered Terms() {
  v1::Registered terms;
  terms.set_controller_incarnation(77);
  terms.set_executor(3);
  terms.set_link_grace_ms(3000);
  return terms;
}

Frame Message(std::string payload) {
  Frame frame;
  frame.type = kControlFrame;
  frame.payload = std::move(payload);
  return frame;
}

TEST(RegistrationTest, CommandsAreTakenAndReportedWhileItIsHeld) {
  Registration registration;
  EXPECT_EQ(registration.Ask(), 0u);
  EXPECT_EQ(registration.Take(FrameWithCommand()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  ASSERT_TRUE(registration.held());
  EXPECT_EQ(registration.Take(FrameWithCommand())->size(), 1u);
  registration.End();
  EXPECT_EQ(registration.Take(FrameWithCommand()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(registration.LogReport(With::kHeartbeat), IsEmpty());
}

TEST(RegistrationTest, AnExecutorIsRegisteredOnceOverALink) {
  Registration registration;
  EXPECT_EQ(registration.Accepted(Terms()).code(), absl::StatusCode::kFailedPrecondition);
  registration.Ask();
  EXPECT_TRUE(registration.Accepted(Terms()).ok());
  EXPECT_EQ(registration.Accepted(Terms()).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RegistrationTest, TheNextOneWaitsForLaunchesInFlightAndNamesTheirIds) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  EXPECT_FALSE(registration.Over(0, 5)) << "its link has not ended";
  registration.End();
  EXPECT_FALSE(registration.Over(2, 7));
  EXPECT_TRUE(registration.ending());
  EXPECT_TRUE(registration.Over(0, 9));
  EXPECT_EQ(registration.phase(), Registration::Phase::kNone);
  EXPECT_EQ(registration.Ask(), 9u);
}

TEST(RegistrationTest, ANewRegistrationKnowsNothingOfTheLogBefore) {
  Registration registration;
  for (int i = 0; i < 2; ++i) {
    registration.Ask();
    ASSERT_TRUE(registration.Accepted(Terms()).ok());
    EXPECT_EQ(registration.Take(FrameWithCommand())->size(), 1u) << "its commands come anew";
    registration.End();
    EXPECT_TRUE(registration.Over(0, 0));
  }
}

// ---- connections that break

TEST(RegistrationTest, ARegistrationGoesOnWhereItWasOnTheNextConnection) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  ASSERT_EQ(registration.Take(FrameWithCommand())->size(), 1u);
  EXPECT_EQ(registration.Keep(Message("a")).id, 1u);
  EXPECT_TRUE(registration.Cut(seconds(10)));
  EXPECT_FALSE(registration.held());
  EXPECT_EQ(registration.Keep(Message("b")).id, 2u);
  EXPECT_THAT(registration.LogReport(With::kHeartbeat), IsEmpty()) << "nobody would get it";

  const v1::ResumeExecutor said = registration.Resume(Incarnation(11));
  EXPECT_EQ(said.ShortDebugString(),
            "protocol: 13 controller_incarnation: 77 executor: 3 incarnation: 11 version: 1 "
            "applied: 2");
  v1::Resumed resumed;
  resumed.set_taken(1);
  const auto again = registration.Resumed(resumed);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->size(), 1u);
  EXPECT_EQ((*again)[0].payload, "b");
  EXPECT_TRUE(registration.held());
  EXPECT_THAT(*registration.Take(FrameWithCommand()), IsEmpty()) << "it has come before";
  const auto report = DecodeLogReport(registration.LogReport(With::kNothing));
  ASSERT_TRUE(report.ok()) << "all that is not concluded is reported at once";
  EXPECT_EQ(report->ended, (LogRanges{{2, 2}}));
}

TEST(RegistrationTest, ItEndsIfThereIsNoConnectionWithinTheGrace) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  EXPECT_TRUE(registration.Cut(seconds(10)));
  EXPECT_FALSE(registration.GraceOver(seconds(12)));
  EXPECT_TRUE(registration.cut());
  EXPECT_TRUE(registration.GraceOver(seconds(13)));
  EXPECT_TRUE(registration.ending());
  EXPECT_FALSE(registration.GraceOver(seconds(14))) << "it is told once";
}

TEST(RegistrationTest, AControllerThatHasYetToAnswerIsWaitedForWhileItsConnectionStands) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  EXPECT_TRUE(registration.Cut(seconds(10)));
  registration.Resume(Incarnation(11));
  EXPECT_FALSE(registration.GraceOver(seconds(20)));
  EXPECT_FALSE(registration.Cut(seconds(20))) << "the grace began when it was cut first";
  EXPECT_TRUE(registration.ending());
}

TEST(RegistrationTest, WhatIsNotHeldOrHasNoGraceEndsWithItsConnection) {
  Registration registration;
  registration.Ask();
  EXPECT_FALSE(registration.Cut(seconds(1)));
  EXPECT_TRUE(registration.Over(0, 0));
  registration.Ask();
  v1::Registered terms = Terms();
  terms.clear_link_grace_ms();
  ASSERT_TRUE(registration.Accepted(terms).ok());
  EXPECT_FALSE(registration.Cut(seconds(2)));
  EXPECT_TRUE(registration.ending());
}

TEST(RegistrationTest, NobodyResumesWhatWasNotCutOrMoreThanWasSaid) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  EXPECT_EQ(registration.Resumed({}).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(registration.Cut(seconds(1)));
  registration.Resume(Incarnation(11));
  v1::Resumed resumed;
  resumed.set_taken(1);
  EXPECT_EQ(registration.Resumed(resumed).status().code(), absl::StatusCode::kInvalidArgument);
}

v1::LogParent Parent(uint64_t version, const std::string& endpoint) {
  v1::LogParent parent;
  parent.set_children(3);
  parent.set_version(version);
  parent.set_endpoint(endpoint);
  return parent;
}

TEST(RegistrationTest, TheLogComesFromTheParentThatTheControllerNames) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  const std::string frame = LogFrameWriter(5, {}).Take();
  EXPECT_FALSE(registration.Take(frame, /*relay=*/true).ok());
  EXPECT_TRUE(registration.Follow(Parent(5, "relay")));
  EXPECT_FALSE(registration.Follow(Parent(5, "other")));
  EXPECT_FALSE(registration.Follow(Parent(4, "")));  // old news
  EXPECT_EQ(registration.relay(), "relay");
  EXPECT_EQ(registration.relay_children(), 3);
  const v1::LogAsk ask = registration.AskLog(Incarnation(11));
  EXPECT_EQ(ask.version(), 5u);
  EXPECT_EQ(ask.controller_incarnation(), 77u);
  EXPECT_EQ(ask.incarnation(), 11u);
  EXPECT_EQ(ask.applied(), 0u);
  EXPECT_FALSE(registration.Take(frame, /*relay=*/false).ok());
  EXPECT_TRUE(registration.Take(frame, /*relay=*/true).ok());
  EXPECT_TRUE(registration.Follow(Parent(6, "")));
  EXPECT_EQ(registration.relay_children(), 0);
  EXPECT_FALSE(registration.Take(frame, /*relay=*/true).ok());
  EXPECT_TRUE(registration.Take(frame, /*relay=*/false).ok());
  registration.End();
  ASSERT_TRUE(registration.Over(0, 0));
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  EXPECT_EQ(registration.relay(), "");
  EXPECT_TRUE(registration.Follow(Parent(1, "relay")));  // of another controller
}

TEST(RegistrationTest, ALinkToARelayOutlivesTheConnectionToTheController) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(Terms()).ok());
  ASSERT_TRUE(registration.Follow(Parent(5, "relay")));
  registration.AskLog(Incarnation(11));
  const std::string frame = LogFrameWriter(5, {}).Take();
  ASSERT_TRUE(registration.Cut(seconds(1)));
  EXPECT_TRUE(registration.Take(frame, /*relay=*/true).ok());
  EXPECT_NE(registration.LogReport(CommandInbox::With::kHeartbeat), "");
  registration.Resume(Incarnation(11));
  EXPECT_TRUE(registration.Take(frame, /*relay=*/true).ok());
  registration.End();
  EXPECT_FALSE(registration.Take(frame, /*relay=*/true).ok());
}

TEST(RegistrationTest, ANewRegistrationNumbersItsMessagesAnew) {
  Registration registration;
  for (int i = 0; i < 2; ++i) {
    registration.Ask();
    ASSERT_TRUE(registration.Accepted(Terms()).ok());
    EXPECT_EQ(registration.Keep(Message("a")).id, 1u);
    registration.End();
    EXPECT_TRUE(registration.Over(0, 0));
  }
}

}  // namespace
}  // namespace fairway
