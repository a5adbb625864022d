// SPDX-License-Identifier: Apache-2.0
#include "transport/link.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "async/run_until.h"
#include "base/crc32c.h"
#include "identity/files_for_test.h"
#include "transport/frame.h"
#include "transport/in_process.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Frame Text(uint8_t type, std::string payload) {
  Frame frame;
  frame.type = type;
  frame.payload = std::move(payload);
  return frame;
}

// The events at one end of a link.
struct Seen {
  std::vector<Frame> frames;
  int closed = 0;
  absl::Status status;
  void Watch(Link& link) {
    link.on_frame = [this](Frame frame) { frames.push_back(std::move(frame)); };
    link.on_closed = [this](absl::Status why) {
      ++closed;
      status = std::move(why);
    };
  }
};

enum class Kind { kTcp, kTls, kUnix, kInProcess };

class Links : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kInProcess) {
      std::tie(a_, b_) = MakeLinkPair(loop_);
    } else if (GetParam() == Kind::kUnix) {
      int fds[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
      a_ = AdoptSocket(loop_, fds[0]);
      b_ = AdoptSocket(loop_, fds[1]);
    } else {
      const bool tls = GetParam() == Kind::kTls;
      auto server = ListenTcp(
          loop_, "127.0.0.1:0",
          [this](std::unique_ptr<Link> link) {
            b_ = std::move(link);
            at_b_.Watch(*b_);
          },
          tls ? TlsUse{files_.Controller(), Role::kWorker} : TlsUse{});
      ASSERT_TRUE(server.ok()) << server.status();
      ConnectTcp(
          loop_, fmt::format("127.0.0.1:{}", (*server)->port()), seconds(120),
          [this](auto link) {
            ASSERT_TRUE(link.ok()) << link.status();
            a_ = *std::move(link);
            at_a_.Watch(*a_);
          },
          tls ? TlsUse{files_.Worker("w0"), Role::kController} : TlsUse{});
      ASSERT_TRUE(RunUntil(loop_, [this] { return a_ != nullptr && b_ != nullptr; }));
    }
    at_a_.Watch(*a_);
    at_b_.Watch(*b_);
  }
  // Calls into links happen in the loop.
  void InLoop(std::function<void()> f) {
    loop_.Post("test", [this, f] {
      f();
      loop_.Stop();
    });
    loop_.Run();
  }

  CertificateFiles files_;
  EventLoop loop_;
  std::unique_ptr<Link> a_, b_;
  Seen at_a_, at_b_;
};

INSTANTIATE_TEST_SUITE_P(All, Links,
                         testing::Values(Kind::kTcp, Kind::kTls, Kind::kUnix, Kind::kInProcess));

TEST_P(Links, AChecksumThatIsKnownIsNotWorkedOutAgain) {
  if (GetParam() == Kind::kInProcess) GTEST_SKIP() << "there is none";
  Frame right = Text(1, "packed elsewhere"), wrong = Text(2, "packed elsewhere");
  right.crc = Crc32c(right.payload);
  wrong.crc = *right.crc + 1;
  InLoop([&] {
    a_->Send(right);
    a_->Send(wrong);
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.closed == 1; }));
  ASSERT_EQ(at_b_.frames.size(), 1u);
  EXPECT_EQ(at_b_.frames[0].payload, "packed elsewhere");
  EXPECT_EQ(at_b_.status.code(), absl::StatusCode::kDataLoss);
}

TEST_P(Links, ASharedTailFollowsThePayload) {
  const auto large = std::make_shared<const std::string>(20 << 20, 'x');
  const auto small = std::make_shared<const std::string>("tail");
  Frame frames[] = {Text(1, "head"), Text(2, "head"), Text(3, ""), Text(4, "alone"),
                    Text(5, std::string(1 << 20, 'h'))};
  frames[0].tail = {large, Crc32c(*large)};
  frames[1].tail = {small};
  frames[2].tail = {large};
  frames[4].tail = {large};
  InLoop([&] {
    for (const Frame& frame : frames) a_->Send(frame);
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.frames.size() == 5; })) << at_b_.status;
  for (size_t i = 0; i < 5; ++i) {
    frames[i].Join();
    EXPECT_TRUE(at_b_.frames[i].payload == frames[i].payload) << i;
  }
  if (GetParam() == Kind::kInProcess) return;
  Frame wrong = Text(6, "head");
  wrong.tail = {small, Crc32c(*small) + 1};
  InLoop([&] { a_->Send(wrong); });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.closed == 1; }));
  EXPECT_EQ(at_b_.status.code(), absl::StatusCode::kDataLoss);
}

