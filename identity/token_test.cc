// SPDX-License-Identifier: Apache-2.0
#include "identity/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/files_for_test.h"

namespace fairway {
namespace {

using std::chrono::seconds;
using std::chrono::sys_seconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(TokenTest, ASecretHas256BitsThatDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string secret = MakeTokenSecret();
    EXPECT_THAT(secret, MatchesRegex("fw_[0-9a-f]{64}"));
    EXPECT_TRUE(seen.insert(secret).second);
  }
}

TEST(TokenTest, AHashIsSha256OfTheWholeSecret) {
  const auto hash = HashOfSecret("fw_" + std::string(64, '0'));
  ASSERT_TRUE(hash.ok());
  std::string text;
  for (const uint8_t byte : *hash) text += fmt::format("{:02x}", byte);
  // printf 'fw_%064d' 0 | sha256sum
  EXPECT_EQ(text, "d917aab91a00cef113a620bf0a5978337ff1f670d32aea67bc06b6f3c885c633");
}

TEST(TokenTest, WhatIsNoSecretIsRefusedAndNotRepeated) {
  const std::string digits(64, 'a');
  for (const std::string& wrong :
       {std::string(), std::string("fw_"), digits, "fw_" + digits + "a", "fw-" + digits,
        "fw_" + std::string(64, 'A'), "fw_" + digits.substr(1) + "\n"}) {
    const absl::Status status = HashOfSecret(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(Text(status), Not(HasSubstr("aaaa")));
  }
}

TEST(TokenTest, RolesHaveNames) {
  for (const TokenRole role : kTokenRoles) {
    const auto same = TokenRoleOf(NameOf(role));
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(*same, role);
  }
  EXPECT_THAT(Text(TokenRoleOf("root").status()), HasSubstr("there are admin, operator, user"));
}

TEST(TokenTest, NamesOfTenantsArePlain) {
  EXPECT_TRUE(CheckTenant("team-a.b_C9").ok());
  EXPECT_TRUE(CheckTenant(std::string(64, 'x')).ok());
  for (const std::string& wrong : {std::string(), std::string(65, 'x'), std::string("a b"),
                                   std::string("a/b"), std::string("a\nb"), std::string("ä")})
    EXPECT_FALSE(CheckTenant(wrong).ok()) << wrong;
}

TEST(TokenTest, AFileIsReadIfItsOwnerAloneCan) {
  CertificateFiles files;
  const std::string secret = MakeTokenSecret();
  const std::string path = files.Write("token", secret + "\n");
  auto read = ReadTokenFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, secret);

  ::chmod(path.c_str(), 0640);
  EXPECT_THAT(Text(ReadTokenFile(path).status()),
              HasSubstr("a token that other users can reach (mode 640); chmod 600 it"));
  EXPECT_THAT(Text(ReadTokenFile(path + "no").status()), HasSubstr("cannot be read"));
  EXPECT_THAT(Text(ReadTokenFile(files.Write("large", std::string(10000, 'f'))).status()),
              HasSubstr("it is no token"));
  EXPECT_THAT(Text(ReadTokenFile("/").status()), HasSubstr("cannot be read: Is a directory"));
}

TEST(TokenTest, ADescriptorIsReadByItsPath) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const std::string secret = MakeTokenSecret();
  ASSERT_EQ(::write(ends[1], secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
  ::close(ends[1]);
  const auto read = ReadTokenFile(fmt::format("/dev/fd/{}", ends[0]));
  ::close(ends[0]);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, secret);
}

TEST(TokenTest, ATokenCountsUntilItExpiresIsRevokedOrUsedUp) {
  const sys_seconds now(seconds(1'000'000'000));
  TokenRecord token{.id = 7,
                    .role = TokenRole::kWorker,
                    .tenant = "",
                    .created = now,
                    .expires = now + seconds(10),
                    .uses = 1,
                    .revoked = {}};
  EXPECT_TRUE(CheckToken(token, now).ok());
  EXPECT_TRUE(CheckToken(token, now + seconds(9)).ok());
  const absl::Status late = CheckToken(token, now + seconds(10));
  EXPECT_EQ(late.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Text(late),
            "token 7 expired on 2001-09-09 01:46:50 UTC; ask an admin for another "
            "(`fairway token create`)");
  token.uses = 0;  // whoever used it may ask again for what it got
  EXPECT_TRUE(CheckToken(token, now).ok());
  token.revoked = now;
  EXPECT_THAT(Text(CheckToken(token, now)),
              HasSubstr("token 7 was revoked on 2001-09-09 01:46:40 UTC"));
}

}  // namespace
}  // namespace fairway
