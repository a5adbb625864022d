// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/command_inbox.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using With = CommandInbox::With;

std::string FrameOf(uint64_t version, const std::vector<std::pair<LogNumber, std::string>>& entries,
                    EntryKind kind = EntryKind::kCommand, uint32_t executor = 3) {
  LogFrameWriter writer(version, {});
  for (const auto& [number, body] : entries) {
    EntryHeader header;
    header.number = number;
    header.span = LogSpan::One(executor);
    header.kind = kind;
    if (body.size() > kMaxEntryBytes) header.flags = kBulkEntry;
    writer.Add(header, body);
  }
  return writer.Take();
}

std::string EndOf(uint64_t transfer) {
  return EncodeCommand(EndSend{TransferId(transfer)}).value();
}

std::vector<uint64_t> Transfers(const absl::StatusOr<std::vector<Command>>& commands) {
  std::vector<uint64_t> out;
  EXPECT_TRUE(commands.ok()) << commands.status();
  if (!commands.ok()) return out;
  for (const Command& command : *commands) out.push_back(std::get<EndSend>(command).transfer.value);
  return out;
}

TEST(CommandInboxTest, CommandsComeOnceAndInOrder) {
  CommandInbox inbox(ExecutorId(3));
  EXPECT_THAT(Transfers(inbox.Take(FrameOf(1, {{2, EndOf(20)}, {5, EndOf(50)}}))),
              ElementsAre(20, 50));
  EXPECT_THAT(Transfers(inbox.Take(FrameOf(2, {{2, EndOf(20)}, {5, EndOf(50)}, {6, EndOf(60)}}))),
              ElementsAre(60));
}

TEST(CommandInboxTest, ALaunchForAllEndsWhenItsWorkHasAndIsReportedAtOnce) {
  CommandInbox inbox(ExecutorId(3));
  LaunchAll all;
  all.node = NodeId(7);
  all.launch_id = LaunchId(8);
  all.executable = ExecutableId(9);
  LogFrameWriter writer(1, {});
  writer.Add({4, LogSpan{2, 5}, EntryKind::kCommand, kEndsLater}, EncodeCommand(all).value());
  writer.Add({5, LogSpan{2, 5}, EntryKind::kCommand, 0}, EndOf(50));
  const auto commands = inbox.Take(writer.Take());
  ASSERT_TRUE(commands.ok()) << commands.status();
  ASSERT_THAT(*commands, SizeIs(2));
  EXPECT_EQ(std::get<LaunchAll>((*commands)[0]).entry, 4u);
  EXPECT_EQ(std::get<LaunchAll>((*commands)[0]).node, NodeId(7));
  EXPECT_THAT(inbox.Report(With::kReport), IsEmpty());
  EXPECT_THAT(DecodeLogReport(inbox.Report(With::kHeartbeat))->ended, ElementsAre(LogRange{5, 5}));
  ASSERT_TRUE(inbox.Ended({4}).ok());
  EXPECT_FALSE(inbox.Ended({4}).ok());
  EXPECT_THAT(inbox.Report(With::kNothing), IsEmpty());
  EXPECT_THAT(DecodeLogReport(inbox.Report(With::kReport))->ended, ElementsAre(LogRange{4, 4}));
  EXPECT_THAT(inbox.Report(With::kReport), IsEmpty());
  // In a new version it is told anew, and nobody has to wait for the next heartbeat.
  ASSERT_TRUE(inbox.Take(LogFrameWriter(2, {{5, 5}}).Take()).ok());
  EXPECT_THAT(DecodeLogReport(inbox.Report(With::kNothing))->ended, ElementsAre(LogRange{4, 4}));
  ASSERT_TRUE(inbox.Take(LogFrameWriter(3, {{4, 4}}).Take()).ok());
  EXPECT_THAT(inbox.Report(With::kNothing), IsEmpty());
  // Which entries end later is known from both: the command and the entry.
  LogFrameWriter at_once(1, {}), later(1, {});
  at_once.Add({6, LogSpan::One(3), EntryKind::kCommand, 0}, EncodeCommand(all).value());
  later.Add({6, LogSpan::One(3), EntryKind::kCommand, kEndsLater}, EndOf(60));
  EXPECT_THAT(Text(CommandInbox(ExecutorId(3)).Take(at_once.Take()).status()),
              HasSubstr("entry 6 ends at once, expected only LaunchAll to end later"));
  EXPECT_THAT(Text(CommandInbox(ExecutorId(3)).Take(later.Take()).status()),
              HasSubstr("entry 6 ends later, expected"));
}