TEST_P(Links, FramesArriveWholeAndInOrder) {
  std::string large(3 << 20, 'x');
  large[1234567] = 'y';
  InLoop([&] {
    for (int i = 0; i < 2000; ++i)
      a_->Send({static_cast<uint8_t>(i), 7, uint64_t(i), uint64_t(2 * i), std::to_string(i)});
    a_->Send(Text(200, large));
    a_->Send(Text(201, ""));
    b_->Send(Text(1, "back"));
  });
  ASSERT_TRUE(
      RunUntil(loop_, [&] { return at_b_.frames.size() == 2002 && at_a_.frames.size() == 1; }));
  for (int i = 0; i < 2000; ++i) {
    const Frame& frame = at_b_.frames[i];
    ASSERT_EQ(frame.payload, std::to_string(i));
    ASSERT_EQ(frame.id, uint64_t(i));
    ASSERT_EQ(frame.offset, uint64_t(2 * i));
    ASSERT_EQ(frame.flags, 7);
    ASSERT_EQ(frame.type, static_cast<uint8_t>(i));
  }
  EXPECT_EQ(at_b_.frames[2000].payload, large);
  EXPECT_EQ(at_b_.frames[2001].payload, "");
  EXPECT_EQ(a_->queued_bytes(), 0u);
}

TEST_P(Links, CloseSendsWhatIsQueuedEvenWhileThePeerTalks) {
  InLoop([&] {
    for (int i = 0; i < 100; ++i) b_->Send(Text(1, std::string(10000, 'z')));
    a_->Send(Text(9, "last words"));
    a_->Close();
    a_->Send(Text(10, "too late"));
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.closed == 1; }));
  ASSERT_EQ(at_b_.frames.size(), 1u);
  EXPECT_EQ(at_b_.frames[0].payload, "last words");
  EXPECT_TRUE(at_b_.status.ok()) << at_b_.status;
  b_ = nullptr;
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_a_.closed == 1; }));
  EXPECT_TRUE(at_a_.status.ok()) << at_a_.status;
}

TEST_P(Links, AFrameOverTheLinksLimitClosesIt) {
  if (GetParam() == Kind::kInProcess) GTEST_SKIP() << "its frames cost their receiver nothing";
  b_->LimitFrames(100);
  InLoop([&] { a_->Send(Text(1, std::string(100, 'x'))); });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.frames.size() == 1; }));
  InLoop([&] { a_->Send(Text(1, std::string(101, 'x'))); });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.closed == 1; }));
  EXPECT_THAT(std::string(at_b_.status.message()),
              HasSubstr("of 101 bytes, which has at most 100"));
  EXPECT_EQ(at_b_.frames.size(), 1u);
}

TEST_P(Links, DestroyingOneEndClosesTheOtherOnce) {
  InLoop([&] { a_ = nullptr; });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.closed > 0; }));
  EXPECT_EQ(at_b_.closed, 1);
  EXPECT_EQ(at_a_.closed, 0);
}

TEST_P(Links, ACallbackMayDestroyItsLink) {
  b_->on_frame = [this](Frame) { b_ = nullptr; };
  InLoop([&] {
    for (int i = 0; i < 10; ++i) a_->Send(Text(1, "x"));
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_a_.closed == 1; }));
  EXPECT_EQ(b_, nullptr);
}

TEST_P(Links, ACallbackMayReplaceItself) {
  b_->on_frame = [this](Frame) { at_b_.Watch(*b_); };
  InLoop([&] {
    for (int i = 0; i < 3; ++i) a_->Send(Text(1, std::to_string(i)));
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return at_b_.frames.size() == 2; }));
  EXPECT_EQ(at_b_.frames[0].payload, "1");
}

