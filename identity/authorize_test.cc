// SPDX-License-Identifier: Apache-2.0
#include "identity/authorize.h"

#include <set>
#include <tuple>

#include <gtest/gtest.h>

namespace fairway {
namespace {

using enum TokenRole;
using enum Verb;

// All that is allowed, written down a second time: of whose objects, by whom.
const std::set<std::tuple<Verb, Whose, TokenRole>> kAllowed = {
    {kSeeStatus, Whose::kNone, kAdmin},
    {kSeeStatus, Whose::kNone, kOperator},
    {kSeeStatus, Whose::kNone, kUser},
    {kSeeStatus, Whose::kNone, kViewer},
    {kReadLogs, Whose::kNone, kAdmin},
    {kReadLogs, Whose::kNone, kOperator},
    {kRestartExecutor, Whose::kNone, kAdmin},
    {kRestartExecutor, Whose::kNone, kOperator},
    {kEndCluster, Whose::kNone, kAdmin},
    {kEndCluster, Whose::kNone, kOperator},
    {kSeeTokens, Whose::kNone, kAdmin},
    {kChangeTokens, Whose::kNone, kAdmin},
    {kOpenSession, Whose::kNone, kUser},
    {kNegotiate, Whose::kNone, kUser},
    {kUseSession, Whose::kOwn, kUser},
    {kReadMetrics, Whose::kNone, kAdmin},
    {kReadMetrics, Whose::kNone, kOperator},
    {kReadMetrics, Whose::kNone, kViewer},
    {kJoin, Whose::kNone, kWorker},
    {kSeeEvents, Whose::kNone, kAdmin},
    {kSeeEvents, Whose::kNone, kOperator},
    {kSeeEvents, Whose::kNone, kUser},
    {kSeeEvents, Whose::kNone, kViewer},
    {kSeeSessions, Whose::kNone, kAdmin},
    {kSeeSessions, Whose::kNone, kOperator},
    {kSeeSessions, Whose::kNone, kUser},
    {kSeeSessions, Whose::kNone, kViewer},
    {kCordonIsland, Whose::kNone, kAdmin},
    {kCordonIsland, Whose::kNone, kOperator},
    {kSeeCertificates, Whose::kNone, kAdmin},
    {kRevokeCertificates, Whose::kNone, kAdmin},
};

TEST(AuthorizeTest, WhatIsNotAllowedIsRefused) {
  for (const Verb verb : kVerbs) {
    for (const Whose whose : {Whose::kNone, Whose::kOwn, Whose::kForeign}) {
      for (const TokenRole role : kTokenRoles) {
        EXPECT_EQ(Authorize(role, verb, whose), kAllowed.contains({verb, whose, role}))
            << NameOf(role) << " may " << Described(verb) << " of " << static_cast<int>(whose);
      }
    }
  }
}

TEST(AuthorizeTest, NobodyMayTouchWhatIsOfAnotherTenant) {
  for (const Verb verb : kVerbs) {
    for (const TokenRole role : kTokenRoles) EXPECT_FALSE(Authorize(role, verb, Whose::kForeign));
  }
}

TEST(AuthorizeTest, WhoHasATenantSeesNoOther) {
  for (const TokenRole role : kTokenRoles)
    EXPECT_EQ(SeesAllTenants(role), role == kAdmin || role == kOperator || role == kViewer);
}

TEST(AuthorizeTest, MessagesNameTheRoles) {
  EXPECT_EQ(RolesFor(kReadLogs), "admin or operator");
  EXPECT_EQ(RolesFor(kUseSession), "user");
  for (const Verb verb : kVerbs) {
    EXPECT_FALSE(RolesFor(verb).empty());
    EXPECT_FALSE(Described(verb).empty());
  }
}

TEST(AuthorizeTest, AMethodWithoutARuleHasNoVerb) {
  EXPECT_EQ(VerbOf("fairway.v1.Admin.GetStatus"), kSeeStatus);
  EXPECT_EQ(VerbOf("fairway.v1.Admin.NewAndForgotten"), std::nullopt);
}

}  // namespace
}  // namespace fairway
