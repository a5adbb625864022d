// SPDX-License-Identifier: Apache-2.0
// IslandLinks with relays.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/daemon/held_link_for_test.h"
#include "controller/daemon/island_links.h"
#include "log/codec.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Executors 1 to 4 with relays on all hosts and a fan-out of 2: 1 and 2 are below the relay of host
// 1, 3 and 4 below that of host 3.
class RelayedLinksTest : public ::testing::Test {
 protected:
  RelayedLinksTest() {
    for (uint32_t id = 1; id <= 4; ++id) {
      links_.Join(ExecutorId(id), &direct_[id], Incarnation(100 + id), fmt::format("w{}", id));
      RelayUp(id);
    }
    Tick(milliseconds(0));
  }
  ~RelayedLinksTest() override { EXPECT_EQ(links_.CheckInvariants(), absl::OkStatus()); }
  void RelayUp(uint32_t id) {
    links_.RelayUp(ExecutorId(id), &to_host_[id], Incarnation(200 + id), fmt::format("h{}", id),
                   fmt::format("w{}", id));
  }
  void Send() { links_.Send(now_, sent_); }
  // As a controller does that runs.
  void Tick(milliseconds passed) {
    milliseconds step(100);
    do {
      step = std::min(step, passed);
      now_ += step;
      passed -= step;
      links_.SendAll(now_, sent_);
    } while (passed.count() > 0);
  }
  void Append(uint32_t id, std::string body) {
    ASSERT_TRUE(links_.Append(ExecutorId(id), {std::move(body), {}}, false).ok());
    Send();
  }
  // Who was told which parent, "executor: endpoint", since the last call.
  std::vector<std::string> Parents() {
    std::vector<std::string> out;
    for (const auto& [id, parent] : links_.TakeParents()) {
      out.push_back(fmt::format("{}: {}", id, parent.endpoint()));
      version_ = parent.version();
      EXPECT_EQ(parent.children(), parent.endpoint().empty() ? 0 : 2);
    }
    return out;
  }
  absl::Status FromRelay(uint32_t host, const LogReport& report, uint64_t answers = 0) {
    Frame frame;
    frame.payload = EncodeLogReport(report);
    frame.id = answers;
    return links_.TakeFromRelay(ExecutorId(host), frame, now_);
  }
  absl::Status Ask(uint32_t id, uint64_t version, LogNumber applied) {
    v1::LogAsk ask;
    ask.set_version(version);
    ask.set_applied(applied);
    return links_.Ask(ExecutorId(id), ask);
  }
  v1::RelayTrouble Trouble(uint64_t incarnation) {
    v1::RelayTrouble trouble;
    trouble.set_version(version_);
    trouble.set_incarnation(incarnation);
    return trouble;
  }
  // For this time the relays of hosts 1 and 3 answer after so long. `own`: how late the controller
  // asks.
  void Pass(milliseconds time, milliseconds first, milliseconds third, milliseconds own = {}) {
    to_host_[1].written = to_host_[3].written = true;
    for (; time.count() > 0; time -= milliseconds(100)) {
      exact_ = now_;
      links_.AskRelays(own, sent_);
      for (const auto& [after, host] : std::set{std::pair(first, 1u), std::pair(third, 3u)}) {
        exact_ = now_ + after;
        const auto answer = std::exchange(to_host_[host].last_id, 0);
        ASSERT_TRUE(FromRelay(host, {version_, 0, {}}, answer).ok());
      }
      Tick(milliseconds(100));
    }
  }
  // The bodies of the entries that wait on a link.
  static std::vector<std::string> Bodies(HeldLink& link) {
    std::vector<std::string> out;
    for (const std::string& bytes : std::exchange(link.held, {})) {
      const auto frame = DecodeLogFrame(bytes);
      if (!frame.ok()) continue;  // a task
      for (const auto& entry : frame->entries) out.emplace_back(entry.body);
    }
    return out;
  }

  int secrets_ = 0;
  IslandLinks links_{{.version_pause = milliseconds(50),
                      .fanout = 2,
                      .relay_bytes = 1000,
                      .controller = Incarnation(77),
                      .secret = [this] { return fmt::format("secret {}", ++secrets_); },
                      .exact = [this] { return exact_; }}};
  IslandLinks::Clock::time_point now_{std::chrono::hours(1)};
  IslandLinks::Clock::time_point exact_;
  LinkTraffic sent_;
  std::map<uint32_t, HeldLink> direct_, to_host_;
  uint64_t version_ = 0;
};

