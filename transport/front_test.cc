// SPDX-License-Identifier: Apache-2.0
#include "transport/front.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/strangers.h"

namespace fairway {
namespace {

constexpr char kGreeting[] = "PRI";

// A front at 127.0.0.1, and what it has passed on.
class FrontTest : public testing::Test {
 protected:
  void SetUp() override {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    front_ = *Front::Listen("127.0.0.1", 0, {});
    front_->Start([this](int fd) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(fd);
      changed_.notify_all();
    });
  }
  void TearDown() override {
    front_ = nullptr;
    for (const int fd : taken_) ::close(fd);
    for (const int fd : clients_) ::close(fd);
  }

  // Connects from 127.0.0.`host`, and sends `greeting`.
  int Connect(int host, std::string_view greeting) {
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7f000000 + static_cast<uint32_t>(host));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(front_->port()));
    const int fd = clients_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    if (!greeting.empty()) ::send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL);
    return fd;
  }
  // Waits until so many were taken.
  bool Taken(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&] { return taken_.size() >= count; });
  }
  // Waits until the other end has closed it.
  static bool Closed(int fd) {
    char byte;
    return ::recv(fd, &byte, 1, 0) <= 0;
  }
  // As gRPC names the client's end.
  static std::string NameOf(int fd) {
    sockaddr_in here{};
    socklen_t size = sizeof here;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size);
    const uint32_t address = ntohl(here.sin_addr.s_addr);
    return fmt::format("ipv4:127.0.0.{}:{}", address & 0xff, ntohs(here.sin_port));
  }

  std::unique_ptr<Front> front_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> taken_;
  std::vector<int> clients_;
};

TEST_F(FrontTest, AConnectionIsTakenOnceSomethingHasCome) {
  const int silent = Connect(1, "");
  Connect(1, kGreeting);
  ASSERT_TRUE(Taken(1));
  // What has come is still there.
  char bytes[4] = {};
  EXPECT_EQ(::recv(taken_[0], bytes, 3, 0), 3);
  EXPECT_STREQ(bytes, kGreeting);
  // The other one is not waited for for ever.
  EXPECT_TRUE(Closed(silent));
  EXPECT_EQ(taken_.size(), 1u);
}

TEST_F(FrontTest, TenThousandWhoSayNothingKeepNobodyOut) {
  const int early = Connect(9, "");
  for (int i = 0; i < 10'000; ++i) {
    // Descriptors of this test may be fewer.
    if (clients_.size() > 4'000) {
      ::close(clients_[1]);
      clients_.erase(clients_.begin() + 1);
    }
    Connect(2 + i % 2, "");
  }
  Connect(1, kGreeting);
  ASSERT_TRUE(Taken(1));
  ::send(early, kGreeting, 3, MSG_NOSIGNAL);
  EXPECT_TRUE(Taken(2));
}

TEST_F(FrontTest, OfThoseThatNobodyCallsOnANetworkHasAsManyAsItLeavesToOthers) {
  std::vector<int> first;
  for (size_t i = 0; i < Front::kQuiet / 2; ++i) first.push_back(Connect(2, kGreeting));
  ASSERT_TRUE(Taken(Front::kQuiet / 2));
  EXPECT_TRUE(Closed(Connect(2, kGreeting)));
  // Others have half of what is left.
  for (size_t i = 0; i < Front::kQuiet / 4; ++i) Connect(3, kGreeting);
  ASSERT_TRUE(Taken(Front::kQuiet * 3 / 4));
  EXPECT_TRUE(Closed(Connect(3, kGreeting)));
  Connect(4, kGreeting);
  ASSERT_TRUE(Taken(Front::kQuiet * 3 / 4 + 1));
  // A call makes one known. It now has as many as it leaves.
  front_->Called("ipv4:nonsense");
  for (size_t i = 0; i < Front::kQuiet / 8 + 2; ++i) front_->Called(NameOf(first[i]));
  Connect(2, kGreeting);
  ASSERT_TRUE(Taken(Front::kQuiet * 3 / 4 + 2));
}

TEST_F(FrontTest, ThoseThatHaveEndedCountNoMore) {
  for (size_t i = 0; i < Front::kQuiet / 2; ++i) Connect(2, kGreeting);
  ASSERT_TRUE(Taken(Front::kQuiet / 2));
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : taken_) ::close(fd);
    // Their numbers are used again, for other sockets.
    for (int& fd : taken_) fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  // They are looked at now and then: who is refused meanwhile comes again.
  const size_t before = Front::kQuiet / 2;
  for (int i = 0; i < 600; ++i) {
    const int fd = Connect(2, kGreeting);
    char byte;
    const timeval while_taken{.tv_sec = 0, .tv_usec = 100'000};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &while_taken, sizeof while_taken);
    if (::recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN) break;
  }
  EXPECT_TRUE(Taken(before + 1));
}

TEST_F(FrontTest, OnceStoppedItTakesNothing) {
  front_->Stop();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(front_->port()));
  const int fd = clients_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), -1);
  front_->Stop();
}

}  // namespace
}  // namespace fairway
