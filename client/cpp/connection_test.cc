// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host.h"

namespace fairway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A controller that answers every request, and ends a session at its ping.
class Controller final : public v1::Client::Service {
 public:
  Controller() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Controller() override { Die(); }
  std::string address() const { return HostPort("127.0.0.1", port_); }
  void Die() { server_->Shutdown(std::chrono::system_clock::now()); }

  // The texts of the requests, in order.
  std::vector<std::string> texts;

 private:
  using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>;

  grpc::Status Session(grpc::ServerContext*, Stream* stream) override {
    v1::ClientMessage message;
    while (stream->Read(&message)) {
      v1::ServerMessage answers;
      for (const v1::Request& request : message.requests()) {
        if (request.has_ping()) return {grpc::StatusCode::ABORTED, "no pings here"};
        if (request.has_hello()) texts.push_back(request.hello().tenant());
        if (request.has_make_error()) texts.push_back(request.make_error().error().text());
        if (request.has_put()) texts.push_back(request.put().spec().sharding().memory_kind());
        if (request.has_compile()) texts.push_back(TextsOf(request.compile()));
        if (request.has_bind_program())
          texts.push_back(TextsOf(request.bind_program().program().program()));
        if (request.id() == 0) continue;
        v1::Answer* answer = answers.add_answers();
        answer->set_id(request.id());
        if (request.has_hello()) answer->mutable_welcome()->set_server("test");
      }
      if (answers.answers_size() > 0) stream->Write(answers);
    }
    return grpc::Status::OK;
  }
  static std::string TextsOf(const v1::Compile& compile) {
    std::string text = compile.native().name();
    for (const v1::CompilerOption& option : compile.options().compiler_options())
      text += option.name() + "=" + option.text();
    return text;
  }
  static std::string TextsOf(const v1::Program& program) {
    const v1::Node& node = program.graphs(0).nodes(0);
    std::string text = program.name() + " " + program.slices(0).name();
    for (const v1::Computation& computation : program.computations())
      text += " " + computation.name();
    return text + " " + node.name() + " " + node.source();
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Binds the socket to a free port of 127.0.0.1.
sockaddr_in BoundToLoopback(int fd) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return address;
}

// Returns the kernel's limit for unacknowledged bytes of the socket that is connected to `port`;
// gRPC sets it to the timeout of its keepalive pings. -1: no such socket.
int UserTimeoutMs(in_port_t port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sin_port != port)
      continue;
    int value = -1;
    size = sizeof(value);
    ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size);
    return value;
  }
  return -1;
}

// It would take minutes to see a ping end a session; without pings this time would be 0.
TEST(ConnectionTest, WaitsTwoMinutesForAControllerThatIsSilent) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = BoundToLoopback(listener);
  ASSERT_EQ(::listen(listener, 8), 0);
  std::thread opener([&] {
    const std::string target = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    EXPECT_FALSE(Connection::Open(target, {}).ok());
  });
  const int accepted = ::accept(listener, nullptr, nullptr);
  EXPECT_EQ(UserTimeoutMs(address.sin_port), 120 * 1000);
  ::close(listener);
  ::close(accepted);
  opener.join();
}

// The stream's last read fails before the reason is known.
TEST(ConnectionTest, WhatIsAskedWhileASessionEndsHearsWhy) {
  Controller controller;
  for (int i = 0; i < 100; ++i) {
    const auto connection = Connection::Open(controller.address(), {});
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    const auto ping = [](v1::Request& request) { request.mutable_ping(); };
    Status status;
    while (status.ok()) status = (*connection)->Send(ping);
    ASSERT_EQ(status.ToString(), "ABORTED: no pings here") << i;
    (*connection)->Close();
  }
}

// This is the last channel of the process, and gRPC's own thread must not end it.
TEST(ConnectionTest, ASessionMayEndInItsOwnCallback) {
  Controller controller;
  for (int i = 0; i < 100; ++i) {
    auto connected = Connect(controller.address());
    ASSERT_TRUE(connected.ok()) << connected.status().ToString();
    auto session = std::make_shared<Session>(std::move(connected).value());
    Promise<Status> ended;
    const Future<Status> ping = session->Ping();
    ping.Then([session = std::move(session), ended](const Status& status) mutable {
      session.reset();
      ended.Set(status);
    });
    EXPECT_EQ(ended.future().Get().ToString(), "ABORTED: no pings here");
  }
}