TEST_F(RelayedLinksTest, EntriesGoToTheRelayAboveTheirExecutor) {
  EXPECT_THAT(Parents(), ElementsAre("1: h1", "2: h1", "3: h3", "4: h3"));
  EXPECT_EQ(links_.relays(), 2u);
  EXPECT_EQ(links_.depth(), 2);
  Append(2, "a");
  Append(3, "b");
  EXPECT_THAT(Bodies(to_host_[1]), ElementsAre("a"));
  EXPECT_THAT(Bodies(to_host_[3]), ElementsAre("b"));
  EXPECT_THAT(Bodies(direct_[2]), IsEmpty());
  EXPECT_TRUE(FromRelay(1, {version_, 1, {{1, 1}}}).ok());
  EXPECT_EQ(links_.open(), 1u);
  EXPECT_FALSE(FromRelay(1, {version_, 1, {{2, 2}}}).ok());  // not below it
  EXPECT_FALSE(FromRelay(2, {version_, 0, {}}).ok());        // no relay in this version
}

TEST_F(RelayedLinksTest, ALostRelayIsReplacedAndItsChildrenGoOnFromWhatTheyHave) {
  Parents();
  Append(1, "a");
  Bodies(to_host_[1]);
  links_.RelayDown(ExecutorId(1));
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: h2", "2: h2", "3: h3", "4: h3"));
  EXPECT_THAT(Bodies(to_host_[2]), ElementsAre("a"));
  for (const uint32_t host : {2, 3, 4}) links_.RelayDown(ExecutorId(host));
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: ", "2: ", "3: ", "4: "));
  EXPECT_THAT(Bodies(direct_[1]), IsEmpty());  // not before it asks
  EXPECT_TRUE(Ask(1, version_ - 1, 0).ok());
  Send();
  EXPECT_THAT(Bodies(direct_[1]), IsEmpty());  // that was an older version
  EXPECT_TRUE(Ask(1, version_, 0).ok());
  Send();
  EXPECT_THAT(Bodies(direct_[1]), ElementsAre("a"));
  EXPECT_FALSE(links_.Take(ExecutorId(2), EncodeLogReport({version_, 0, {}})).ok());
  EXPECT_TRUE(links_.Take(ExecutorId(2), EncodeLogReport({version_ - 1, 0, {}})).ok());
}

TEST_F(RelayedLinksTest, ASilentRelayAndAChildInTroubleGetAnotherPlaceForAWhile) {
  Parents();
  Tick(milliseconds(900));
  EXPECT_TRUE(FromRelay(3, {version_, 0, {}}).ok());
  Tick(milliseconds(200));
  EXPECT_THAT(Parents(), ElementsAre("1: h2", "2: h2", "3: h3", "4: h3"));
  EXPECT_EQ(links_.troubles(), 1u);
  links_.TakeTrouble(ExecutorId(2), Trouble(104), now_);
  links_.TakeTrouble(ExecutorId(4), Trouble(104), now_);
  EXPECT_FALSE(links_.wants_send()) << "it is no child of theirs";
  links_.TakeTrouble(ExecutorId(3), Trouble(104), now_);
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: h2", "2: h2", "3: ", "4: "));  // 3 alone needs no relay
  EXPECT_EQ(links_.troubles(), 2u);
  v1::RelayTrouble old = Trouble(101);
  old.set_version(version_ - 1);
  links_.TakeTrouble(ExecutorId(2), old, now_);
  EXPECT_FALSE(links_.wants_send());
}

TEST_F(RelayedLinksTest, MuchForARelayThatTakesItIsNoTrouble) {
  Parents();
  const auto pass = [&](milliseconds time, LogNumber applied) {
    for (; time.count() > 0; time -= milliseconds(100)) {
      Tick(milliseconds(100));
      ASSERT_TRUE(FromRelay(1, {version_, applied, {}}).ok());
      ASSERT_TRUE(FromRelay(3, {version_, 0, {}}).ok());
    }
  };
  Append(1, std::string(5000, 'a'));
  pass(milliseconds(3000), 0);
  EXPECT_EQ(links_.troubles(), 0u) << "one entry alone";
  for (int i = 0; i < 4; ++i) Append(1, std::string(1000, 'a'));
  for (LogNumber n = 1; n <= 5; ++n) pass(milliseconds(800), n);
  EXPECT_EQ(links_.troubles(), 0u) << "it takes one after the other";
  for (int i = 0; i < 3; ++i) Append(1, std::string(1000, 'a'));
  pass(milliseconds(1000), 5);
  EXPECT_EQ(links_.troubles(), 0u);
  Tick(milliseconds(100));
  EXPECT_EQ(links_.troubles(), 1u);
  EXPECT_THAT(Parents(), ElementsAre("1: h2", "2: h2", "3: h3", "4: h3"));
}

