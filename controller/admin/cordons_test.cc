// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/cordons.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "controller/admin/service_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AdminCordonsTest : public AdminServiceTest {
 protected:
  using Stub = v1::Admin::Stub;

  grpc::Status Cordon(const std::string& token, const std::string& island, bool* changed) {
    v1::CordonIslandRequest request;
    request.set_island(island);
    v1::CordonIslandResponse response;
    const grpc::Status status = Call(&Stub::CordonIsland, token, request, &response);
    *changed = response.changed();
    return status;
  }
  v1::DrainIslandResponse Drain(const std::string& token, const std::string& island) {
    v1::DrainIslandRequest request;
    request.set_island(island);
    v1::DrainIslandResponse response;
    const grpc::Status status = Call(&Stub::DrainIsland, token, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // What admins and operators did, once there are so many lines.
  std::string Audit(int lines) const {
    for (;;) {
      std::ifstream file(directory_ + "/audit/admin.log");
      std::stringstream text;
      text << file.rdbuf();
      if (std::ranges::count(text.str(), '\n') >= lines) return text.str();
      std::this_thread::yield();
    }
  }
};

TEST_F(AdminCordonsTest, OperatorsCordonAndTheAuditLogHasWhatChanged) {
  Start();
  Serve();
  const std::string op = TokenOf(TokenRole::kOperator);
  bool changed = false;
  EXPECT_TRUE(Cordon(op, "ia", &changed).ok());
  EXPECT_TRUE(changed);
  EXPECT_TRUE(Cordon(op, "ia", &changed).ok());
  EXPECT_FALSE(changed);
  const grpc::Status unknown = Cordon(op, "ix", &changed);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "there is no island 'ix' (there are ia, ib)");
  for (const TokenRole role : {TokenRole::kViewer, TokenRole::kUser}) {
    const std::string token = TokenOf(role, role == TokenRole::kUser ? "red" : "");
    EXPECT_EQ(Cordon(token, "ib", &changed).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  v1::UncordonIslandRequest request;
  request.set_island("ia");
  v1::UncordonIslandResponse response;
  EXPECT_TRUE(Call(&Stub::UncordonIsland, op, request, &response).ok());
  EXPECT_TRUE(response.changed());
  const std::string audit = Audit(3);
  EXPECT_THAT(audit, HasSubstr(R"("verb":"cordon or drain an island")"));
  EXPECT_THAT(audit, HasSubstr(R"("object":"cordon island ia","code":"OK")"));
  EXPECT_THAT(audit, HasSubstr(R"("object":"cordon island ix","code":"NOT_FOUND")"));
  EXPECT_THAT(audit, HasSubstr(R"("object":"uncordon island ia")"));
  EXPECT_EQ(std::ranges::count(audit, '\n'), 3);
}

TEST_F(AdminCordonsTest, ADrainTellsOperatorsWhoHoldsTheIslandAndSaysWhenItIsDrained) {
  Start();
  session = actions.Open(cluster, "r\xff");
  PutReady(1, 0);
  Serve();
  const std::string op = TokenOf(TokenRole::kOperator);
  v1::DrainIslandResponse progress = Drain(op, "ia");
  EXPECT_TRUE(progress.cordoned());
  EXPECT_FALSE(progress.drained());
  EXPECT_EQ(progress.watching(), 1u);
  ASSERT_EQ(progress.holders_size(), 1);
  EXPECT_EQ(progress.holders(0).tenant(), "r?");
  EXPECT_EQ(progress.holders(0).arrays(), 1u);
  EXPECT_EQ(progress.holders(0).bytes(), 64);
  EXPECT_FALSE(Drain(op, "ia").cordoned());
  EXPECT_TRUE(Drain(op, "ib").drained());
  const std::string audit = Audit(3);
  EXPECT_THAT(audit, HasSubstr(R"("object":"drain island ia")"));
  EXPECT_THAT(audit, HasSubstr(R"("object":"drain island ib")"));
  EXPECT_THAT(audit, HasSubstr(R"("object":"close drained island ib")"));
  EXPECT_EQ(std::ranges::count(audit, '\n'), 3);
}

TEST_F(AdminCordonsTest, WhatChangesIsAnEventThatAllSee) {
  Start();
  events_.Add(SessionEvent(7, "red", "SessionOpened", "of red"), Event::Time());
  events_.Add(SessionEvent(8, "blue", "SessionOpened", "of blue"), Event::Time());
  events_.Add({.kind = EventKind::kRefusals, .reason = "R", .object = "host", .text = "\xff"},
              Event::Time());
  Serve();
  const std::string op = TokenOf(TokenRole::kOperator);
  bool changed = false;
  EXPECT_TRUE(Cordon(op, "ia", &changed).ok());
  EXPECT_TRUE(Cordon(op, "ia", &changed).ok());
  EXPECT_TRUE(Drain(op, "ia").drained());
  EXPECT_TRUE(Drain(op, "ia").drained());
  const auto seen = [&](const std::string& token, uint64_t session = 0, uint64_t after = 0) {
    v1::ListRequest request;
    request.set_session(session);
    request.mutable_after()->set_id(after);
    v1::ListEventsResponse response;
    EXPECT_TRUE(Call(&Stub::ListEvents, token, request, &response).ok());
    EXPECT_FALSE(response.has_next());
    Lines lines;
    for (const v1::ListedEvent& event : response.events())
      lines.push_back(fmt::format("{}: {} {}", event.object(), event.text(), event.count()));
    return lines;
  };
  const std::string cordoned =
      fmt::format("island ia: it takes no new sessions: cordoned by token {} (operator) 1", 1);
  const std::string drained =
      fmt::format("island ia: nobody has anything there: drained by token {} (operator) 1", 1);
  EXPECT_THAT(seen(op), ElementsAre("session 7: of red 1", "session 8: of blue 1", "host: ? 1",
                                    cordoned, drained));
  EXPECT_THAT(seen(TokenOf(TokenRole::kUser, "red")),
              ElementsAre("session 7: of red 1", cordoned, drained));
  EXPECT_THAT(seen(op, 8), ElementsAre("session 8: of blue 1"));
  EXPECT_THAT(seen(op, 0, 4), ElementsAre(drained));
}

}  // namespace
}  // namespace fairway