TEST(ConnectionTest, WhatIsUploadedIsLetGoOfWhenCloseReturns) {
  Controller controller;
  for (int i = 0; i < 100; ++i) {
    auto session = Connect(controller.address());
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    auto bytes = std::make_shared<std::vector<uint8_t>>(size_t{4} << 20);
    const std::weak_ptr<const void> kept = bytes;
    const void* const data = bytes->data();
    session->Put({data, DType::kU8, {int64_t{4} << 20}, std::move(bytes)}, Sharding::Single(0));
    session->Close();
    ASSERT_TRUE(kept.expired()) << i;
  }
}

TEST(ConnectionTest, AControllerThatIsGoneIsNamedWithWhatToDo) {
  Controller controller;
  const auto session = Connect(controller.address());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  controller.Die();
  Status status;
  while (status.ok()) status = session->status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), StartsWith("the connection to the controller at " +
                                           controller.address() + " was lost: "));
  EXPECT_THAT(status.message(), HasSubstr("a session does not come back: "));
}

TEST(ConnectTest, APortThatNobodyListensOnIsAlwaysNamedSo) {
  const int held = ::socket(AF_INET, SOCK_STREAM, 0);
  const std::string target = HostPort("127.0.0.1", ntohs(BoundToLoopback(held).sin_port));
  std::set<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.insert(Connect(target).status().ToString());
  ::close(held);
  EXPECT_THAT(texts, ElementsAre(AllOf(StartsWith("UNAVAILABLE: connecting to " + target + ": "),
                                       HasSubstr("Connection refused"))));
}

TEST(SessionTest, BytesThatAreNotThereMakeAnErrorArray) {
  Controller controller;
  auto session = Connect(controller.address());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const HostBytes none{nullptr, DType::kF32, {2, 3}};
  const std::string text =
      "INVALID_ARGUMENT: put: HostBytes::data is null, but f32[2,3] has 24 bytes";
  EXPECT_EQ(session->Put(none, Sharding::Single(0)).Ready().Get().ToString(), text);
  EXPECT_EQ(session->Put(none, Sharding::Tiled({0, 1, 2}, {1, 3})).Ready().Get().ToString(), text);
  // An array without elements may have null data.
  const HostBytes empty{nullptr, DType::kF32, {0, 3}};
  EXPECT_TRUE(session->Put(empty, Sharding::Single(0)).Ready().Get().ok());
  EXPECT_TRUE(session->Put(empty, Sharding::Tiled({0, 1, 2}, {1, 3})).Ready().Get().ok());
}

// Protobuf would refuse the whole message, which would end the session.
TEST(SessionTest, TextThatIsNoUtf8EndsNoSession) {
  Controller controller;
  const std::string bad = "a\xff";
  auto session = Connect(controller.address(), {.tenant = bad});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const ArraySpec spec{DType::kF32, {1}, Sharding::Single(0)};
  const auto error = session->MakeError(spec, Status(StatusCode::kAborted, bad));
  ArraySpec kind = spec;
  kind.sharding.memory_kind = bad;
  const auto put = session->Put(std::vector<float>{1}, {1}, kind.sharding);
  CompileOptions options;
  options.compiler_options = {{bad, bad}};
  const auto hlo = session->CompileStableHlo("", {0}, options);
  NativeProgram native(bad);
  native.Result(native.Parameter(DType::kF32, {1}));
  const auto compiled = session->Compile(native, {0});
  ProgramBuilder program(bad);
  const auto slice = program.AddSlice(bad, 1);
  program.AddNative(native, 1, {});
  program.AddStableHlo(bad, "", 1, {}, {});
  program.At(bad, bad).Argument(slice, {DType::kF32, {1}});
  EXPECT_TRUE(session->Bind(program, {{0}}).Get().ok());
  EXPECT_TRUE(session->status().ok()) << session->status().ToString();
  EXPECT_THAT(controller.texts, ElementsAre("a?", "a?", "a?", "a?=a?", "a?", "a? a? a? a? a? a?"));
}

TEST(ConnectTest, AnAddressThatIsNoneIsInvalid) {
  const Status status = Connect("http://127.0.0.1:1").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("expected host:port"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace fairway::client