TEST_F(RelayedLinksTest, TroubleEndsByItself) {
  Parents();
  links_.TakeTrouble(ExecutorId(3), Trouble(104), now_);
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: h1", "2: h1", "3: ", "4: "));
  const auto pass = [&](int seconds) {
    for (int i = 0; i < 10 * seconds; ++i) {
      Tick(milliseconds(100));
      ASSERT_TRUE(FromRelay(1, {version_, 0, {}}).ok());
    }
  };
  pass(59);
  EXPECT_THAT(Parents(), IsEmpty());
  Tick(milliseconds(1000));
  EXPECT_THAT(Parents(), ElementsAre("1: h1", "2: h1", "3: h3", "4: h3"));
}

TEST_F(RelayedLinksTest, ARelayThatIsOfNoUseNowCostsNobodyAVersion) {
  Parents();
  links_.RelayDown(ExecutorId(2));
  Send();
  EXPECT_THAT(Parents(), IsEmpty());
  RelayUp(2);
  Send();
  EXPECT_THAT(Parents(), IsEmpty());
  EXPECT_FALSE(links_.wants_send());
  links_.RelayDown(ExecutorId(1));
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: h2", "2: h2", "3: h3", "4: h3"));
  RelayUp(1);  // executors go to the host of the first of them
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: h1", "2: h1", "3: h3", "4: h3"));
}

TEST_F(RelayedLinksTest, AControllerThatDidNotRunDoesNotJudgeRelaysForThat) {
  Parents();
  Tick(milliseconds(100));
  now_ += milliseconds(5000);
  links_.SendAll(now_, sent_);
  EXPECT_EQ(links_.troubles(), 0u);
  Tick(milliseconds(1000));
  EXPECT_EQ(links_.troubles(), 0u);
  Tick(milliseconds(100));
  EXPECT_EQ(links_.troubles(), 2u);
}

TEST_F(RelayedLinksTest, ARelayThatIsLateAgainAndAgainIsReplaced) {
  Parents();
  Pass(milliseconds(1900), milliseconds(45), milliseconds(1));
  EXPECT_EQ(links_.troubles(), 0u);
  Pass(milliseconds(100), milliseconds(45), milliseconds(1));
  EXPECT_EQ(links_.troubles(), 1u);
  EXPECT_THAT(Parents(), ElementsAre("1: h2", "2: h2", "3: h3", "4: h3"));
}

TEST_F(RelayedLinksTest, RelaysThatAreEquallyLateOrWhoseControllerIsLateAreKept) {
  Parents();
  Pass(milliseconds(9000), milliseconds(45), milliseconds(60));
  now_ += milliseconds(600);  // what was measured before is forgotten
  Pass(milliseconds(9000), milliseconds(45), milliseconds(1), milliseconds(40));
  for (int i = 0; i < 3; ++i) {
    now_ += milliseconds(600);  // the controller did not run
    Pass(milliseconds(2000), milliseconds(45), milliseconds(1));
  }
  EXPECT_EQ(links_.troubles(), 0u);
  Pass(milliseconds(100), milliseconds(45), milliseconds(1));
  EXPECT_EQ(links_.troubles(), 1u);
}

TEST_F(RelayedLinksTest, ALowerRelayHasItsWorkersNameAlsoIfItsExecutorIsAway) {
  for (uint32_t id = 5; id <= 8; ++id)
    links_.Join(ExecutorId(id), &direct_[id], Incarnation(100 + id), fmt::format("w{}", id));
  for (uint32_t id = 1; id <= 4; ++id) links_.RelayDown(ExecutorId(id));
  for (uint32_t id = 11; id <= 18; ++id) RelayUp(id);  // their executors are starting again
  for (auto& [id, link] : to_host_) link.held.clear();
  Send();
  EXPECT_EQ(links_.depth(), 3);
  std::map<uint64_t, std::string> workers;  // of lower relays
  for (auto& [id, link] : to_host_) {
    for (const std::string& bytes : link.held) {
      v1::FromController message;
      Frame frame;
      frame.type = kControlFrame;
      frame.payload = bytes;
      if (!UnpackFrame(frame, &message).ok()) continue;
      for (const auto& child : message.relay_task().children()) {
        if (child.relay()) workers[child.incarnation()] = child.worker();
      }
    }
  }
  ASSERT_FALSE(workers.empty());
  for (const auto& [incarnation, worker] : workers)
    EXPECT_EQ(worker, fmt::format("w{}", incarnation - 200));
}

