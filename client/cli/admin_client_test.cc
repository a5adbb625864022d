// SPDX-License-Identifier: Apache-2.0
#include "client/cli/admin_client.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "base/host.h"
#include "client/cli/process.h"
#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

// A controller that has one line of w0's log, and does not answer other requests.
class Controller final : public v1::Admin::CallbackService {
 public:
  Controller() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Controller() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return HostPort("127.0.0.1", port_); }
  // Whether the last call of GetLogs had a deadline.
  bool had_deadline() const { return had_deadline_; }

  grpc::ServerWriteReactor<v1::LogLine>* GetLogs(grpc::CallbackServerContext* context,
                                                 const v1::GetLogsRequest* request) override {
    had_deadline_ = context->deadline() != std::chrono::system_clock::time_point::max();
    return new Stream(request->process() == "w0");
  }

 private:
  class Stream final : public grpc::ServerWriteReactor<v1::LogLine> {
   public:
    explicit Stream(bool speaks) {
      line_.set_line("hello");
      if (speaks) StartWriteAndFinish(&line_, {}, grpc::Status::OK);
    }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    v1::LogLine line_;
  };

  int port_ = 0;
  bool had_deadline_ = false;
  std::unique_ptr<grpc::Server> server_;
};

TEST(AdminClientTest, WhoReadsLogsMayTakeHisTime) {
  Controller controller;
  v1::GetLogsRequest request;
  request.set_process("w0");
  std::string lines;
  const absl::Status status =
      AdminClient({.controller = controller.address()}).GetLogs(request, [&](const v1::LogLine& l) {
        lines += l.line();
      });
  EXPECT_TRUE(status.ok()) << Text(status);
  EXPECT_EQ(lines, "hello");
  EXPECT_FALSE(controller.had_deadline());
}

TEST(AdminClientTest, ASilentControllerIsToldFromNone) {
  Controller controller;
  const absl::Status status =
      AdminClient({.controller = controller.address()}).GetLogs({}, [](const v1::LogLine&) {});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << Text(status);
  EXPECT_THAT(Text(status), HasSubstr("no answer from " + controller.address() + " within 5 s"));
}

TEST(AdminClientTest, APortThatSpeaksNoGrpcIsToldFromNone) {
  for (const bool orderly : {true, false}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    const OwnedFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener.get(), any, size), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    ASSERT_EQ(::getsockname(listener.get(), any, &size), 0);
    // Hangs up. Bytes that it has not read by then make the close a reset.
    std::thread server([&] {
      const OwnedFd connection(::accept(listener.get(), nullptr, nullptr));
      char byte;
      ssize_t got = ::recv(connection.get(), &byte, 1, 0);
      if (orderly) ::shutdown(connection.get(), SHUT_WR);
      while (orderly && got > 0) got = ::recv(connection.get(), &byte, 1, 0);
    });
    const absl::Status status =
        AdminClient({.controller = HostPort("127.0.0.1", ntohs(address.sin_port))})
            .GetStatus()
            .status();
    server.join();
    EXPECT_TRUE(absl::IsUnavailable(status)) << Text(status);
    EXPECT_THAT(Text(status), HasSubstr("does not speak gRPC"));
    EXPECT_THAT(Text(status), HasSubstr("29000"));
  }
}

TEST(AdminClientTest, TakesTheAddressesThatThePythonPackageTakes) {
  Controller controller;
  v1::GetLogsRequest request;
  request.set_process("w0");
  const absl::Status status = AdminClient({.controller = "grpc://" + controller.address()})
                                  .GetLogs(request, [](const v1::LogLine&) {});
  EXPECT_TRUE(status.ok()) << Text(status);
  AdminClient bad({.controller = "http://127.0.0.1:1"});
  EXPECT_TRUE(absl::IsInvalidArgument(bad.GetLogs({}, nullptr)));
  EXPECT_TRUE(absl::IsInvalidArgument(bad.GetStatus().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(bad.Shutdown().status()));
}

}  // namespace
}  // namespace fairway
