// SPDX-License-Identifier: Apache-2.0
#include "controller/access/gated_methods.h"

#include <cstdlib>
#include <filesystem>
#include <semaphore>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/rpc/server_for_test.h"
#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {
namespace {

void AnswerRestart(UnaryCall<v1::RestartExecutorRequest, v1::RestartExecutorResponse>* call) {
  const std::string& worker = call->request().worker();
  call->response().set_incarnation(worker.size());
  call->Answer(worker.empty() ? absl::NotFoundError("no name") : absl::OkStatus());
}

// Raw messages to the method, of an operator.
class OneMessageTest : public ::testing::Test {
 protected:
  OneMessageTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    directory_ = made;
    gate_ = Gate::Open(directory_).value();
    token_ =
        gate_->Create({.role = TokenRole::kOperator, .lifetime = std::chrono::hours(1)}).value();
    thread_ = std::thread([this] { loop_.Run(); });
    methods_ = std::make_unique<GatedMethods>(
        CallAccess(&loop_, gate_.get(), [this](const std::string&, int64_t token) {
          EXPECT_EQ(token, token_.kept.record.id);
          let_in_.release();
          return inflow_;
        }));
    methods_->AddUnary<v1::RestartExecutorRequest, v1::RestartExecutorResponse>(
        "fairway.v1.Admin.RestartExecutor", AnswerRestart);
    server_ = std::make_unique<ServerForTest>(methods_->all());
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials());
  }
  ~OneMessageTest() override {
    server_->Shutdown({});
    loop_.Stop();
    thread_.join();
    gate_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  // A call that sends what it is told to. For gRPC's client it is a stream in both directions.
  struct Client {
    Client(const std::shared_ptr<grpc::Channel>& channel, const std::string& secret)
        : method("/fairway.v1.Admin/RestartExecutor", grpc::internal::RpcMethod::BIDI_STREAMING) {
      context.AddMetadata("authorization", "Bearer " + secret);
      stream.reset(grpc::internal::ClientReaderWriterFactory<
                   grpc::ByteBuffer, v1::RestartExecutorResponse>::Create(channel.get(), method,
                                                                          &context));
    }
    void Send(const std::string& bytes) {
      const grpc::Slice slice(bytes);
      stream->Write(grpc::ByteBuffer(&slice, 1));
    }
    grpc::internal::RpcMethod method;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, v1::RestartExecutorResponse>> stream;
    v1::RestartExecutorResponse response;
  };
  std::unique_ptr<Client> Begin() { return std::make_unique<Client>(channel_, token_.secret); }

  std::string directory_;
  std::unique_ptr<Gate> gate_;
  TokenStore::Made token_;
  EventLoop loop_;
  std::thread thread_;
  std::unique_ptr<GatedMethods> methods_;
  std::unique_ptr<ServerForTest> server_;
  std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<Inflow> inflow_ = std::make_shared<Inflow>();
  std::counting_semaphore<> let_in_{0};
};

TEST_F(OneMessageTest, TheMessageIsAnswered) {
  auto stub = v1::Admin::NewStub(channel_);
  v1::RestartExecutorRequest request;
  v1::RestartExecutorResponse response;
  for (const std::string worker : {"worker", ""}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token_.secret);
    request.set_worker(worker);
    const grpc::Status status = stub->RestartExecutor(&context, request, &response);
    EXPECT_EQ(status.ok(), !worker.empty()) << status.error_message();
    EXPECT_EQ(status.error_message(), worker.empty() ? "no name" : "");
    EXPECT_EQ(response.incarnation(), 6u);
  }
}

TEST_F(OneMessageTest, ACallWithoutAMessageOrWithOneThatIsNoneEndsWithTheReason) {
  for (const std::string bytes : {"", "\x0a\x7f"}) {  // a field that is cut short
    const auto client = Begin();
    if (!bytes.empty()) client->Send(bytes);
    client->stream->WritesDone();
    EXPECT_FALSE(client->stream->Read(&client->response));
    const grpc::Status status = client->stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), "the call has no message that can be read");
  }
}

TEST_F(OneMessageTest, ALargeMessageIsRefused) {
  const auto client = Begin();
  v1::RestartExecutorRequest request;
  request.set_worker(std::string(1 << 20, 'x'));
  client->Send(request.SerializeAsString());
  EXPECT_FALSE(client->stream->Read(&client->response));
  const grpc::Status status = client->stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "the call's message has 1048580 bytes, and may have 1048576");
}

TEST_F(OneMessageTest, ARevokedTokenEndsACallWhoseMessageHasNotCome) {
  const auto client = Begin();
  let_in_.acquire();
  ASSERT_TRUE(gate_->Revoke(token_.kept.record.id).ok());
  EXPECT_FALSE(client->stream->Read(&client->response));
  EXPECT_EQ(client->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace fairway
