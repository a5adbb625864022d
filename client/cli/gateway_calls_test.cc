// SPDX-License-Identifier: Apache-2.0
#include "client/cli/gateway_calls.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "base/host.h"
#include "client/cli/fetches_ahead.h"
#include "fairway/v1/admin.grpc.pb.h"
#include "fairway/v1/client.grpc.pb.h"
#include "ifrt/service.grpc.pb.h"

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

namespace proxy = xla::ifrt::proxy;

// The front door of jaxlib beyond a gateway, as far as fetches go. Its session is number 7.
class DoorBeyond final : public proxy::GrpcIfrtService::Service {
 public:
  DoorBeyond() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~DoorBeyond() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(HostPort("127.0.0.1", port_), grpc::InsecureChannelCredentials());
  }
  void Wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, condition);
  }
  void Set(int& what, int value) {
    const std::lock_guard lock(mu_);
    what = value;
    changed_.notify_all();
  }

  // Guarded by mu_.
  int answered_after = 0;  // a fetch is answered when so many look-ups have come
  int not_found = 0;       // so many look-ups come too early
  int deletes_pass = 0;    // a deletion ends when this is not 0
  int messages = 1;        // of a buffer; each has 1 MiB
  int lookups = 0, early_lookups = 0, deletes = 0, cancelled = 0;

 private:
  using Stream = grpc::ServerReaderWriter<proxy::IfrtResponse, proxy::IfrtRequest>;
  grpc::Status IfrtSession(grpc::ServerContext*, Stream* stream) override {
    proxy::IfrtRequest request;
    while (stream->Read(&request)) {
      proxy::IfrtResponse response;
      if (request.has_init_request()) response.mutable_init_response()->set_session_id(7);
      if (request.has_copy_to_host_buffer_request()) {
        Wait([&] { return lookups >= answered_after; });
        response.mutable_copy_to_host_buffer_response();
      }
      stream->Write(response);
    }
    return grpc::Status::OK;
  }
  grpc::Status HostBufferLookup(
      grpc::ServerContext* context, const proxy::GrpcHostBufferLookupRequest* request,
      grpc::ServerWriter<proxy::GrpcHostBufferLookupResponse>* writer) override {
    const bool early = context->client_metadata().contains(kEarlyKey);
    if (request->session_id() != 7) return {grpc::StatusCode::NOT_FOUND, "no such session"};
    int number;
    {
      const std::lock_guard lock(mu_);
      number = ++lookups;
      if (early) ++early_lookups;
      changed_.notify_all();
    }
    if (number <= not_found) return {grpc::StatusCode::NOT_FOUND, "no such buffer"};
    proxy::GrpcHostBufferLookupResponse response;
    for (int i = 0; i < messages; ++i) {
      response.set_data(std::string(1 << 20, static_cast<char>('a' + request->handle() + i)));
      if (writer->Write(response)) continue;
      const std::lock_guard lock(mu_);
      ++cancelled;
      changed_.notify_all();
      return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }
  grpc::Status HostBufferDelete(grpc::ServerContext*, const proxy::GrpcHostBufferDeleteRequest*,
                                proxy::GrpcHostBufferDeleteResponse*) override {
    {
      const std::lock_guard lock(mu_);
      ++deletes;
      changed_.notify_all();
    }
    Wait([&] { return deletes_pass != 0; });
    return grpc::Status::OK;
  }

  std::mutex mu_;
  std::condition_variable changed_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class GatewayFetchesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    proxy::IfrtRequest request;
    request.mutable_init_request();
    Exchange(request);
  }
  void TearDown() override {
    door_.Set(door_.deletes_pass, 1);
    door_.Set(door_.answered_after, 0);
    if (stream_ == nullptr) return;
    stream_->WritesDone();
    EXPECT_TRUE(stream_->Finish().ok());
  }
  void Exchange(const proxy::IfrtRequest& request) {
    proxy::IfrtResponse response;
    ASSERT_TRUE(stream_->Write(request));
    ASSERT_TRUE(stream_->Read(&response));
  }
  void Fetch(uint64_t handle) {
    proxy::IfrtRequest request;
    request.mutable_copy_to_host_buffer_request()->set_host_buffer_handle(handle);
    Exchange(request);
  }
  // The first bytes of the messages, or the code of the error.
  std::string Lookup(uint64_t handle, uint64_t session = 7) {
    proxy::GrpcHostBufferLookupRequest request;
    request.set_session_id(session);
    request.set_handle(handle);
    grpc::ClientContext context;
    const auto reader = stub_->HostBufferLookup(&context, request);
    proxy::GrpcHostBufferLookupResponse response;
    std::string out;
    while (reader->Read(&response)) {
      EXPECT_EQ(response.data().size(), size_t{1} << 20);
      out += response.data()[0];
    }
    const grpc::Status status = reader->Finish();
    return status.ok() ? out : std::to_string(status.error_code());
  }
  grpc::Status Delete(uint64_t handle) {
    proxy::GrpcHostBufferDeleteRequest request;
    request.set_session_id(7);
    request.set_handle(handle);
    grpc::ClientContext context;
    proxy::GrpcHostBufferDeleteResponse response;
    return stub_->HostBufferDelete(&context, request, &response);
  }

  DoorBeyond door_;
  std::unique_ptr<GatewayCalls> gateway_ = std::make_unique<GatewayCalls>(door_.Channel());
  const std::unique_ptr<proxy::GrpcIfrtService::Stub> stub_ =
      proxy::GrpcIfrtService::NewStub(ChannelBy(*gateway_));
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proxy::IfrtRequest, proxy::IfrtResponse>> stream_ =
      stub_->IfrtSession(&context_);
};

