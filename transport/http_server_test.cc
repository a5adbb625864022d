// SPDX-License-Identifier: Apache-2.0
#include "transport/http_server.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Connects `fd`, sends `request`, reads until the server closes, and closes `fd`.
std::string Ask(int fd, int port, const std::string& request) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string out;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    ssize_t n;
    while ((n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0)
      out.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return out;
}
std::string Ask(int port, const std::string& request) {
  return Ask(::socket(AF_INET, SOCK_STREAM, 0), port, request);
}

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Listen(loop_, "127.0.0.1", 0, [](const HttpRequest& request) {
      const std::string_view path = request.path;
      if (path == "/headers")
        return HttpAnswer{
            .body = fmt::format("{},{},{}\n", request.host, request.origin, request.site)};
      if (path == "/peer")
        return HttpAnswer{.body = fmt::format("{},{},{},{},{}\n", request.peer, request.address,
                                              request.secure ? 1 : 0, request.not_ours,
                                              request.authorization)};
      if (path == "/late")
        return HttpAnswer{.status = 401, .body = "late\n", .delay = std::chrono::milliseconds(20)};
      if (path == "/big") return HttpAnswer{.body = std::string(1 << 20, 'x')};
      if (path == "/no") return HttpAnswer{.status = 503, .body = "not ready\n"};
      return HttpAnswer{.body = "path " + std::string(path) + "\n"};
    });
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
    port_ = server_->port();
    thread_ = std::thread([this] { loop_.Run(); });
  }
  void TearDown() override {
    loop_.Post("stop", [this] {
      server_.reset();
      loop_.Stop();
    });
    thread_.join();
  }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(HttpServerTest, AnswersWithStatusTypeAndBody) {
  const std::string answer =
      Ask(port_, "GET /healthz?x=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\npath /healthz\n"));
  EXPECT_THAT(Ask(port_, "GET /no HTTP/1.1\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, TellsWhichPageAsks) {
  EXPECT_THAT(
      Ask(port_,
          "GET /headers HTTP/1.1\r\nhost: a:1\r\norigin: http://b\r\nsec-fetch-site: none\r\n"
          "Connection: close\r\n\r\n"),
      EndsWith("\r\n\r\na:1,http://b,none\n"));
  EXPECT_THAT(Ask(port_, "GET /headers HTTP/1.1\r\nConnection: close\r\n\r\n"),
              EndsWith("\r\n\r\n,,\n"));
}

TEST_F(HttpServerTest, KeepsAConnectionForSeveralRequests) {
  const std::string answer =
      Ask(port_, "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("path /a\n"));
  EXPECT_THAT(answer, EndsWith("path /b\n"));
}

TEST_F(HttpServerTest, SendsLargeBodiesWhole) {
  const std::string answer = Ask(port_, "GET /big HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, size_t{1} << 20);
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  const std::string answer = Ask(port_, "HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 8"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, RefusesOtherMethodsAndLargeRequests) {
  EXPECT_THAT(Ask(port_, "DELETE /a HTTP/1.1\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(port_, "POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask(port_, "GET /a HTTP/1.1\r\nX: " + std::string(64 << 10, 'y') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, NoAnswerMayBeUsedByAnotherSite) {
  const std::string answer = Ask(port_, "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer,
              HasSubstr("Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("Access-Control")));
}

TEST_F(HttpServerTest, TellsWhereTheRequestCameInAndThatItsUserMayAsk) {
  EXPECT_THAT(
      Ask(port_, "GET /peer HTTP/1.1\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n"),
      ::testing::ContainsRegex("\r\n\r\n127.0.0.1:[0-9]+,127.0.0.1,0,,Bearer x\n"));
}

TEST_F(HttpServerTest, AnAnswerMayBeLate) {
  const std::string answer = Ask(port_, "GET /late HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nlate\n"));
}

// A connected socket.
int Connected(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST_F(HttpServerTest, ThoseWhoSayNothingMakeRoomForThoseWhoAsk) {
  std::vector<int> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Connected(port_));
  EXPECT_THAT(Ask(port_, "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n"), EndsWith("path /a\n"));
  // The oldest have gone.
  char byte;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(::recv(silent[i], &byte, 1, 0), 0) << i;
  EXPECT_EQ(::recv(silent[199], &byte, 1, MSG_DONTWAIT), -1);
  for (const int fd : silent) ::close(fd);
}

TEST_F(HttpServerTest, WhoTakesTooLongToAskIsLetGoOf) {
  const int silent = Connected(port_), slow = Connected(port_);
  ASSERT_EQ(::send(slow, "GET /", 5, MSG_NOSIGNAL), 5);
  char byte;
  for (const int fd : {silent, slow}) {
    EXPECT_EQ(::recv(fd, &byte, 1, 0), 0);
    ::close(fd);
  }
}

TEST_F(HttpServerTest, RestsWhileThereAreNoDescriptors) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "the sanitizer looks at memory through a pipe, which takes descriptors";
#endif
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::thread asker([&] {
    EXPECT_THAT(Ask(fd, port_, "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n"),
                EndsWith("path /a\n"));
  });
  // The processor time of the loop during half a second.
  const auto seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  };
  std::promise<double> used;
  loop_.Post("begin", [&] {
    loop_.PostAfter(std::chrono::milliseconds(500), "end",
                    [&, begin = seconds()] { used.set_value(seconds() - begin); });
  });
  EXPECT_LT(used.get_future().get(), 0.05);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  asker.join();
}

TEST_F(HttpServerTest, NamesAPortInUse) {
  const auto second = HttpServer::Listen(loop_, "127.0.0.1", port_, nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(second.status()), HasSubstr(fmt::format("port {} is taken", port_)));
}

}  // namespace
}  // namespace fairway
