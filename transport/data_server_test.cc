// SPDX-License-Identifier: Apache-2.0
#include "transport/data_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <boost/asio/local/stream_protocol.hpp>

#include "base/crc32c.h"

namespace fairway {
namespace {

// Runs the handlers that need not wait; false: there was none.
bool Poll(boost::asio::io_context& io) {
  io.restart();
  return io.poll() > 0;
}

TEST(DataServer, APeerThatAsksAndDoesNotReadIsNotReadFrom) {
  boost::asio::io_context io(1);
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const int peer = fds[0];
  StreamSocket socket(io);
  socket.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), fds[1]);
  bool ended = false;
  auto stream = std::make_shared<data::ServerStream>(
      std::move(socket), Incarnation(7),
      [](std::shared_ptr<data::ServerStream>, uint64_t, PullRequest) {},
      [&](data::ServerStream*) { ended = true; }, std::make_shared<std::atomic<uint64_t>>(0));
  stream->Start();

  // Bytes of requests that are answered at once with an error.
  constexpr size_t kMost = 16 << 20;  // bytes
  std::string request(kFrameHeaderBytes, '\0');
  EncodeFrameHeader({.type = data::kPull, .id = 1, .crc = Crc32c("")}, request.data());
  std::string requests;
  while (requests.size() < 64 * 1024) requests += request;
  size_t sent = 0, begun = 0;
  for (bool goes_on = true; goes_on && sent < kMost;) {
    const ssize_t count =
        send(peer, requests.data() + begun, requests.size() - begun, MSG_NOSIGNAL);
    if (count > 0) {
      sent += count;
      begun = (begun + count) % requests.size();
    }
    goes_on = Poll(io) || count > 0;
  }
  EXPECT_LT(sent, kMost);

  // When it reads, the server reads as well, and each request gets its answer.
  size_t answers = 0;
  std::string received;
  for (bool goes_on = true; goes_on;) {
    char bytes[64 * 1024];
    const ssize_t count = recv(peer, bytes, sizeof bytes, 0);
    if (count > 0) received.append(bytes, count);
    size_t at = 0;
    while (received.size() - at >= kFrameHeaderBytes) {
      const auto header = DecodeFrameHeader(received.data() + at);
      ASSERT_TRUE(header.ok()) << header.status();
      if (received.size() - at < kFrameHeaderBytes + header->length) break;
      EXPECT_EQ(header->type, data::kError);
      at += kFrameHeaderBytes + header->length;
      ++answers;
    }
    received.erase(0, at);
    goes_on = Poll(io) || count > 0;
  }
  EXPECT_EQ(answers, sent / kFrameHeaderBytes);

  EXPECT_FALSE(ended);
  close(peer);
  Poll(io);
  EXPECT_TRUE(ended);
}

// A stream of a server, and the far end of its connection.
struct PushStream {
  explicit PushStream(OnPush on_push) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    peer = fds[0];
    StreamSocket socket(io);
    socket.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), fds[1]);
    stream = std::make_shared<data::ServerStream>(
        std::move(socket), Incarnation(7),
        [](std::shared_ptr<data::ServerStream>, uint64_t, PullRequest) {},
        [this](data::ServerStream*) { ended = true; }, std::make_shared<std::atomic<uint64_t>>(0),
        std::move(on_push));
    stream->Start();
  }
  void Send(std::string_view payload, uint32_t length) const {
    std::string frame(kFrameHeaderBytes, '\0');
    EncodeFrameHeader({.type = data::kPush, .length = length, .crc = Crc32c(payload)},
                      frame.data());
    frame += payload;
    EXPECT_EQ(send(peer, frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }
  void PollAll() {
    while (Poll(io)) {
    }
  }

  boost::asio::io_context io{1};
  int peer = -1;  // the tests close it
  bool ended = false;
  std::shared_ptr<data::ServerStream> stream;
};

TEST(DataServer, APushThatIsTooLongOrTooShortDoesNoHarm) {
  const auto after = [&](std::string_view payload, uint32_t length) {
    size_t pushes = 0;
    PushStream to([&](const PushName&, std::shared_ptr<Blob>&) { return ++pushes > 0; });
    to.Send(payload, length);
    to.PollAll();
    close(to.peer);
    const bool refused = to.ended;
    to.PollAll();
    return fmt::format("{} pushes{}", pushes, refused ? ", refused" : "");
  };
  const std::string good = data::Encode(data::WirePush{{1, 1, 0, {}}, Incarnation(7)}, "bytes");
  EXPECT_EQ(after(good, good.size()), "1 pushes");
  EXPECT_EQ(after("", 0), "0 pushes");
  EXPECT_EQ(after(good.substr(0, 31), 31), "0 pushes");
  EXPECT_EQ(after(good.substr(0, 32), 32), "1 pushes");
  EXPECT_EQ(after("", 1 << 20), "0 pushes, refused");
}

// Nothing is read of it any more, so the end of the connection is not read either.
TEST(DataServer, APeerThatGoesAwayWhileItsPushIsHeldIsForgottenWithIt) {
  size_t offered = 0;
  PushStream to([&](const PushName&, std::shared_ptr<Blob>&) { return ++offered == 0; });
  const std::string push = data::Encode(data::WirePush{{1, 1, 0, {}}, Incarnation(7)}, "bytes");
  for (int i = 0; i < 3; ++i) to.Send(push, push.size());
  to.PollAll();
  to.stream->RetryPush();
  EXPECT_FALSE(to.ended);
  EXPECT_EQ(offered, 2u);
  close(to.peer);
  to.stream->RetryPush();
  to.PollAll();
  EXPECT_TRUE(to.ended);
}

}  // namespace
}  // namespace fairway
