// SPDX-License-Identifier: Apache-2.0
#include "transport/data_server.h"

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/local/stream_protocol.hpp>

#include "base/crc32c.h"
#include "base/sanitized_for_test.h"

namespace fairway {
namespace {

constexpr PortKey kKey{1, 2};

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
      std::move(socket), Incarnation(7), kKey,
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
        std::move(socket), Incarnation(7), kKey,
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
  // The frames that have come back, all of which are errors.
  size_t Errors() const {
    char bytes[64 * 1024];
    const ssize_t count = recv(peer, bytes, sizeof bytes, 0);
    size_t errors = 0;
    for (ssize_t at = 0; at < count; ++errors) {
      const auto header = DecodeFrameHeader(bytes + at);
      EXPECT_TRUE(header.ok() && header->type == data::kError);
      if (!header.ok()) break;
      at += static_cast<ssize_t>(kFrameHeaderBytes + header->length);
    }
    return errors;
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
  const std::string good =
      data::Encode(data::WirePush{{1, 1, 0, {}}, Incarnation(7), GangTicket(kKey)}, "bytes");
  EXPECT_EQ(after(good, good.size()), "1 pushes");
  EXPECT_EQ(after("", 0), "0 pushes");
  EXPECT_EQ(after(good.substr(0, 47), 47), "0 pushes");
  EXPECT_EQ(after(good.substr(0, 48), 48), "1 pushes");
  EXPECT_EQ(after("", 1 << 20), "0 pushes, refused");
}

// The bytes that the process takes from when the name of a long push has come.
int64_t TakenByTheNameOfAPush(const Ticket& ticket) {
  PushStream to([&](const PushName&, std::shared_ptr<Blob>&) { return true; });
  to.PollAll();
  const std::string push =
      data::Encode(data::WirePush{{1, 1, 0, Incarnation(8)}, Incarnation(7), ticket}, "byte");
  const auto taken = [] { return static_cast<int64_t>(mallinfo2().uordblks); };
  const int64_t before = taken();
  to.Send(push, data::kPushNameBytes + kMaxPushBytes);
  to.PollAll();
  const int64_t after = taken();
  close(to.peer);
  to.PollAll();
  return after - before;
}

TEST(DataServer, ThePushOfAWrongTicketTakesNoMemory) {
  if (kSanitized) GTEST_SKIP() << "its allocator does not tell";
  EXPECT_LT(TakenByTheNameOfAPush({3, 4}), int64_t{kMaxPushBytes} / 2);
  EXPECT_GE(TakenByTheNameOfAPush(GangTicket(kKey)), int64_t{kMaxPushBytes});
}

TEST(DataServer, APushWithAWrongTicketGetsAnErrorAndTheNextOneIsTaken) {
  std::vector<std::string> refused;
  size_t pushes = 0;
  PushStream to([&](const PushName&, std::shared_ptr<Blob>&) { return ++pushes > 0; });
  to.stream->set_refused([&](const absl::Status& why) { refused.push_back(Text(why)); });
  for (const size_t bytes : {size_t{0}, size_t{10}, kMaxPushBytes}) {
    const std::string push = data::Encode(
        data::WirePush{{1, 1, 0, Incarnation(8)}, Incarnation(7), {3, 4}}, std::string(bytes, 'x'));
    to.Send(push, push.size());
    to.PollAll();
  }
  EXPECT_EQ(pushes, 0u);
  EXPECT_THAT(refused, testing::Each(testing::HasSubstr(
                           "incarnation 8 asked for the exchange of gangs with a wrong ticket")));
  EXPECT_EQ(refused.size(), 3u);
  EXPECT_EQ(to.Errors(), 3u);
  // The next one is taken.
  const std::string good =
      data::Encode(data::WirePush{{1, 1, 0, {}}, Incarnation(7), GangTicket(kKey)}, "bytes");
  to.Send(good, good.size());
  to.PollAll();
  EXPECT_EQ(pushes, 1u);
  EXPECT_FALSE(to.ended);
  close(to.peer);
  to.PollAll();
}

TEST(DataServer, WhoShowsNoRightTicketStaysAStranger) {
  PushStream to([&](const PushName&, std::shared_ptr<Blob>&) { return true; });
  int known = 0;
  to.stream->set_known([&] { ++known; });
  const auto push = [&](const Ticket& ticket) {
    const std::string payload =
        data::Encode(data::WirePush{{1, 1, 0, {}}, Incarnation(7), ticket}, "bytes");
    to.Send(payload, payload.size());
    to.PollAll();
    return known;
  };
  EXPECT_EQ(push({}), 0);
  EXPECT_EQ(push({1, 2}), 0);
  EXPECT_EQ(push(GangTicket(kKey)), 1);
  close(to.peer);
  to.PollAll();
}

TEST(DataServer, ARequestOfAVersionWithoutTicketsIsToldSo) {
  const std::string now = data::Encode(data::WireRequest{});
  EXPECT_TRUE(data::DecodeRequest(now).ok());
  EXPECT_THAT(Text(data::DecodeRequest(now.substr(0, 40)).status()),
              testing::HasSubstr("who asks is of another version"));
}

// Nothing is read of it any more, so the end of the connection is not read either.
TEST(DataServer, APeerThatGoesAwayWhileItsPushIsHeldIsForgottenWithIt) {
  size_t offered = 0;
  PushStream to([&](const PushName&, std::shared_ptr<Blob>&) { return ++offered == 0; });
  const std::string push =
      data::Encode(data::WirePush{{1, 1, 0, {}}, Incarnation(7), GangTicket(kKey)}, "bytes");
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
