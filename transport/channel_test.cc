// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "async/run_until.h"
#include "identity/files_for_test.h"
#include "transport/link.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const Subject kController{Role::kController, ""};
const Subject kWorker{Role::kWorker, "w0"};

// Takes what is logged meanwhile: by the loop, and by the thread of the handshakes.
class TestLog {
 public:
  TestLog() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", text_));
  }
  ~TestLog() { spdlog::set_default_logger(before_); }
  std::string str() const { return text_->str(); }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string str() {
      std::lock_guard lock(mutex_);
      return text_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      text_.append(message.payload.data(), message.payload.size());
    }
    void flush_() override {}
    std::string text_;
  };

  const std::shared_ptr<Sink> text_ = std::make_shared<Sink>();
  const std::shared_ptr<spdlog::logger> before_;
};

class TlsLinks : public testing::Test {
 protected:
  void Listen(const TlsUse& tls) {
    auto server = ListenTcp(
        loop_, "127.0.0.1:0",
        [this](std::unique_ptr<Link> link) {
          link->on_frame = [](const Frame&) {};
          link->on_closed = [](const absl::Status&) {};
          accepted_.push_back(std::move(link));
        },
        tls);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

  // Connects and runs until both ends have the link or something has failed. A server without TLS
  // has it before the client knows that its handshake fails.
  absl::Status Connect(const TlsUse& tls) {
    std::optional<absl::Status> outcome;
    bool connected = false;
    const size_t before = accepted_.size();
    ConnectTcp(
        loop_, address(), seconds(120),
        [&](absl::StatusOr<std::unique_ptr<Link>> link) {
          connected = link.ok();
          if (!link.ok()) {
            outcome = link.status();
            return;
          }
          link_ = *std::move(link);
          link_->on_frame = [](const Frame&) {};
          link_->on_closed = [&](const absl::Status& why) { outcome = why; };
        },
        tls);
    EXPECT_TRUE(
        RunUntil(loop_, [&] { return outcome || (connected && accepted_.size() > before); }));
    if (link_ != nullptr) link_->on_closed = [](const absl::Status&) {};
    return outcome.value_or(absl::OkStatus());
  }
  // The files as a worker reads them, or as the controller does.
  std::shared_ptr<TlsIdentity> Load(const TlsFiles& files, Role role) {
    return TlsIdentity::Load(files, role).value();
  }

  TestLog log_;  // ends last: identities have threads that log
  CertificateFiles files_, others_;
  EventLoop loop_;
  std::unique_ptr<LinkServer> server_;
  std::vector<std::unique_ptr<Link>> accepted_;
  std::unique_ptr<Link> link_;
};

TEST_F(TlsLinks, BothEndsKnowWhoIsThere) {
  Listen({files_.Controller(), Role::kWorker});
  ASSERT_EQ(Connect({files_.Worker("w0"), Role::kController}), absl::OkStatus());
  EXPECT_EQ(accepted_[0]->subject(), kWorker);
  EXPECT_EQ(link_->subject(), kController);
}

TEST_F(TlsLinks, SomebodyOfAnotherClusterIsRefusedByBothEnds) {
  Listen({files_.Controller(), Role::kWorker});
  const absl::Status status = Connect({others_.Worker("w0"), Role::kController});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("cannot connect to " + address()),
                                  HasSubstr("the certificate of controller is refused"),
                                  HasSubstr("signed by a CA in --tls-ca")));
  EXPECT_TRUE(accepted_.empty());
}

TEST_F(TlsLinks, AWorkerCannotPassForAController) {
  Listen({files_.Worker("w1"), Role::kWorker});
  const absl::Status status = Connect({files_.Worker("w0"), Role::kController});
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(status), HasSubstr("it is the worker w1, and a controller was expected"));
}

