// SPDX-License-Identifier: Apache-2.0
#include "worker/relay/relay_port.h"

#include <vector>

#include <gtest/gtest.h>

#include "transport/in_process.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

// A link with a peer of this name, whose far end the test keeps.
struct Far {
  std::unique_ptr<Link> link;
  bool closed = false;
  int frames = 0;
};

// A link whose frames the test plays.
class PlayedLink final : public Link {
 public:
  explicit PlayedLink(bool* watched) : watched_(watched) {}
  void Send(Frame) override {}
  size_t queued_bytes() const override { return 0; }
  void Close() override {}
  std::string peer() const override { return "10.0.0.9:1000"; }
  void WatchHost() override { *watched_ = true; }

 private:
  bool* const watched_;
};

class RelayPortTest : public ::testing::Test, public RelayActions {
 protected:
  RelayPortTest() {
    v1::RelayTask task;
    task.set_version(3);
    v1::RelayTask::Child* const child = task.add_children();
    child->set_incarnation(11);
    child->set_secret("s11");
    child->set_worker("w1");
    child->add_below()->set_executor(1);
    EXPECT_TRUE(core_.OnTask(task, controller_.first.get(), now_).ok());
  }
  void DialParent(const std::string&) override {}
  void Tell(v1::RelayTrouble) override {}

  void Settle() {
    for (int quiet = 0; quiet < 8; ++quiet) {
      loop_.Post("settle", [this] { loop_.Stop(); });
      loop_.Run();
    }
  }
  Far& Dial(const std::string& from) {
    auto pair = MakeLinkPair(loop_, {from, "relay"});
    fars_.push_back(std::make_unique<Far>());
    Far& far = *fars_.back();
    far.link = std::move(pair.second);
    far.link->on_frame = [&far](const Frame&) { ++far.frames; };
    far.link->on_closed = [&far](const absl::Status&) { far.closed = true; };
    port_.Accept(std::move(pair.first));
    Settle();
    return far;
  }
  static Frame AskFrame(const std::string& secret) {
    v1::ToController message;
    message.mutable_log_ask()->set_version(3);
    message.mutable_log_ask()->set_incarnation(11);
    message.mutable_log_ask()->set_secret(secret);
    return PackFrame(message);
  }
  void Ask(Far& far, const std::string& secret) {
    far.link->Send(AskFrame(secret));
    Settle();
  }
  void Pass(milliseconds time) {
    now_ += time;
    port_.Tick();
    Settle();
  }

  EventLoop loop_;
  RelayCore::Time now_{std::chrono::hours(1)};
  std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> controller_ = MakeLinkPair(loop_);
  RelayCore core_{{.self = Incarnation(99), .limits = {}}, this};
  RelayPort port_{loop_, &core_, [this] { return now_; }};
  std::vector<std::unique_ptr<Far>> fars_;
};

TEST_F(RelayPortTest, AChildStaysAndAStrangerMayWaitForALittleWhile) {
  Far& child = Dial("10.0.0.1:1000");
  Ask(child, "s11");
  EXPECT_GT(child.frames, 0);
  Far& silent = Dial("10.0.0.2:1000");
  Pass(RelayPort::kPatience);
  EXPECT_FALSE(silent.closed);
  Pass(milliseconds(100));
  EXPECT_TRUE(silent.closed);
  EXPECT_FALSE(child.closed);
  EXPECT_EQ(port_.refused(), 1u);
  EXPECT_EQ(port_.links(), 1u);
}

TEST_F(RelayPortTest, WhoProvesNothingIsClosedAtOnceAndTheChildGoesOn) {
  Far& child = Dial("10.0.0.1:1000");
  Ask(child, "s11");
  Far& guesses = Dial("10.0.0.2:1000");
  Ask(guesses, "s12");
  EXPECT_TRUE(guesses.closed);
  Far& garbles = Dial("10.0.0.2:1001");
  Frame frame;
  frame.type = kControlFrame;
  frame.payload = "\xff\xff\xff";
  garbles.link->Send(std::move(frame));
  Settle();
  EXPECT_TRUE(garbles.closed);
  Far& reports = Dial("10.0.0.2:1002");
  frame.type = kLogReportFrame;
  frame.payload = EncodeLogReport({3, 0, {}});
  reports.link->Send(std::move(frame));
  Settle();
  EXPECT_TRUE(reports.closed);
  EXPECT_EQ(guesses.frames + garbles.frames + reports.frames, 0);
  EXPECT_FALSE(child.closed);
  EXPECT_EQ(port_.links(), 1u);
}

TEST_F(RelayPortTest, ManyStrangersOfOneHostKeepNobodyElseOut) {
  Far& other = Dial("10.0.0.1:1000");
  std::vector<Far*> many;
  for (size_t i = 0; i < 2 * RelayPort::kMaxStrangers; ++i)
    many.push_back(&Dial(fmt::format("10.0.0.2:{}", 1000 + i)));
  EXPECT_EQ(port_.strangers(), RelayPort::kMaxStrangers);
  EXPECT_TRUE(many.front()->closed);
  EXPECT_FALSE(many.back()->closed);
  EXPECT_FALSE(other.closed);
  Ask(other, "s11");
  EXPECT_GT(other.frames, 0);
  EXPECT_FALSE(other.closed);
  Far& again = Dial("10.0.0.1:1001");  // it dials again, among all these
  Ask(again, "s11");
  EXPECT_GT(again.frames, 0);
  EXPECT_TRUE(other.closed) << "a child has one link";
}

TEST_F(RelayPortTest, AChildsHostIsWatched) {
  bool watched = false;
  auto link = std::make_unique<PlayedLink>(&watched);
  Link& played = *link;
  port_.Accept(std::move(link));
  EXPECT_FALSE(watched);
  played.on_frame(AskFrame("s11"));
  EXPECT_TRUE(watched);
}

// Over a real socket, because only that looks at lengths.
TEST_F(RelayPortTest, AStrangersMessageIsShort) {
  auto server = ListenTcp(loop_, "127.0.0.1:0",
                          [this](std::unique_ptr<Link> link) { port_.Accept(std::move(link)); });
  ASSERT_TRUE(server.ok());
  std::unique_ptr<Link> far;
  ConnectTcp(loop_, fmt::format("127.0.0.1:{}", (*server)->port()), milliseconds(120000),
             [&](absl::StatusOr<std::unique_ptr<Link>> link) {
               ASSERT_TRUE(link.ok()) << link.status();
               far = *std::move(link);
               far->on_frame = [](const Frame&) {};
               far->on_closed = [this](const absl::Status&) { loop_.Stop(); };
               Frame frame;
               frame.type = kControlFrame;
               frame.payload = std::string(RelayPort::kMaxAskBytes + 1, 'x');
               far->Send(std::move(frame));
             });
  loop_.Run();  // until the port closes it
  EXPECT_EQ(port_.links(), 0u);
  EXPECT_EQ(port_.refused(), 1u);
}

}  // namespace
}  // namespace fairway
