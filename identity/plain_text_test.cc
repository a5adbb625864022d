// SPDX-License-Identifier: Apache-2.0
#include "identity/plain_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

TEST(PlainTextTest, OnlyLoopbackIsBoundWithoutCertificates) {
  for (const char* host : {"127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "localhost"})
    EXPECT_EQ(CheckPlainBind(host), absl::OkStatus()) << host;
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "192.0.2.1", "::ffff:10.0.0.1", "fe80::1"}) {
    const absl::Status status = CheckPlainBind(host);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << host;
    EXPECT_THAT(Text(status),
                testing::AllOf(HasSubstr(std::string("other hosts can reach ") + host),
                               HasSubstr("`fairway init DIRECTORY`")));
  }
  EXPECT_EQ(CheckPlainBind("1.2.3.4.5").code(), absl::StatusCode::kInvalidArgument);
}

// A listening socket at `host`, IPv4 or IPv6.
class Port {
 public:
  explicit Port(const char* host) {
    if (::inet_pton(AF_INET, host, &v4_.sin_addr) == 1) {
      v4_.sin_family = AF_INET;
      size_ = sizeof v4_;
    } else {
      EXPECT_EQ(::inet_pton(AF_INET6, host, &v6_.sin6_addr), 1);
      v6_.sin6_family = AF_INET6;
      size_ = sizeof v6_;
    }
    fd_ = ::socket(address()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(fd_, address(), size_), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    EXPECT_EQ(::getsockname(fd_, address(), &size_), 0);
  }
  ~Port() { ::close(fd_); }

  // Connects a socket of `family`: an IPv6 one reaches IPv4 addresses, too, as gRPC's do.
  int Connect(int family) {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 mapped{};
    if (family == AF_INET6 && v4_.sin_family == AF_INET) {
      mapped.sin6_family = AF_INET6;
      mapped.sin6_port = v4_.sin_port;
      ::inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
      return ::connect(fd, reinterpret_cast<sockaddr*>(&mapped), sizeof mapped) == 0 ? fd : -1;
    }
    return ::connect(fd, address(), size_) == 0 ? fd : -1;
  }
  int Accept() { return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  sockaddr* address() {
    return v4_.sin_family == AF_INET ? reinterpret_cast<sockaddr*>(&v4_)
                                     : reinterpret_cast<sockaddr*>(&v6_);
  }
  sockaddr_in v4_{};
  sockaddr_in6 v6_{};
  socklen_t size_ = 0;
  int fd_ = -1;
};

// Runs `what` in a process of another user; it ends when `done` is destroyed.
class Child {
 public:
  Child(uid_t user, const std::function<void()>& what) {
    int said[2], held[2];
    EXPECT_EQ(::pipe(said) + ::pipe(held), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(held[1]);
      if (::setuid(user) != 0) ::_exit(1);
      what();
      char byte = 0;
      (void)!::write(said[1], &byte, 1);
      (void)!::read(held[0], &byte, 1);  // until the parent has seen enough
      ::_exit(0);
    }
    ::close(held[0]);
    ::close(said[1]);
    char byte;
    EXPECT_EQ(::read(said[0], &byte, 1), 1);
    ::close(said[0]);
    end_ = held[1];
  }
  ~Child() {
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  int end_ = -1;
};

struct Way {
  const char* host;
  int family;
};

class PlainPeerTest : public testing::TestWithParam<Way> {};

TEST_P(PlainPeerTest, ThisUsersProcessesMaySpeak) {
  Port port(GetParam().host);
  const int theirs = port.Connect(GetParam().family);
  const int ours = port.Accept();
  ASSERT_TRUE(theirs >= 0 && ours >= 0);
  EXPECT_EQ(*UserOfPeer(ours), ::geteuid());
  EXPECT_EQ(*UserOfPeer(ours, true), ::geteuid());
  EXPECT_EQ(CheckPlainPeer(ours), absl::OkStatus());
  // The other end has this one as its peer.
  EXPECT_EQ(*UserOfPeer(theirs), ::geteuid());
  ::close(theirs);
  ::close(ours);
}

TEST_P(PlainPeerTest, AnEndThatItsProcessHasClosedIsNobodys) {
  Port port(GetParam().host);
  for (const bool reset : {false, true}) {
    const int theirs = port.Connect(GetParam().family);
    ASSERT_EQ(::send(theirs, "x", 1, MSG_NOSIGNAL), 1);
    const linger at_once{1, 0};
    if (reset) ::setsockopt(theirs, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(theirs);
    const int ours = port.Accept();
    ASSERT_GE(ours, 0);
    // Its bytes are there all the same.
    char byte;
    EXPECT_EQ(::recv(ours, &byte, 1, MSG_PEEK), 1);
    EXPECT_EQ(CheckPlainPeer(ours).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(UserOfPeer(ours, true).status().code(), absl::StatusCode::kNotFound);
    ::close(ours);
  }
}

TEST_P(PlainPeerTest, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Port port(GetParam().host);
  int ours = -1;
  {
    const Child nobody(kNobody, [&] {
      if (port.Connect(GetParam().family) < 0) ::_exit(1);
    });
    ours = port.Accept();
    ASSERT_GE(ours, 0);
    EXPECT_EQ(*UserOfPeer(ours), kNobody);
    EXPECT_EQ(*UserOfPeer(ours, true), kNobody);
    const absl::Status status = CheckPlainPeer(ours);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(Text(status), HasSubstr("it is user 65534's, and plain text is for user 0"));
  }
  // Its process has ended: what it sent is no better now.
  EXPECT_EQ(CheckPlainPeer(ours).code(), absl::StatusCode::kNotFound);
  ::close(ours);
}

TEST_P(PlainPeerTest, RootMaySpeakWithAnybodysProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Port port(GetParam().host);
  const int theirs = port.Connect(GetParam().family);
  const int ours = port.Accept();
  const Child nobody(kNobody, [&] {
    if (CheckPlainPeer(ours) != absl::OkStatus()) ::_exit(1);
  });
  ::close(theirs);
  ::close(ours);
}

INSTANTIATE_TEST_SUITE_P(All, PlainPeerTest,
                         testing::Values(Way{"127.0.0.1", AF_INET}, Way{"127.0.0.1", AF_INET6},
                                         Way{"::1", AF_INET6}),
                         [](const auto& way) {
                           return way.param.family == AF_INET ? "V4"
                                  : way.param.host[0] == '1'  ? "V4ByV6"
                                                              : "V6";
                         });

// The exit status of `what` in a process of its own.
int StatusOf(const std::function<int()>& what) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(what());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PlainTextTest, AUserThatStandsForAllUnknownOnesIsNotTakenForThisOne) {
  constexpr int kNoNamespaces = 77;
  Port port("127.0.0.1");
  const int status = StatusOf([&] {
    if (::unshare(CLONE_NEWUSER) != 0) return kNoNamespaces;  // it knows no user
    const int theirs = port.Connect(AF_INET), ours = port.Accept();
    if (theirs < 0 || *UserOfPeer(ours) != ::geteuid()) return 1;
    const absl::Status refused = CheckPlainPeer(ours);
    if (!absl::IsPermissionDenied(refused)) return 2;
    return Text(refused).find("it may be anybody's") == std::string::npos ? 3 : 0;
  });
  if (status == kNoNamespaces) GTEST_SKIP() << "no user namespace can be made here";
  EXPECT_EQ(status, 0);
}

TEST(PlainTextTest, WithoutDescriptorsTheKernelIsAskedAgainLater) {
  const int usual = StatusOf([] { return KernelAnswers() ? 1 : 0; });
  const int after = StatusOf([] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none{.rlim_cur = 3, .rlim_max = limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    if (KernelAnswers()) return 2;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return KernelAnswers() ? 1 : 0;
  });
  EXPECT_EQ(after, usual);
}

TEST(PlainTextTest, SocketsOfTheUnixDomainArePassed) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(CheckPlainPeer(ends[0]), absl::OkStatus());
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace fairway