TEST_F(TlsLinks, TheServerSaysWhomItRefuses) {
  Listen({files_.Controller(), Role::kWorker});
  // It signs itself what it cannot sign for others.
  Connect({files_.Controller(), Role::kController});
  ASSERT_TRUE(RunUntil(loop_, [&] { return !log_.str().empty(); }));
  EXPECT_THAT(log_.str(), HasSubstr("it is the controller, and a worker was expected"));
  EXPECT_TRUE(accepted_.empty());
}

TEST_F(TlsLinks, AnEndWithoutTlsIsTold) {
  Listen({files_.Controller(), Role::kWorker});
  ConnectTcp(loop_, address(), seconds(120), [&](absl::StatusOr<std::unique_ptr<Link>> link) {
    link_ = *std::move(link);
    link_->on_frame = [](const Frame&) {};
    link_->on_closed = [](const absl::Status&) {};
    link_->Send(Frame{.type = 1, .payload = "hello"});
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return !log_.str().empty(); }));
  EXPECT_THAT(log_.str(), HasSubstr("does not speak TLS: give both ends --tls-ca"));
  EXPECT_TRUE(accepted_.empty());

  Listen({});
  const absl::Status status = Connect({files_.Worker("w0"), Role::kController});
  EXPECT_THAT(Text(status), HasSubstr("cannot connect to " + address()));
}

TEST_F(TlsLinks, AConnectionEndsWhoseCertificateCountsNoLonger) {
  for (const bool dialed : {false, true}) {  // which end has heard of it
    const auto controller = files_.Controller(), worker = files_.Worker("w0");
    TlsIdentity& hears = dialed ? *worker : *controller;
    // Here both are workers, as at a data port.
    const auto other = files_.Worker("w1");
    Listen({dialed ? other : controller, Role::kWorker});
    ASSERT_EQ(Connect({worker, dialed ? Role::kWorker : Role::kController}), absl::OkStatus());
    bool ended = false;
    link_->on_closed = [&](const absl::Status&) { ended = true; };
    hears.revocations().Revoke("w2", {});
    EXPECT_EQ(hears.revocations().EndRevoked(), 0u);
    hears.revocations().Revoke(dialed ? "w1" : "w0", {});
    EXPECT_EQ(hears.revocations().EndRevoked(), 1u);
    EXPECT_TRUE(RunUntil(loop_, [&] { return ended; }));
    link_ = nullptr;
    accepted_.clear();
    EXPECT_EQ(hears.revocations().EndRevoked(), 0u);
  }
}

TEST_F(TlsLinks, ACutIsNotAnEnd) {
  Listen({files_.Controller(), Role::kWorker});
  ASSERT_EQ(Connect({files_.Worker("w0"), Role::kController}), absl::OkStatus());
  std::optional<absl::Status> closed;
  accepted_[0]->on_closed = [&](const absl::Status& why) { closed = why; };
  link_->Close();
  ASSERT_TRUE(RunUntil(loop_, [&] { return closed.has_value(); }));
  EXPECT_EQ(*closed, absl::OkStatus());

  ASSERT_EQ(Connect({files_.Worker("w0"), Role::kController}), absl::OkStatus());
  closed.reset();
  accepted_[1]->on_closed = [&](const absl::Status& why) { closed = why; };
  link_ = nullptr;  // the connection ends without a word
  ASSERT_TRUE(RunUntil(loop_, [&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code(), absl::StatusCode::kAborted);
}

TEST_F(TlsLinks, AWorkerWhoseCertificateIsRefusedIsToldSo) {
  Listen({files_.Controller(), Role::kWorker});
  // It believes the controller, but its own certificate is of another CA.
  const TlsFiles mine = others_.Files(kWorker);
  const auto worker = Load(
      {files_.Write("both.pem", files_.authority().certificate + others_.authority().certificate),
       mine.certificate, mine.key},
      Role::kWorker);
  std::optional<absl::Status> closed;
  ConnectTcp(loop_, address(), seconds(120),
             [&](absl::StatusOr<std::unique_ptr<Link>> link) {
               ASSERT_TRUE(link.ok()) << link.status();  // as far as it knows
               link_ = *std::move(link);
               link_->on_frame = [](const Frame&) {};
               link_->on_closed = [&](const absl::Status& why) { closed = why; };
             },
             {worker, Role::kController});
  ASSERT_TRUE(RunUntil(loop_, [&] { return closed.has_value(); }));
  EXPECT_THAT(Text(*closed), AllOf(HasSubstr("the other end refuses this one's certificate"),
                                   HasSubstr("unknown ca"), HasSubstr("its log says why")));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !log_.str().empty(); }));
  EXPECT_THAT(log_.str(), HasSubstr("the certificate of worker w0 is refused"));
}

