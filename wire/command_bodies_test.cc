// SPDX-License-Identifier: Apache-2.0
// What commands to many executors share.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

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
    members.push_back({"host:" + std::to_string(i), Incarnation(i + 1)});
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

}  // namespace
}  // namespace fairway
