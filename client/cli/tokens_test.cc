// SPDX-License-Identifier: Apache-2.0
#include "client/cli/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::seconds;
using std::chrono::sys_seconds;

TEST(TokensTest, LifetimesHaveAUnit) {
  EXPECT_EQ(*ParseLifetime("10s"), seconds(10));
  EXPECT_EQ(*ParseLifetime("45m"), seconds(45 * 60));
  EXPECT_EQ(*ParseLifetime("12h"), seconds(12 * 3600));
  EXPECT_EQ(*ParseLifetime("30d"), seconds(30 * 86400));
  EXPECT_EQ(*ParseLifetime("36500d"), seconds(int64_t{36500} * 86400));
  for (const char* const wrong : {"", "d", "30", "30 d", "30dd", "0d", "-1d", "1.5d", "36501d",
                                  "1w", "9223372036854775807d", "99999999999999999999s"}) {
    const absl::Status status = ParseLifetime(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(Text(status), ::testing::HasSubstr("is no time such as 10s, 45m, 12h or 30d"));
  }
}

TEST(TokensTest, AListSaysWhetherATokenCounts) {
  const sys_seconds now(seconds(1'800'000'000));
  v1::ListTokensResponse tokens;
  const auto add = [&](const char* role, const char* tenant, int64_t left_s, int64_t uses) {
    v1::Token* const token = tokens.add_tokens();
    token->set_id(tokens.tokens_size());
    token->set_role(role);
    token->set_tenant(tenant);
    token->set_expires_s(1'800'000'000 + left_s);
    token->set_uses(uses);
    return token;
  };
  add("admin", "", 60, -1);
  add("user", "research-team", 60, -1)->set_revoked_s(1'799'999'999);
  add("viewer", "", 0, -1);
  add("worker", "", 60, 1);
  add("worker", "", 60, 0);
  EXPECT_EQ(TokensText(tokens, now),
            "    ID  ROLE      TENANT         EXPIRES                  STATE\n"
            "     1  admin     -              2027-01-15 08:01:00 UTC  counts\n"
            "     2  user      research-team  2027-01-15 08:01:00 UTC  revoked 2027-01-15 07:59:59 "
            "UTC\n"
            "     3  viewer    -              2027-01-15 08:00:00 UTC  expired\n"
            "     4  worker    -              2027-01-15 08:01:00 UTC  counts, 1 uses left\n"
            "     5  worker    -              2027-01-15 08:01:00 UTC  used up\n");
}

}  // namespace
}  // namespace fairway
