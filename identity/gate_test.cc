// SPDX-License-Identifier: Apache-2.0
#include "identity/gate.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/database.h"

namespace fairway {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    directory_ = made;
    Open();
  }
  ~GateTest() override {
    gate_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  absl::Status Use(int64_t id) {
    return gate_->Use(id, [&] {
      const std::lock_guard lock(gate_->database()->mutex());
      return UseToken(gate_->database()->handle(), id);
    });
  }
  void Open() {
    gate_.reset();
    gate_ = Gate::Open(directory_, [this] { return now_; }).value();
  }
  TokenStore::Made Make(TokenRole role, const std::string& tenant = "") {
    return gate_->Create({.role = role, .tenant = tenant, .lifetime = hours(24)}).value();
  }
  Verdict Ask(const std::string& authorization, Verb verb, Whose whose = Whose::kNone) {
    return gate_->Judge(
        {.verb = verb, .whose = whose, .authorization = authorization, .host = "10.0.0.1"});
  }

  std::string directory_;
  WrongTokens::Time now_{seconds(1'800'000'000)};
  std::unique_ptr<Gate> gate_;
};

class Call final : public OpenCall {
 public:
  void TokenEnded(const absl::Status& why) override { ended_.push_back(why); }
  std::vector<absl::Status> ended_;
};

TEST_F(GateTest, ATokenSaysWhoCalls) {
  const auto made = Make(TokenRole::kUser, "red");
  const Verdict verdict = Ask("Bearer " + made.secret, Verb::kOpenSession);
  ASSERT_TRUE(verdict.status.ok()) << verdict.status;
  EXPECT_EQ(verdict.caller.token, made.kept.record.id);
  EXPECT_EQ(verdict.caller.role, TokenRole::kUser);
  EXPECT_EQ(verdict.caller.tenant, "red");

  Open();  // the next process
  EXPECT_TRUE(Ask("Bearer " + made.secret, Verb::kOpenSession).status.ok());
}

TEST_F(GateTest, WithoutATokenNothingIsDone) {
  const absl::Status said = Ask("", Verb::kSeeStatus).status;
  EXPECT_EQ(said.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Text(said), HasSubstr("cannot see the cluster's status without a token: an admin "
                                    "makes one (`fairway token create`)"));
  EXPECT_THAT(Text(said), HasSubstr("--token-file, FAIRWAY_TOKEN_FILE, token_file"));
}

TEST_F(GateTest, AWrongTokenIsRefusedWithoutBeingRepeatedAndTheEleventhWaits) {
  const std::string right = "Bearer " + Make(TokenRole::kAdmin).secret;
  std::string wrong = right;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (int i = 0; i < 12; ++i) {
    const std::string& text = i % 2 == 0 ? wrong : std::string("Basic abc");
    const Verdict said = Ask(text, Verb::kSeeStatus);
    EXPECT_EQ(said.status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(Text(said.status), HasSubstr("this cluster does not know the token"));
    EXPECT_THAT(Text(said.status), Not(HasSubstr("fw_")));
    EXPECT_EQ(said.delay, i < 10 ? milliseconds(0) : milliseconds(2000));
  }
  // The right one of the same address does not wait.
  const Verdict said = Ask(right, Verb::kSeeStatus);
  EXPECT_TRUE(said.status.ok());
  EXPECT_EQ(said.delay, milliseconds(0));
}

TEST_F(GateTest, ARoleThatMayNotDoItIsToldWhichMay) {
  const Verdict said =
      Ask("Bearer " + Make(TokenRole::kUser, "red").secret, Verb::kRestartExecutor);
  EXPECT_EQ(said.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(said.status),
              HasSubstr("token 1 (role user of tenant red) may not restart an executor; that takes "
                        "the role admin or operator: an admin makes one"));
  EXPECT_EQ(said.delay, milliseconds(0));
}

TEST_F(GateTest, AnExpiredTokenIsRefused) {
  const std::string header = "Bearer " + Make(TokenRole::kAdmin).secret;
  now_ += hours(24) - milliseconds(1);
  EXPECT_TRUE(Ask(header, Verb::kSeeTokens).status.ok());
  now_ += milliseconds(1);
  const absl::Status said = Ask(header, Verb::kSeeTokens).status;
  EXPECT_EQ(said.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Text(said), HasSubstr("cannot list tokens: token 1 expired on 2027-01-16 08:00:00"));
}

TEST_F(GateTest, ARevokedTokenCountsNoLongerAlsoInTheNextProcess) {
  const auto made = Make(TokenRole::kViewer);
  ASSERT_TRUE(gate_->Revoke(made.kept.record.id).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status said = Ask("Bearer " + made.secret, Verb::kSeeStatus).status;
    EXPECT_EQ(said.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(Text(said), HasSubstr("token 1 was revoked on 2027-01-15 08:00:00 UTC"));
    Open();
  }
  EXPECT_EQ(gate_->Revoke(99).code(), absl::StatusCode::kNotFound);
}

// What it asked for may have waited for the disk meanwhile.
TEST_F(GateTest, WhatWaitedWhileItsTokenWasRevokedIsNotDone) {
  const auto admin = Make(TokenRole::kAdmin);
  const auto worker =
      gate_->Create({.role = TokenRole::kWorker, .worker = "w7", .lifetime = hours(1), .uses = 1});
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_TRUE(gate_->Check(admin.kept.record.id).ok());
  ASSERT_TRUE(gate_->Revoke(worker->kept.record.id).ok());
  ASSERT_TRUE(gate_->Revoke(admin.kept.record.id).ok());
  EXPECT_EQ(gate_->Check(admin.kept.record.id).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(gate_->Check(99).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Use(worker->kept.record.id).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(GateTest, RevokingEndsTheOpenCallsOfThatTokenOnce) {
  const int64_t red = Make(TokenRole::kUser, "red").kept.record.id;
  const int64_t blue = Make(TokenRole::kUser, "blue").kept.record.id;
  const auto first = std::make_shared<Call>(), second = std::make_shared<Call>();
  const auto forgotten = std::make_shared<Call>(), other = std::make_shared<Call>();
  auto gone = std::make_shared<Call>();
  for (const auto& call : {first, second, forgotten, gone})
    ASSERT_TRUE(gate_->Keep(red, call).ok());
  ASSERT_TRUE(gate_->Keep(blue, other).ok());
  gate_->Forget(red, forgotten.get());
  gone.reset();
  ASSERT_TRUE(gate_->Revoke(red).ok());
  ASSERT_TRUE(gate_->Revoke(red).ok());
  gate_->EndExpired();
  for (const auto& call : {first, second}) {
    ASSERT_EQ(call->ended_.size(), 1u);
    EXPECT_EQ(call->ended_[0].code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(Text(call->ended_[0]), HasSubstr("token 1 was revoked"));
  }
  EXPECT_TRUE(forgotten->ended_.empty());
  EXPECT_TRUE(other->ended_.empty());
  // A call that may go on just before is refused.
  EXPECT_EQ(gate_->Keep(red, first).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(GateTest, OpenCallsEndWhenTheirTokensExpire) {
  const int64_t id = Make(TokenRole::kUser, "red").kept.record.id;
  const auto call = std::make_shared<Call>();
  ASSERT_TRUE(gate_->Keep(id, call).ok());
  gate_->EndExpired();
  EXPECT_TRUE(call->ended_.empty());
  now_ += hours(24);
  gate_->EndExpired();
  ASSERT_EQ(call->ended_.size(), 1u);
  EXPECT_THAT(Text(call->ended_[0]), HasSubstr("token 1 expired"));
}

TEST_F(GateTest, TokensAreListedUntilTheyAreForgotten) {
  const auto made = Make(TokenRole::kUser, "red");
  Make(TokenRole::kAdmin);
  ASSERT_TRUE(gate_->Revoke(1).ok());
  ASSERT_EQ(gate_->List(0, 100).size(), 2u);
  EXPECT_EQ(gate_->List(0, 100)[0].tenant, "red");
  ASSERT_EQ(gate_->List(0, 1).size(), 1u);
  ASSERT_EQ(gate_->List(1, 100).size(), 1u);
  EXPECT_EQ(gate_->List(1, 100)[0].id, 2);
  EXPECT_NE(gate_->List(0, 100)[0].revoked, std::chrono::sys_seconds());
  now_ += hours(24) * 40;
  Make(TokenRole::kAdmin);
  ASSERT_EQ(gate_->List(0, 100).size(), 1u);
  EXPECT_EQ(gate_->List(0, 100)[0].id, 3);
  EXPECT_THAT(Text(Ask("Bearer " + made.secret, Verb::kSeeStatus).status),
              HasSubstr("does not know the token"));
}

TEST_F(GateTest, AWorkersTokenIsUsedUpAlsoInTheNextProcess) {
  const auto made =
      gate_->Create({.role = TokenRole::kWorker, .worker = "w7", .lifetime = hours(1), .uses = 1});
  ASSERT_TRUE(made.ok()) << made.status();
  const Verdict first = Ask("Bearer " + made->secret, Verb::kJoin);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.caller.worker, "w7");
  ASSERT_TRUE(Use(first.caller.token).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status again = Use(first.caller.token);
    EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Text(again), HasSubstr("was used as often as it may be"));
    EXPECT_TRUE(Ask("Bearer " + made->secret, Verb::kJoin).status.ok());  // the issuer refuses
    Open();
  }
}

TEST_F(GateTest, RefusalsUsesAndAdminsVerbsAreWrittenDownWithoutSecrets) {
  const auto made = Make(TokenRole::kUser, "red");
  Ask("", Verb::kSeeStatus);
  Ask("Bearer fw_" + std::string(64, '0'), Verb::kSeeStatus);
  const Caller caller = Ask("Bearer " + made.secret, Verb::kOpenSession).caller;
  Ask("Bearer " + made.secret, Verb::kUseSession, Whose::kOwn);  // goes with the session
  Ask("Bearer " + made.secret, Verb::kEndCluster);
  gate_->Record(caller, Verb::kRestartExecutor, "w0", absl::OkStatus());
  gate_.reset();
  std::string all;
  const auto lines = [&](const std::string& file) {
    std::ifstream in(directory_ + "/audit/" + file);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line); all += line) out.push_back(line);
    return out;
  };
  const auto refused = lines("refused.log");
  ASSERT_EQ(refused.size(), 3u);
  EXPECT_THAT(refused[0], HasSubstr("without a token"));
  EXPECT_THAT(refused[1], HasSubstr("does not know the token"));
  EXPECT_THAT(refused[2], HasSubstr(R"("verb":"end the cluster","host":"10.0.0.1","token":1,)"
                                    R"("role":"user","tenant":"red","code":"PERMISSION_DENIED")"));
  const auto used = lines("used.log");
  ASSERT_EQ(used.size(), 1u);
  EXPECT_THAT(used[0], HasSubstr(R"("verb":"open a session","host":"10.0.0.1","token":1)"));
  const auto admin = lines("admin.log");
  ASSERT_EQ(admin.size(), 1u);
  EXPECT_THAT(admin[0], HasSubstr(R"("object":"w0")"));
  EXPECT_THAT(all, Not(HasSubstr("fw_")));
  Open();
}

}  // namespace
}  // namespace fairway