TEST(CommandInboxTest, AReportGoesWithAHeartbeatOrWhenThereIsEnoughToReport) {
  CommandInbox inbox(ExecutorId(3));
  EXPECT_THAT(inbox.Report(With::kHeartbeat), IsEmpty()) << "there is no version yet";
  ASSERT_TRUE(inbox.Take(FrameOf(1, {{2, EndOf(20)}})).ok());
  EXPECT_THAT(inbox.Report(With::kNothing), IsEmpty());
  EXPECT_THAT(inbox.Report(With::kReport), IsEmpty());
  const auto first = DecodeLogReport(inbox.Report(With::kHeartbeat));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->version, 1u);
  EXPECT_EQ(first->applied, 2u);
  EXPECT_THAT(first->ended, ElementsAre(LogRange{2, 2}));
  EXPECT_THAT(inbox.Report(With::kHeartbeat), IsEmpty());

  FreeGroups frees;
  for (uint64_t i = 0; i < 40000; ++i) frees.groups.push_back(GroupId(i));
  ASSERT_TRUE(inbox.Take(FrameOf(1, {{3, EncodeCommand(frees).value()}})).ok());
  EXPECT_THAT(inbox.Report(With::kNothing), IsEmpty());
  EXPECT_FALSE(inbox.Report(With::kReport).empty());

  InstallExecutable code;
  code.executable = ExecutableId(1);
  code.code = std::make_shared<const std::string>(300 << 10, 'x');
  ASSERT_TRUE(inbox.Take(FrameOf(1, {{4, EncodeCommand(code).value()}})).ok());
  EXPECT_FALSE(inbox.Report(With::kNothing).empty());
}

TEST(CommandInboxTest, ANewVersionIsToldAllThatIsNotKnownToBeConcluded) {
  CommandInbox inbox(ExecutorId(3));
  ASSERT_TRUE(inbox.Take(FrameOf(1, {{2, EndOf(20)}, {3, EndOf(30)}})).ok());
  EXPECT_FALSE(inbox.Report(With::kHeartbeat).empty());
  ASSERT_TRUE(inbox.Take(FrameOf(2, {})).ok());
  const auto report = DecodeLogReport(inbox.Report(With::kHeartbeat));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->version, 2u);
  EXPECT_THAT(report->ended, ElementsAre(LogRange{2, 3}));
}

TEST(CommandInboxTest, WhatIsNoCommandForThisExecutorIsRefused) {
  const auto refused = [](const std::string& frame) {
    const auto commands = CommandInbox(ExecutorId(3)).Take(frame);
    return commands.ok() ? "" : Text(commands.status());
  };
  EXPECT_THAT(refused(""), HasSubstr("a version is cut off"));
  EXPECT_THAT(refused(FrameOf(1, {{1, EndOf(1)}}, EntryKind::kCommand, 4)),
              HasSubstr("expected 3"));
  EXPECT_THAT(refused(FrameOf(1, {{1, EndOf(1)}}, EntryKind::kRun)), HasSubstr("is a RUN"));
  EXPECT_THAT(refused(FrameOf(1, {{1, "\xff"}})), HasSubstr("bad command"));
  EXPECT_THAT(refused(FrameOf(1, {{1, ""}})), HasSubstr("bad command"));
}

}  // namespace
}  // namespace fairway
