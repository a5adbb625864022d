// SPDX-License-Identifier: Apache-2.0
// What commands to many executors share.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

TEST(CommandBodies, ShareTheBytesOfALongSequence) {
  InstallSequence install{ExecutableId(1), nullptr,
                          std::make_shared<const std::string>(kSharedCodeBytes, 'x'), 7};
  const auto sent = EncodeToSend(install);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->tail.bytes, install.bytes);
  EXPECT_EQ(sent->tail.crc, 7);
  EXPECT_EQ(sent->body + *sent->tail.bytes, EncodeCommand(install).value());
  EXPECT_EQ(EncodeToSend(install, sent->bytes() - 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  install.bytes = std::make_shared<const std::string>("x");
  EXPECT_EQ(EncodeToSend(install)->body, EncodeCommand(install).value());
}

TEST(CommandBodies, ShareTheirCode) {
  InstallExecutable install;
  install.executable = ExecutableId(1);
  install.code = std::make_shared<const std::string>(kSharedCodeBytes, 'x');
  install.code_crc = 7;
  install.checksum = "sum";
  install.devices = {0, 1};
  const auto sent = EncodeToSend(install);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->tail.bytes, install.code);  // the same bytes
  EXPECT_EQ(sent->tail.crc, 7);
  EXPECT_LT(sent->body.size(), 100u);
  const auto got = DecodeCommand(sent->body + *sent->tail.bytes);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(EncodeCommand(*got).value(), EncodeCommand(install).value());
  EXPECT_EQ(EncodeToSend(install, sent->bytes() - 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Little code is not worth it.
  install.code = std::make_shared<const std::string>("x");
  EXPECT_EQ(EncodeToSend(install)->body, EncodeCommand(install).value());
  EXPECT_EQ(EncodeToSend(install)->tail.size(), 0u);
}

TEST(CommandBodies, ShareTheListOfManyMembers) {
  InstallExecutable install;
  install.executable = ExecutableId(1);
  install.code = std::make_shared<const std::string>("x");
  std::vector<InstallExecutable::Member> members;
  for (uint64_t i = 0; i < 4096; ++i)
    members.push_back({"host:" + std::to_string(i), Incarnation(i + 1), {i, 1}});
  install.members = members;
  EncodedMembers last;
  std::shared_ptr<const std::string> bytes;
  for (int member = 0; member < 3; ++member) {
    install.member = member;
    const auto sent = EncodeToSend(install, kMaxCommandBytes, &last);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_LT(sent->body.size(), 100u);
    if (member > 0) {
      EXPECT_EQ(sent->tail.bytes, bytes);  // the same bytes
    }
    bytes = sent->tail.bytes;
    const auto got = DecodeCommand(sent->body + *bytes);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(EncodeCommand(*got).value(), EncodeCommand(install).value());
    EXPECT_EQ(EncodeToSend(install, sent->bytes() - 1, &last).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  // Another list is encoded anew; much code is shared in place of the members.
  members[0].endpoint = "elsewhere:1";
  install.members = members;
  EXPECT_NE(*EncodeToSend(install, kMaxCommandBytes, &last)->tail.bytes, *bytes);
  install.code = std::make_shared<const std::string>(kSharedCodeBytes, 'x');
  EXPECT_EQ(EncodeToSend(install, kMaxCommandBytes, &last)->tail.bytes, install.code);
}

// What protobuf makes of a command.
std::string BodyByProtobuf(const Command& command) {
  v1::Command message;
  ToProto(command, &message);
  return message.SerializeAsString();
}

// The frequent ones are written without protobuf.
TEST(CommandBodies, OfLaunchesAreThoseThatProtobufMakes) {
  std::mt19937_64 random(3);
  const auto number = [&] { return random() >> random() % 64; };
  const auto few = [&](size_t most) { return random() % (most + 1); };
  const auto int32 = [&] { return static_cast<int32_t>(number()); };
  for (int i = 0; i < 2000; ++i) {
    PrepareLaunch prepare;
    prepare.node = NodeId(few(1) * number());
    prepare.seq = few(1) * number();
    prepare.executable = ExecutableId(few(1) * number());
    for (size_t d = few(3); d > 0; --d) prepare.devices.push_back(int32());
    prepare.inputs.resize(few(i == 0 ? 2000 : 3));
    for (ShardRefs& row : prepare.inputs) {
      for (size_t a = few(3); a > 0; --a) row.push_back({GroupId(number()), int32()});
    }
    for (size_t o = few(3); o > 0; --o) {
      GroupPart& part = prepare.outputs.emplace_back(
          GroupPart{GroupId(number()), static_cast<DType>(few(5)), std::string(few(2) * 70, 'm')});
      for (size_t s = few(3); s > 0; --s) {
        LocalShard& shard = part.shards.emplace_back(LocalShard{int32(), int32(), {}});
        for (size_t d = few(3); d > 0; --d) shard.shape.dims.push_back(few(1) * number());
      }
    }
    prepare.more = few(1) == 1;
    ASSERT_EQ(EncodeCommand(prepare).value(), BodyByProtobuf(prepare));
    Launch launch;
    launch.node = NodeId(few(1) * number());
    launch.launch_id = LaunchId(few(1) * number());
    launch.gang = few(1) == 1;
    launch.ahead = few(1) == 1;
    for (size_t a = few(3); a > 0; --a) launch.non_donatable.push_back(int32());
    for (size_t s = few(3); s > 0; --s)
      launch.inline_shards.push_back({GroupId(number()), int32()});
    if (few(9) == 0) launch.failed.push_back({1, absl::AbortedError("why")});
    ASSERT_EQ(EncodeCommand(launch).value(), BodyByProtobuf(launch));
    LaunchAll all;
    all.node = NodeId(few(1) * number());
    all.launch_id = LaunchId(few(1) * number());
    all.executable = ExecutableId(few(1) * number());
    all.ahead = few(1) == 1;
    for (size_t a = few(3); a > 0; --a) all.inputs.emplace_back(few(1) * number());
    for (size_t o = few(3); o > 0; --o) all.outputs.emplace_back(few(1) * number());
    for (size_t a = few(3); a > 0; --a) all.non_donatable.push_back(int32());
    for (size_t o = few(3); o > 0; --o) all.inline_outputs.push_back(int32());
    ASSERT_EQ(EncodeCommand(all).value(), BodyByProtobuf(all));
    const std::string body = EncodeCommand(prepare).value();
    EXPECT_EQ(EncodeCommand(prepare, body.size() - 1).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST(CommandBodies, OfTransfersAreThoseThatProtobufMakes) {
  std::mt19937_64 random(4);
  const auto number = [&] { return random() >> random() % 64; };
  const auto few = [&](size_t most) { return random() % (most + 1); };
  const auto maybe = [&] { return few(1) * number(); };
  const auto int32 = [&] { return static_cast<int32_t>(maybe()); };
  const auto numbers = [&](auto& out) {
    for (size_t d = few(3); d > 0; --d) out.push_back(static_cast<int64_t>(maybe()));
  };
  const auto box = [&] {
    Box out;
    out.element_bytes = few(1) * int32();
    numbers(out.dims);
    numbers(out.origin);
    numbers(out.extents);
    return out;
  };
  for (int i = 0; i < 2000; ++i) {
    PrepareReceive receive;
    receive.node = NodeId(maybe());
    receive.seq = maybe();
    receive.transfer = TransferId(maybe());
    receive.out = GroupPart{GroupId(maybe()), static_cast<DType>(few(5)), "", {}};
    for (size_t s = few(3); s > 0; --s)
      numbers(receive.out.shards.emplace_back(LocalShard{int32(), int32(), {}}).shape.dims);
    for (size_t s = few(3); s > 0; --s) {
      ShardSource& source = receive.sources.emplace_back();
      source.kind = static_cast<ShardSource::Kind>(few(3));
      source.shard = {GroupId(maybe()), int32()};
      source.endpoint = std::string(few(2) * 10, 'e');
      source.incarnation = Incarnation(maybe());
      source.index = int32();
      source.ticket = {maybe(), maybe()};
      if (few(1) == 1) source.bytes = Blob::Copy(std::string(few(2) * 300, 'b'));
    }
    for (size_t p = few(3); p > 0; --p) receive.pieces.push_back({int32(), box(), box()});
    ASSERT_EQ(EncodeCommand(receive).value(), BodyByProtobuf(receive));
    PrepareSend send;
    send.transfer = TransferId(maybe());
    for (size_t s = few(3); s > 0; --s) {
      send.items.push_back({int32(), {GroupId(maybe()), int32()}});
      if (few(1) == 1) send.items.back().box = box();
    }
    ASSERT_EQ(EncodeCommand(send).value(), BodyByProtobuf(send));
    const EndSend end{TransferId(maybe())};
    ASSERT_EQ(EncodeCommand(end).value(), BodyByProtobuf(end));
    FreeGroups free;
    for (size_t g = few(4); g > 0; --g) free.groups.push_back(GroupId(maybe()));
    ASSERT_EQ(EncodeCommand(free).value(), BodyByProtobuf(free));
  }
}

TEST(CommandBodies, WhatLaunchesForAllIsCheckedWhereItComesIn) {
  InstallExecutable install;
  install.executable = ExecutableId(3);
  install.code = std::make_shared<const std::string>("code");
  install.devices = {1, 0};
  install.positions = {4, 6};
  install.outputs = {{GroupId(), DType::kF32, "", {{4, 1, Shape{{2}}}, {6, 0, Shape{{2}}}}}};
  install.distinct = {true, false};
  const auto round_trip = [](const auto& command) {
    const absl::StatusOr<Command> back = DecodeCommand(EncodeCommand(command).value());
    EXPECT_TRUE(back.ok()) << back.status();
    return std::get<std::decay_t<decltype(command)>>(*back);
  };
  const InstallExecutable out = round_trip(install);
  EXPECT_EQ(out.positions, install.positions);
  EXPECT_EQ(out.distinct, install.distinct);
  ASSERT_EQ(out.outputs.size(), 1u);
  EXPECT_EQ(out.outputs[0].shards[1].shard, 6);
  const auto refused = [](const Command& command) {
    return Text(DecodeCommand(EncodeCommand(command).value()).status());
  };
  InstallExecutable bad = install;
  bad.positions.pop_back();
  EXPECT_THAT(refused(bad), HasSubstr("1 positions for 2 devices"));
  bad = install;
  bad.positions[0] = -1;
  EXPECT_THAT(refused(bad), HasSubstr("a device at position -1"));
  bad = install;
  bad.outputs[0].shards.pop_back();
  EXPECT_THAT(refused(bad), HasSubstr("a result of 1 shards for 2 devices"));
  bad = install;
  bad.distinct.push_back(true);
  EXPECT_THAT(refused(bad), HasSubstr("says of 3 shards of results which are distinct"));
  LaunchAll all;
  EXPECT_THAT(refused(all), HasSubstr("launch 0 of node 0 with executable 0"));
  all.node = NodeId(1);
  all.launch_id = LaunchId(2);
  all.executable = ExecutableId(3);
  all.outputs = {GroupId(5)};
  all.inline_outputs = {1};
  EXPECT_THAT(refused(all), HasSubstr("node 1 has no output 1 of 1"));
  all.inline_outputs = {0};
  all.non_donatable = {-1};
  EXPECT_THAT(refused(all), HasSubstr("no argument -1 to keep"));
  all.non_donatable = {0};
  EXPECT_EQ(round_trip(all).outputs, all.outputs);
  EXPECT_EQ(round_trip(FailureHeard{NodeId(4)}).node, NodeId(4));
}

}  // namespace
}  // namespace fairway