TEST_F(GatewayFetchesTest, WaitForTheControllerOnce) {
  door_.Set(door_.answered_after, 1);  // before the client can look its buffer up
  door_.Set(door_.messages, 9);
  Fetch(1);
  EXPECT_EQ(Lookup(1), "bcdefghij");
  EXPECT_TRUE(Delete(1).ok());  // though the controller does not answer
  door_.Wait([&] { return door_.deletes == 1; });
  EXPECT_EQ(door_.lookups, 1);
  EXPECT_EQ(door_.early_lookups, 1);
}

// The last user of the channel must not be a thread of gRPC, which would wait for its own end.
TEST_F(GatewayFetchesTest, ItsEndEndsADeletionThatTheControllerHolds) {
  Fetch(1);
  EXPECT_EQ(Lookup(1), "b");
  EXPECT_TRUE(Delete(1).ok());
  door_.Wait([&] { return door_.deletes == 1; });
  gateway_.reset();
  EXPECT_FALSE(std::exchange(stream_, nullptr)->Finish().ok());
}

TEST_F(GatewayFetchesTest, ALookUpThatFoundNothingIsMadeAgain) {
  door_.Set(door_.answered_after, 1);
  door_.Set(door_.not_found, 1);
  Fetch(2);
  EXPECT_EQ(Lookup(2), "c");
  EXPECT_EQ(door_.lookups, 2);
  EXPECT_EQ(door_.early_lookups, 1);
}

TEST_F(GatewayFetchesTest, ErrorsAreTheControllers) {
  door_.Set(door_.not_found, 1000);
  Fetch(3);
  EXPECT_EQ(Lookup(3), std::to_string(grpc::StatusCode::NOT_FOUND));
  EXPECT_EQ(Lookup(4), std::to_string(grpc::StatusCode::NOT_FOUND));
  EXPECT_EQ(Lookup(3, /*session=*/8), std::to_string(grpc::StatusCode::NOT_FOUND));
}

TEST_F(GatewayFetchesTest, WhatTheClientDropsIsGivenUp) {
  door_.Set(door_.messages, 1000);
  for (uint64_t handle = 0; handle < 70; ++handle) Fetch(handle);
  door_.Wait([&] { return door_.cancelled >= 6; });  // the oldest, for the youngest
  door_.Set(door_.deletes_pass, 1);
  EXPECT_TRUE(Delete(69).ok());
  door_.Wait([&] { return door_.cancelled >= 7; });
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
  stream_ = nullptr;
  door_.Wait([&] { return door_.cancelled == 70; });
}

}  // namespace
}  // namespace fairway