// Two ends of a connection by TLS, on one thread.
class TlsChannels : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const auto shake = [this](int fd, const TlsUse& use, TlsSide side,
                              std::optional<Channel>& out) {
      StreamSocket socket(io_, boost::asio::generic::stream_protocol(AF_UNIX, 0), fd);
      Secure(std::move(socket), use, side, seconds(120), [&out](absl::StatusOr<Channel> channel) {
        ASSERT_TRUE(channel.ok()) << channel.status();
        out.emplace(*std::move(channel));
      });
    };
    shake(fds[0], {files_.Controller(), Role::kWorker}, TlsSide::kServer, server_);
    shake(fds[1], {files_.Worker("w0"), Role::kController}, TlsSide::kClient, client_);
    Run();
    ASSERT_TRUE(server_ && client_);
  }
  void Run() {
    io_.restart();
    io_.run();
  }
  // Each is a record of its own.
  void Write(const std::string& text) {
    client_->Write(boost::asio::buffer(text),
                   [](const boost::system::error_code& error, size_t) { ASSERT_FALSE(error); });
    Run();
  }
  // Reads `size` bytes at the server's end, or fewer and the error.
  std::string Read(size_t size) {
    std::string out;
    while (out.size() < size) {
      std::string part(size - out.size(), ' ');
      boost::system::error_code failed;
      server_->ReadSome(boost::asio::buffer(part),
                        [&](const boost::system::error_code& error, size_t count) {
                          failed = error;
                          part.resize(count);
                        });
      Run();
      out += part;
      if (failed) return out + ": " + failed.message();
    }
    return out;
  }

  CertificateFiles files_, others_;
  boost::asio::io_context io_;
  std::optional<Channel> server_, client_;
};

// OpenSSL's own shutdown reads for the peer's end, and fails if there is something else. Then
// nothing more can be read, and closing with unread bytes loses what has not left yet.
TEST_F(TlsChannels, WhatThePeerHasSentIsReadAfterTheEndIsSaid) {
  for (const char* text : {"first", "second", "third"}) Write(text);
  EXPECT_EQ(Read(1), "f");  // OpenSSL has the others now
  bool said = false;
  server_->EndWriting([&] { said = true; });
  Run();
  EXPECT_TRUE(said);
  EXPECT_EQ(Read(15), "irstsecondthird");
  Write("fourth");
  EXPECT_EQ(Read(6), "fourth");
}

TEST_F(TlsChannels, AServerShakesHandsWhileItsLoopIsBusy) {
  Handshakes handshakes({files_.Controller(), Role::kWorker});
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const boost::asio::generic::stream_protocol unix_socket(AF_UNIX, 0);
  server_.reset();
  handshakes.Start(StreamSocket(io_, unix_socket, fds[0]),
                   [this](Channel channel) { server_.emplace(std::move(channel)); });
  boost::asio::io_context other;  // io_ does not run meanwhile
  bool shaken = false;
  std::optional<Channel> client;
  Secure(StreamSocket(other, unix_socket, fds[1]), {files_.Worker("w0"), Role::kController},
         TlsSide::kClient, seconds(60), [&](absl::StatusOr<Channel> channel) {
           ASSERT_TRUE(channel.ok()) << channel.status();
           client.emplace(*std::move(channel));
           shaken = true;
         });
  other.run();
  ASSERT_TRUE(shaken);
  EXPECT_FALSE(server_.has_value());
  // What comes before the loop has the connection is not lost.
  const std::string text = "early";
  client->Write(boost::asio::buffer(text), [](const boost::system::error_code&, size_t) {});
  other.restart();
  other.run();
  Run();
  ASSERT_TRUE(server_.has_value());
  EXPECT_EQ(server_->peer(), kWorker);
  EXPECT_EQ(Read(text.size()), text);
}

