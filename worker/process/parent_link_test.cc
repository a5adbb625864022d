// SPDX-License-Identifier: Apache-2.0
#include "worker/process/parent_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;

// A relay that keeps its links.
struct FakeRelay {
  explicit FakeRelay(EventLoop& its_loop) : loop(its_loop) {
    auto listening = ListenTcp(loop, "127.0.0.1:0", [this](std::unique_ptr<Link> link) {
      link->on_frame = [this](const Frame& frame) {
        said.push_back(frame.payload);
        if (on_said) on_said();
      };
      link->on_closed = [this](const absl::Status&) {
        ++closed;
        if (on_closed) on_closed();
      };
      links.push_back(std::move(link));
    });
    server = *std::move(listening);
  }
  std::string endpoint() const { return fmt::format("127.0.0.1:{}", server->port()); }
  void Send(uint8_t type, const std::string& payload) {
    Frame frame;
    frame.type = type;
    frame.payload = payload;
    loop.Post("send",
              [this, frame = std::move(frame)]() mutable { links.back()->Send(std::move(frame)); });
  }

  EventLoop& loop;
  std::unique_ptr<LinkServer> server;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<std::string> said;
  int closed = 0;
  std::function<void()> on_said, on_closed;
};

// TCP_USER_TIMEOUT of this process's connection to the port; nullopt: there is none.
std::optional<std::chrono::milliseconds> UserTimeout(int port) {
  for (int fd = 0; fd < 256; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        peer.sin_family != AF_INET || ntohs(peer.sin_port) != port)
      continue;
    int timeout = 0;
    size = sizeof timeout;
    if (getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &size) == 0)
      return std::chrono::milliseconds(timeout);
  }
  return std::nullopt;
}

class ParentLinkTest : public ::testing::Test {
 protected:
  void Hello(Link* link) {
    Frame frame;
    frame.type = kControlFrame;
    frame.payload = "hello";
    link->Send(std::move(frame));
  }
  EventLoop loop_;
  std::vector<std::string> frames_;
  int ends_ = 0;
  ParentLink parent_{loop_,
                     nullptr,
                     {.on_open = [this](Link* link) { Hello(link); },
                      .on_frame =
                          [this](const Frame& frame) {
                            frames_.push_back(frame.payload);
                            loop_.Stop();
                          },
                      .on_end = [this](Link*) { ++ends_; }}};
};

TEST_F(ParentLinkTest, ConnectsAgainToTheSameRelayAndLeavesItForAnother) {
  FakeRelay one(loop_), two(loop_);
  one.on_said = two.on_said = [this] { loop_.Stop(); };
  parent_.Follow(one.endpoint());
  loop_.Run();
  EXPECT_THAT(one.said, ElementsAre("hello"));
  one.Send(kLogFrame, "a");
  loop_.Run();
  EXPECT_THAT(frames_, ElementsAre("a"));
  one.links.back()->Close();
  loop_.Run();  // it has said hello again
  EXPECT_THAT(one.said, ElementsAre("hello", "hello"));
  EXPECT_EQ(ends_, 1);
  one.Send(kControlFrame, "what is no frame of the log");
  loop_.Run();
  EXPECT_EQ(one.said.size(), 3u);
  EXPECT_EQ(ends_, 2);
  parent_.Follow(two.endpoint());
  EXPECT_EQ(parent_.link(), nullptr);
  loop_.Run();
  EXPECT_THAT(two.said, ElementsAre("hello"));
  EXPECT_EQ(ends_, 2);
  if (one.closed < 3) {
    one.on_closed = [this] { loop_.Stop(); };
    loop_.Run();
  }
  EXPECT_EQ(one.closed, 3);
  two.on_closed = [this] { loop_.Stop(); };
  parent_.Follow({});
  loop_.Run();
  EXPECT_EQ(parent_.link(), nullptr);
  EXPECT_EQ(one.said.size() + two.said.size(), 4u);
}

TEST_F(ParentLinkTest, ARelayWhoseHostIsSilentIsLeftSoon) {
  FakeRelay relay(loop_);
  relay.on_said = [this] { loop_.Stop(); };
  parent_.Follow(relay.endpoint());
  loop_.Run();
  EXPECT_EQ(UserTimeout(relay.server->port()), kHostSilence);
}

}  // namespace
}  // namespace fairway
