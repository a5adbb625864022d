// SPDX-License-Identifier: Apache-2.0
// Relays that register (docs/design/0066-relays.md).
#include <gmock/gmock.h>

#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

// Three executors where a parent has two children.
class RelayHubTest : public WorkerHubTest {
 protected:
  RelayHubTest() {
    options_.links.fanout = 2;
    options_.links.secret = [this] { return fmt::format("secret {}", ++secrets_); };
    hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [this] { return now_; });
    for (int i = 0; i < 3; ++i)
      executors_.push_back(ConnectExecutor(fmt::format("w{}", i), 10 + i));
    for (auto& executor : executors_) executor->received.clear();
  }
  std::unique_ptr<FarEnd> ConnectRelay(const std::string& worker, int64_t pid,
                                       const std::string& host = "h",
                                       const std::string& endpoint = "h:1",
                                       uint32_t protocol = kLinkProtocol) {
    auto far = Connect();
    far->link->on_frame = [f = far.get()](const Frame& frame) {
      if (frame.type != kLogFrame) f->OnFrame(frame);
    };
    v1::ToController message;
    auto* const registration = message.mutable_register_relay();
    registration->set_protocol(protocol);
    registration->set_worker(worker);
    registration->set_incarnation(static_cast<uint64_t>(1000 + pid));
    registration->set_endpoint(endpoint);
    registration->set_host(host);
    registration->set_pid(pid);
    far->Send(message);
    Settle();
    return far;
  }
  // The endpoint of the last parent that an executor was told of.
  std::string ParentOf(int executor) {
    std::string parent = "none";
    for (const v1::FromController& message : executors_[executor]->received) {
      if (message.has_log_parent()) parent = message.log_parent().endpoint();
    }
    executors_[executor]->received.clear();
    return parent;
  }

  int secrets_ = 0;
  std::vector<std::unique_ptr<FarEnd>> executors_;
};

TEST_F(RelayHubTest, ARelayGetsATaskAndWhenItGoesExecutorsGetTheirLogFromTheController) {
  auto relay = ConnectRelay("w0", 7);
  EXPECT_TRUE(relay->Next().has_worker_registered());
  const v1::RelayTask task = relay->Next().relay_task();
  ASSERT_GT(task.children_size(), 0);
  EXPECT_EQ(task.controller_incarnation(), options_.controller.value);
  EXPECT_EQ(ParentOf(0), "h:1");
  const auto tree = hub_->RelayTree();
  ASSERT_EQ(tree.size(), 1u);
  EXPECT_EQ(tree[0].worker, "w0");
  EXPECT_EQ(tree[0].island, "island0");
  EXPECT_EQ(tree[0].endpoint, "h:1");
  EXPECT_EQ(tree[0].executors, static_cast<size_t>(task.children_size()));
  EXPECT_EQ(hub_->Health().at(ExecutorId(1)).log_from, "w0");
  v1::ToController beat;
  beat.mutable_heartbeat()->set_sequence(1);
  beat.mutable_heartbeat()->set_relayed_messages(5);
  relay->Send(beat);
  Settle();
  EXPECT_TRUE(relay->Next().has_heartbeat_ack());
  EXPECT_EQ(hub_->RelayTree()[0].passed_on.messages, 5u);

  relay->link.reset();
  Settle();
  EXPECT_EQ(ParentOf(0), "");
  EXPECT_TRUE(hub_->RelayTree().empty());
  EXPECT_EQ(hub_->Health().at(ExecutorId(1)).log_from, "");
  EXPECT_TRUE(lost_.empty());
  EXPECT_EQ(hub_->CheckInvariants(), absl::OkStatus());
}

TEST_F(RelayHubTest, ItsSuccessorTakesItsPlaceAndNobodyElseDoes) {
  auto relay = ConnectRelay("w0", 7);
  auto other = ConnectRelay("w0", 8, "other");
  EXPECT_THAT(other->Next().fence().reason(), HasSubstr("already connected from host h (pid 7)"));
  EXPECT_FALSE(relay->closed);
  auto next = ConnectRelay("w0", 9, "h", "h:2");
  EXPECT_TRUE(relay->closed);
  EXPECT_EQ(ParentOf(0), "h:2");
  auto bad = ConnectRelay("w1", 7, "h", "no port");
  EXPECT_THAT(bad->Next().fence().reason(), HasSubstr("a relay needs"));
  auto old = ConnectRelay("w1", 7, "h", "h:3", kLinkProtocol - 2);
  EXPECT_THAT(old->Next().fence().reason(), HasSubstr("link protocol"));
  // What makes no sense of it ends its link, and no executor.
  next->SendLogReport("\xff");
  next->Send({});
  Settle();
  Frame garbage;
  garbage.type = kControlFrame;
  garbage.payload = "\xff\xff";
  next->link->Send(std::move(garbage));
  Settle();
  EXPECT_TRUE(next->closed);
  EXPECT_TRUE(lost_.empty());
  EXPECT_EQ(ParentOf(0), "");
}

TEST_F(RelayHubTest, ARelayThatReportsWhatItWasNotSentIsEnded) {
  auto relay = ConnectRelay("w0", 7);
  EXPECT_EQ(ParentOf(0), "h:1");
  relay->SendLogReport(EncodeLogReport({1000, 5, {}}));
  Settle();
  EXPECT_TRUE(relay->closed);
  EXPECT_THAT(relay->received.back().fence().reason(), HasSubstr("bad report of the log"));
  EXPECT_TRUE(hub_->RelayTree().empty());
  EXPECT_EQ(ParentOf(0), "");
  EXPECT_TRUE(lost_.empty());
}

TEST_F(RelayHubTest, ARelayCannotEndTheRegistrationsOfItsChildren) {
  auto relay = ConnectRelay("w0", 7);
  relay->Next();
  const v1::RelayTask task = relay->Next().relay_task();
  ParentOf(0);
  v1::ToController message;
  message.mutable_relay_trouble()->set_version(task.version());
  message.mutable_relay_trouble()->set_incarnation(10);
  message.mutable_relay_trouble()->set_reason("it lacks entries");
  relay->Send(message);
  Settle();
  EXPECT_TRUE(lost_.empty());
  EXPECT_EQ(ParentOf(0), "");
}

TEST_F(RelayHubTest, ASilentRelayIsLeftOutAndInTheEndItsLinkToo) {
  auto relay = ConnectRelay("w0", 7);
  EXPECT_EQ(ParentOf(0), "h:1");
  Advance(std::chrono::milliseconds(1500));
  EXPECT_EQ(ParentOf(0), "");
  EXPECT_EQ(hub_->relays().troubles, 1u);
  EXPECT_FALSE(relay->closed);
  for (int i = 0; i < 6; ++i) {
    for (auto& executor : executors_) Beat(*executor);
    Advance(std::chrono::milliseconds(2000));
  }
  EXPECT_TRUE(relay->closed);
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace fairway
