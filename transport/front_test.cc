// SPDX-License-Identifier: Apache-2.0
#include "transport/front.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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
    Start();
  }
  void Start() {
    front_->Start([this](int fd) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(fd);
      changed_.notify_all();
    });
  }
  void TearDown() override {
    front_ = nullptr;
    CloseAll();
  }
  void CloseAll() {
    for (const int fd : taken_) ::close(fd);
    for (const int fd : clients_) ::close(fd);
    taken_.clear();
    clients_.clear();
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
  // Whether it is open, and nothing has come.
  static bool Open(int fd) {
    char byte;
    return ::recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
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

TEST_F(FrontTest, ForOneMoreThatHasNotProvedItselfTheOldestOfTheNetworkThatHasMostEnds) {
  std::vector<int> first;
  for (size_t i = 0; i < Front::kQuiet; ++i) {
    first.push_back(Connect(2, kGreeting));
    ASSERT_TRUE(Taken(i + 1));  // in their order
  }
  EXPECT_EQ(front_->LetIn("ipv4:nonsense", 0).value(), nullptr);
  EXPECT_NE(front_->LetIn(NameOf(first[0]), 0).value(), nullptr);
  const int other = Connect(3, kGreeting);
  ASSERT_TRUE(Taken(Front::kQuiet + 1));
  EXPECT_TRUE(Open(first[1]));  // there was room for one
  Connect(3, kGreeting);
  EXPECT_TRUE(Closed(first[1]));
  Connect(2, kGreeting);
  EXPECT_TRUE(Closed(first[2]));
  EXPECT_TRUE(Open(first[0]));
  EXPECT_TRUE(Open(other));
}

TEST_F(FrontTest, ManyNetworksKeepNobodyOfAnotherOut) {
  size_t count = 0;
  for (int host = 2; host < 14; ++host) {
    for (size_t i = 0; i < Front::kQuiet / 12 + 1; ++i, ++count) Connect(host, kGreeting);
  }
  ASSERT_TRUE(Taken(count));
  const int other = Connect(14, kGreeting);
  ASSERT_TRUE(Taken(count + 1));
  EXPECT_TRUE(Open(other));
}

TEST_F(FrontTest, OverAThousandNetworksEndNoneOfANetworkOfWhichACallWasLetIn) {
  const int known = Connect(2, kGreeting);
  ASSERT_TRUE(Taken(1));
  ASSERT_TRUE(front_->LetIn(NameOf(known), 7).ok());
  const int early = Connect(2, kGreeting);
  ASSERT_TRUE(Taken(2));
  for (size_t i = 0; i < Front::kQuiet + 100; ++i) {
    Connect(static_cast<int>(1000 + i), kGreeting);
    ASSERT_TRUE(Taken(3 + i));
  }
  EXPECT_TRUE(Open(early));
  EXPECT_TRUE(Closed(clients_[2]));
}

TEST_F(FrontTest, ThoseThatHaveEndedCountNoMoreAndWhatHasTheirNumbersGoesOn) {
  for (size_t i = 0; i < Front::kQuiet; ++i) Connect(2, kGreeting);
  ASSERT_TRUE(Taken(Front::kQuiet));
  std::vector<int> others;
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : taken_) ::close(fd);
    for (size_t i = 0; i < Front::kQuiet / 2; ++i) {
      std::array<int, 2> pair{};
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
      others.insert(others.end(), pair.begin(), pair.end());
    }
    taken_ = others;
  }
  const int first = Connect(2, kGreeting);
  for (size_t i = 1; i < Front::kQuiet; ++i) Connect(2, kGreeting);
  ASSERT_TRUE(Taken(2 * Front::kQuiet));
  EXPECT_TRUE(Open(first));
  for (const int fd : others) ASSERT_TRUE(Open(fd));
}

class DeafCall final : public Inflow::Call {
 public:
  void Over(const absl::Status&) override {}
};

// Half of the open files: of a token, or of an address where nobody is asked for one.
TEST_F(FrontTest, ConnectionsOnWhichCallsWereLetInLeaveHalfOfTheOpenFilesToOthers) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few{.rlim_cur = 64, .rlim_max = limit.rlim_max};
  const auto call = std::make_shared<DeafCall>();
  const auto let_in = [&](int host, int64_t token) {
    const int fd = Connect(host, kGreeting);
    EXPECT_TRUE(Taken(clients_.size()));
    return front_->LetIn(NameOf(fd), token);
  };
  for (const int64_t token : {0, 7}) {
    ::setrlimit(RLIMIT_NOFILE, &few);
    front_ = *Front::Listen("127.0.0.1", 0, {});
    ::setrlimit(RLIMIT_NOFILE, &limit);
    Start();
    for (int i = 0; i < 32; ++i) {
      const auto inflow = let_in(2, token);
      ASSERT_TRUE(inflow.ok()) << inflow.status();
      (*inflow)->Begin(call);
    }
    const absl::Status refused = let_in(2, token).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Text(refused), testing::HasSubstr(token == 0 ? "address 127.0.0.2 has 32 of"
                                                             : "token 7 has 32 of"));
    EXPECT_TRUE(Open(clients_.back()));
    EXPECT_TRUE(let_in(3, token == 0 ? 0 : 8).ok());
    front_ = nullptr;
    CloseAll();
  }
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