TEST(Connect, NobodyThereIsUnavailableWithTheAddress) {
  EventLoop loop;
  int port = 0;
  {
    auto server = ListenTcp(loop, "127.0.0.1:0", [](auto) {});
    ASSERT_TRUE(server.ok());
    port = (*server)->port();
  }
  absl::Status status;
  bool done = false;
  const std::string address = fmt::format("127.0.0.1:{}", port);
  // The closed acceptor's pending handler runs first.
  loop.Post("connect", [&] {
    ConnectTcp(loop, address, seconds(120), [&](auto link) {
      done = true;
      status = link.status();
    });
  });
  ASSERT_TRUE(RunUntil(loop, [&] { return done; }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(fairway::Text(status), HasSubstr(address));
}

TEST(Connect, BadAddressesAreErrors) {
  EventLoop loop;
  for (const char* address : {"nonsense", "127.0.0.1:", "127.0.0.1:70000", ":1", "127.0.0.1:12x"}) {
    bool done = false;
    ConnectTcp(loop, address, seconds(120), [&](auto link) {
      done = true;
      EXPECT_FALSE(link.ok());
    });
    ASSERT_TRUE(RunUntil(loop, [&] { return done; })) << address;
    EXPECT_FALSE(ListenTcp(loop, address, [](auto) {}).ok());
  }
}

TEST(Listen, ToldOnceThatThereAreNoDescriptors) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "the sanitizer looks at memory through a pipe, which takes descriptors";
#endif
  std::ostringstream text;
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  EventLoop loop;
  std::vector<std::unique_ptr<Link>> accepted;
  const auto server =
      ListenTcp(loop, "127.0.0.1:0", [&](auto link) { accepted.push_back(std::move(link)); });
  ASSERT_TRUE(server.ok());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<in_port_t>((*server)->port()));
  const int clients[] = {::socket(AF_INET, SOCK_STREAM, 0), ::socket(AF_INET, SOCK_STREAM, 0)};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  const auto lines = [&] {
    size_t count = 0;
    for (size_t at = 0; (at = text.str().find("cannot accept", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  for (size_t episode = 1; episode <= 2; ++episode) {
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ(
        ::connect(clients[episode - 1], reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_TRUE(RunUntil(loop, [&] { return lines() == episode; }));
    // Posted after its first attempt to accept again.
    bool later = false;
    loop.PostAfter(milliseconds(150), "later", [&] { later = true; });
    EXPECT_TRUE(RunUntil(loop, [&] { return later; }));
    EXPECT_EQ(lines(), episode);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(RunUntil(loop, [&] { return accepted.size() == episode; }));
  }
  EXPECT_THAT(text.str(), HasSubstr(fmt::format("port {} cannot accept a connection: Too many open "
                                                "files",
                                                (*server)->port())));
  spdlog::set_default_logger(logger);
  for (const int fd : clients) ::close(fd);
}

TEST(Listen, ATakenPortIsNamed) {
  EventLoop loop;
  auto first = ListenTcp(loop, "127.0.0.1:0", [](auto) {});
  ASSERT_TRUE(first.ok());
  auto second = ListenTcp(loop, fmt::format("127.0.0.1:{}", (*first)->port()), [](auto) {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(fairway::Text(second.status()), HasSubstr(std::to_string((*first)->port())));
}

// Writes raw bytes into a link; returns how the link closed.
absl::Status AfterBytes(const std::string& bytes, bool end, size_t* frames = nullptr) {
  EventLoop loop;
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return absl::InternalError("socketpair");
  auto link = AdoptSocket(loop, fds[0]);
  Seen seen;
  seen.Watch(*link);
  EXPECT_EQ(::write(fds[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  if (end) ::close(fds[1]);
  EXPECT_TRUE(RunUntil(loop, [&] { return seen.closed > 0; }));
  if (!end) ::close(fds[1]);
  if (frames != nullptr) *frames = seen.frames.size();
  return seen.status;
}

std::string Encoded(const std::string& payload) {
  std::string out(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(
      {.type = 1, .length = static_cast<uint32_t>(payload.size()), .crc = Crc32c(payload)},
      out.data());
  return out + payload;
}

TEST(BadBytes, CloseTheLinkWithTheCause) {
  const std::string good = Encoded("hello");
  size_t frames = 0;
  EXPECT_TRUE(AfterBytes(good + good, true, &frames).ok());
  EXPECT_EQ(frames, 2u);

  std::string magic = good;
  magic[0] ^= 1;
  EXPECT_THAT(fairway::Text(AfterBytes(magic, false)), HasSubstr("magic"));
  // The first bytes of gRPC's server. A worker with the clients' port reads them.
  EXPECT_THAT(fairway::Text(AfterBytes(std::string("\0\0\x18\x04", 4) + good, false)),
              HasSubstr("--link-port"));
  std::string version = good;
  version[4] = 9;
  EXPECT_THAT(fairway::Text(AfterBytes(version, false)), HasSubstr("version 9"));
  std::string flipped = good;
  flipped[kFrameHeaderBytes + 2] ^= 4;
  EXPECT_EQ(AfterBytes(good + flipped, false, &frames).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(frames, 1u);
  std::string huge(kFrameHeaderBytes, '\0');
  EncodeFrameHeader({.type = 1, .length = kMaxFrameBytes + 1}, huge.data());
  EXPECT_THAT(fairway::Text(AfterBytes(huge, false)), HasSubstr("limit"));
  for (size_t cut = 1; cut < good.size(); ++cut) {
    EXPECT_EQ(AfterBytes(good.substr(0, cut), true).code(), absl::StatusCode::kUnavailable) << cut;
  }
}

}  // namespace
}  // namespace fairway