// As when the workers behind one address lose their connections together.
TEST_F(TlsChannels, ADaemonThatIsKnownLeavesItsHandshakeToOthersOfItsNetwork) {
  const auto now = std::chrono::steady_clock::now();
  Handshakes handshakes({files_.Controller(), Role::kWorker}, [now] { return now; });
  int known = 0;
  const auto shake = [&](const TlsUse& use) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const boost::asio::generic::stream_protocol unix_socket(AF_UNIX, 0);
    handshakes.Start(StreamSocket(io_, unix_socket, fds[0]), [&](const Channel&) { ++known; });
    Secure(StreamSocket(io_, unix_socket, fds[1]), use, TlsSide::kClient, seconds(120),
           [](const absl::StatusOr<Channel>&) {});
    Run();
  };
  const TlsUse worker{files_.Worker("w0"), Role::kController};
  for (int i = 0; i < Pace::kAtOnce + 50; ++i) shake(worker);
  EXPECT_EQ(known, Pace::kAtOnce + 50);
  // Those whom the port refuses leave nothing.
  const TlsUse stranger{others_.Worker("w0"), Role::kController};
  for (int i = 0; i < Pace::kAtOnce; ++i) shake(stranger);
  shake(worker);
  EXPECT_EQ(known, Pace::kAtOnce + 50);
}

// Connections to `port` of 127.0.0.1, from 127.0.0.`host`, that say nothing. After each one `step`.
std::vector<int> Silent(int port, uint32_t host, size_t count, const std::function<void()>& step) {
  std::vector<int> out;
  sockaddr_in to{}, from{};
  to.sin_family = from.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  for (size_t i = 0; i < count; ++i) {
    const int fd = out.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    step();
  }
  return out;
}
// Closes them, and says how many the other end had closed.
size_t CloseAll(const std::vector<int>& sockets) {
  size_t gone = 0;
  for (const int fd : sockets) {
    char byte;
    if (::recv(fd, &byte, 1, MSG_DONTWAIT) == 0) ++gone;
    ::close(fd);
  }
  return gone;
}

TEST_F(TlsLinks, WhoLooksWhetherThePortIsOpenIsNotLogged) {
  Listen({files_.Controller(), Role::kWorker});
  CloseAll(Silent(server_->port(), 1, 1, [this] {
    loop_.io_context().restart();
    loop_.io_context().poll();
  }));
  // Of the same thread, and so behind it.
  Connect({files_.Controller(), Role::kController});
  ASSERT_TRUE(RunUntil(loop_, [&] { return !log_.str().empty(); }));
  EXPECT_THAT(log_.str(), HasSubstr("it is the controller, and a worker was expected"));
}

TEST_F(TlsLinks, ThoseWhoSayNothingKeepNobodyOut) {
  Listen({files_.Controller(), Role::kWorker});
  const auto silent = Silent(server_->port(), 2, 2 * Strangers::kMost, [this] {
    loop_.io_context().restart();
    loop_.io_context().poll();
  });
  ASSERT_EQ(Connect({files_.Worker("w0"), Role::kController}), absl::OkStatus());
  const size_t gone = CloseAll(silent);
  // All but those that may be under way, and the one that made room for the worker.
  EXPECT_GE(gone, Strangers::kMost);
}

}  // namespace
}  // namespace fairway