TEST_F(RelayedLinksTest, WhoBelowARelayIsBehindIsKnown) {
  const auto still = [&](uint32_t id) { return links_.Health(ExecutorId(id), now_).still; };
  Append(1, "aa");
  Append(1, "b");
  Append(4, "c");
  Tick(milliseconds(0));
  const auto open = [&](uint32_t id) {
    const LinkHealth health = links_.Health(ExecutorId(id), now_);
    return std::pair(health.open_entries, health.open_bytes);
  };
  EXPECT_EQ(open(1), std::pair(2ul, 3ul));
  EXPECT_EQ(open(2), std::pair(0ul, 0ul));
  EXPECT_EQ(open(4), std::pair(1ul, 1ul));
  Parents();
  ASSERT_TRUE(FromRelay(1, {version_, 2, {{1, 1}}}).ok());
  EXPECT_EQ(open(1), std::pair(1ul, 1ul));
  now_ += milliseconds(300);
  links_.SendAll(now_, sent_);  // 1 has taken one more
  now_ += milliseconds(100);
  EXPECT_EQ(still(1), milliseconds(100));
  EXPECT_EQ(still(4), milliseconds(400));
  EXPECT_EQ(still(2), milliseconds(0));
  ASSERT_TRUE(FromRelay(1, {version_, 2, {{1, 2}}}).ok());
  EXPECT_EQ(still(1), milliseconds(0));
  EXPECT_EQ(links_.moves(), 0u);
  links_.RelayDown(ExecutorId(1));
  Send();
  EXPECT_EQ(links_.moves(), 2u);
}

TEST_F(RelayedLinksTest, ARelayKnowsByWhatItsChildrenProveThemselves) {
  std::map<uint32_t, std::string> secrets;
  for (const auto& [id, parent] : links_.TakeParents()) secrets[id.value] = parent.secret();
  ASSERT_EQ(secrets.size(), 4u);
  EXPECT_NE(secrets[1], secrets[2]);
  v1::FromController message;
  Frame frame;
  frame.type = kControlFrame;
  frame.payload = to_host_[1].held.front();
  ASSERT_TRUE(UnpackFrame(frame, &message).ok());
  const v1::RelayTask& task = message.relay_task();
  ASSERT_EQ(task.children_size(), 2);
  EXPECT_EQ(task.children(0).secret(), secrets[1]);
  EXPECT_EQ(task.children(0).worker(), "w1");
  EXPECT_EQ(task.children(1).secret(), secrets[2]);
  EXPECT_NE(task.secret(), "") << "what it says itself to a relay above it";
  EXPECT_EQ(task.controller_incarnation(), 77u);
}

TEST_F(RelayedLinksTest, AnExecutorThatLacksConcludedEntriesDoesNotGoOn) {
  Parents();
  Append(1, "a");
  ASSERT_TRUE(FromRelay(1, {version_, 1, {{1, 1}}}).ok());
  links_.Cut(ExecutorId(1));
  // Its relay may have sent it entries since it said so.
  EXPECT_TRUE(links_.Resume(ExecutorId(1), &direct_[1], version_, 0).ok());
  EXPECT_FALSE(links_.Resume(ExecutorId(1), &direct_[1], version_, 2).ok());
  for (const uint32_t host : {1, 2, 3, 4}) links_.RelayDown(ExecutorId(host));
  Send();
  Parents();
  EXPECT_EQ(Ask(1, version_, 0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Ask(1, version_, 1).ok());
}

// Its successor waits for the version that has it; the present one still has the executor that
// left.
TEST_F(RelayedLinksTest, AnExecutorThatRegisteredAnewDoesNotLackWhatIsConcludedForTheOneBefore) {
  Parents();
  Append(1, "a");
  ASSERT_TRUE(FromRelay(1, {version_, 1, {{1, 1}}}).ok());
  links_.Leave(ExecutorId(1));
  links_.Join(ExecutorId(1), &direct_[1], Incarnation(105), "w1");
  links_.Cut(ExecutorId(1));
  EXPECT_EQ(links_.Resume(ExecutorId(1), &direct_[1], 0, 0), absl::OkStatus());
  Send();
  EXPECT_THAT(Parents(), ElementsAre("1: h1", "2: h1", "3: h3", "4: h3"));
}

}  // namespace
}  // namespace fairway
