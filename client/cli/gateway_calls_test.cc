// SPDX-License-Identifier: Apache-2.0
#include "client/cli/gateway_calls.h"

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "base/host.h"
#include "fairway/v1/admin.grpc.pb.h"
#include "fairway/v1/client.grpc.pb.h"

namespace fairway {
namespace {

// gRPC 1.51 may hang when its last user in a process is gone; so there is one more.
const bool grpc_stays = (grpc_init(), true);

// What is beyond the gateway. A session gets for each message one with as many answers as it had
// requests, and ends with ABORTED when the client has sent its last.
class Beyond final : public v1::Client::Service {
 public:
  Beyond() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Beyond() override { Die(); }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(HostPort("127.0.0.1", port_), grpc::InsecureChannelCredentials());
  }
  void Die() { server_->Shutdown(std::chrono::system_clock::now()); }

  std::promise<std::string> header;  // the client's
  std::promise<void> ended;          // nothing more comes from the client

 private:
  using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>;
  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override {
    const auto found = context->client_metadata().find("some-bin");
    header.set_value(found == context->client_metadata().end()
                         ? "none"
                         : std::string(found->second.data(), found->second.size()));
    v1::ClientMessage message;
    while (stream->Read(&message)) {
      v1::ServerMessage answer;
      for (int i = 0; i < message.requests_size(); ++i)
        answer.add_answers()->set_id(static_cast<uint64_t>(i));
      stream->Write(answer);
    }
    ended.set_value();
    return {grpc::StatusCode::ABORTED, "that was all"};
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A channel to the gateway.
std::shared_ptr<grpc::Channel> ChannelBy(GatewayCalls& gateway) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  gateway.Serve(ends[0]);
  return grpc::CreateInsecureChannelFromFd("gateway", ends[1]);
}

class GatewayCallsTest : public ::testing::Test {
 protected:
  Beyond controller_;
  const std::shared_ptr<grpc::Channel> there_ = controller_.Channel();
  GatewayCalls gateway_{there_};
  const std::shared_ptr<grpc::Channel> channel_ = ChannelBy(gateway_);
  grpc::ClientContext context_;
};

TEST_F(GatewayCallsTest, PassesMessagesHeadersAndTheEndOn) {
  context_.AddMetadata("some-bin", std::string("\0\xff", 2));
  const auto stream = v1::Client::NewStub(channel_)->Session(&context_);
  EXPECT_EQ(controller_.header.get_future().get(), std::string("\0\xff", 2));
  v1::ServerMessage answer;
  for (const int requests : {0, 1, 100000}) {
    v1::ClientMessage message;
    for (int i = 0; i < requests; ++i) message.add_requests();
    ASSERT_TRUE(stream->Write(message));
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_EQ(answer.answers_size(), requests);
  }
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&answer));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "that was all");
}

TEST_F(GatewayCallsTest, PassesACancellationOn) {
  const auto stream = v1::Client::NewStub(channel_)->Session(&context_);
  controller_.header.get_future().get();
  context_.TryCancel();
  controller_.ended.get_future().get();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GatewayCallsTest, TheEndOfTheControllerEndsItsCalls) {
  const auto stream = v1::Client::NewStub(channel_)->Session(&context_);
  controller_.header.get_future().get();
  controller_.Die();
  v1::ServerMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_FALSE(stream->Finish().ok());
  grpc::ClientContext next;
  v1::GetStatusResponse status;
  EXPECT_EQ(v1::Admin::NewStub(channel_)->GetStatus(&next, {}, &status).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GatewayCallsTest, ACallOfAnUnknownMethodIsRefusedByTheController) {
  v1::GetStatusResponse status;
  EXPECT_EQ(v1::Admin::NewStub(channel_)->GetStatus(&context_, {}, &status).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace fairway
