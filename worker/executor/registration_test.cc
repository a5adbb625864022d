// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "log/codec.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using ::testing::IsEmpty;
using With = CommandInbox::With;

std::string FrameWithCommand() {
  LogFrameWriter writer(1, {});
  EntryHeader header;
  header.number = 2;
  header.set = LogSetId::One(3);
  header.kind = EntryKind::kCommand;
  writer.Add(header, EncodeCommand(EndSend{TransferId(20)}).value());
  return writer.Take();
}

TEST(RegistrationTest, CommandsAreTakenAndReportedWhileItIsHeld) {
  Registration registration;
  EXPECT_EQ(registration.Ask(), 0u);
  EXPECT_EQ(registration.Take(FrameWithCommand()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(registration.Accepted(ExecutorId(3)).ok());
  ASSERT_TRUE(registration.held());
  EXPECT_EQ(registration.Take(FrameWithCommand())->size(), 1u);
  registration.LinkEnded();
  EXPECT_EQ(registration.Take(FrameWithCommand()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(registration.LogReport(With::kHeartbeat), IsEmpty());
}

TEST(RegistrationTest, AnExecutorIsRegisteredOnceOverALink) {
  Registration registration;
  EXPECT_EQ(registration.Accepted(ExecutorId(3)).code(), absl::StatusCode::kFailedPrecondition);
  registration.Ask();
  EXPECT_TRUE(registration.Accepted(ExecutorId(3)).ok());
  EXPECT_EQ(registration.Accepted(ExecutorId(3)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RegistrationTest, TheNextOneWaitsForLaunchesInFlightAndNamesTheirIds) {
  Registration registration;
  registration.Ask();
  ASSERT_TRUE(registration.Accepted(ExecutorId(3)).ok());
  EXPECT_FALSE(registration.Over(0, 5)) << "its link has not ended";
  registration.LinkEnded();
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
    ASSERT_TRUE(registration.Accepted(ExecutorId(3)).ok());
    EXPECT_EQ(registration.Take(FrameWithCommand())->size(), 1u) << "its commands come anew";
    registration.LinkEnded();
    EXPECT_TRUE(registration.Over(0, 0));
  }
}

}  // namespace
}  // namespace fairway
