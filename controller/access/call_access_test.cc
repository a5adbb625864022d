// SPDX-License-Identifier: Apache-2.0
#include "controller/access/call_access.h"

#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/rpc/server_for_test.h"
#include "fairway/v1/callbacks.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

// What the doors' streams do when they are told. It never ends by itself.
class Stream final : public OpenStream {
 public:
  void Fail(absl::Status status) override { failed_.set_value(std::move(status)); }
  void End(absl::Status status) override { ended_.set_value(std::move(status)); }
  std::promise<absl::Status> failed_, ended_;
};

// A call that ends when it is cancelled, and not otherwise.
class Call final : public RpcCall {
 public:
  Call(std::shared_ptr<HeldCall> held, std::promise<void>* done)
      : held_(std::move(held)), done_(done) {}
  void OnCancel() override { Finish(absl::CancelledError()); }
  void OnDone() override {
    held_->Done();
    done_->set_value();
    delete this;
  }

 private:
  const std::shared_ptr<HeldCall> held_;
  std::promise<void>* const done_;
};

class Service {
 public:
  explicit Service(CallAccess access) : access_(access) {}
  RpcCall* Serve(grpc::ServerContextBase* context) {
    const Verdict verdict = access_.Judge(*context, rpc_);
    if (!verdict.status.ok()) return access_.Refuse(verdict);
    const auto held = access_.Hold(verdict.caller, context);
    auto* const call = new Call(held, &done_);
    held->Watch(stream_);
    caller_.set_value(verdict.caller);
    return call;
  }

  std::string rpc_ = "fairway.v1.Callbacks.Serve";
  std::shared_ptr<Stream> stream_;
  std::promise<Caller> caller_;
  std::promise<void> done_;

 private:
  const CallAccess access_;
};

class CallAccessTest : public ::testing::Test {
 protected:
  CallAccessTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    directory_ = made;
    gate_ = Gate::Open(directory_).value();
    thread_ = std::thread([this] { loop_.Run(); });
    Serve(gate_.get());
  }
  ~CallAccessTest() override {
    server_->Shutdown({});
    loop_.Stop();
    thread_.join();
    gate_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  void Serve(Gate* gate) {
    server_ = nullptr;
    service_ = std::make_unique<Service>(CallAccess(&loop_, gate));
    server_ = std::make_unique<ServerForTest>(
        RpcMethods{{"fairway.v1.Callbacks.Serve", [this](grpc::ServerContextBase* context) {
                      return service_->Serve(context);
                    }}});
    stub_ = v1::Callbacks::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials()));
  }
  TokenStore::Made Make(TokenRole role, const std::string& tenant = "") {
    return gate_->Create({.role = role, .tenant = tenant, .lifetime = std::chrono::hours(1)})
        .value();
  }
  struct Client {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::CallbackClientMessage, v1::CallbackServerMessage>>
        stream;
  };
  std::unique_ptr<Client> Open(const std::string& secret) {
    auto client = std::make_unique<Client>();
    if (!secret.empty()) client->context.AddMetadata("authorization", "Bearer " + secret);
    client->stream = stub_->Serve(&client->context);
    return client;
  }

  std::string directory_;
  std::unique_ptr<Gate> gate_;
  EventLoop loop_;
  std::thread thread_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<ServerForTest> server_;
  std::unique_ptr<v1::Callbacks::Stub> stub_;
};

TEST_F(CallAccessTest, ARefusedCallHasCodeAndReason) {
  grpc::Status said = Open("")->stream->Finish();
  EXPECT_EQ(said.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(said.error_message(), HasSubstr("cannot use a session without a token"));
  said = Open(Make(TokenRole::kViewer).secret)->stream->Finish();
  EXPECT_EQ(said.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(said.error_message(), HasSubstr("(role viewer) may not use a session"));
}

TEST_F(CallAccessTest, AMethodWithoutARuleIsRefusedToAll) {
  service_->rpc_ = "fairway.v1.Callbacks.Forgotten";
  const grpc::Status said = Open(Make(TokenRole::kAdmin).secret)->stream->Finish();
  EXPECT_EQ(said.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(said.error_message(), HasSubstr("nobody may call fairway.v1.Callbacks.Forgotten"));
}

TEST_F(CallAccessTest, WithoutAGateNobodyIsAsked) {
  Serve(nullptr);
  const auto client = Open("");
  const Caller caller = service_->caller_.get_future().get();
  EXPECT_EQ(caller.token, 0);
  EXPECT_EQ(caller.tenant, "");
  client->context.TryCancel();
  EXPECT_EQ(client->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(CallAccessTest, RevokingCancelsACallWithoutAStream) {
  const auto made = Make(TokenRole::kUser, "red");
  const auto client = Open(made.secret);
  EXPECT_EQ(service_->caller_.get_future().get().tenant, "red");
  ASSERT_TRUE(gate_->Revoke(made.kept.record.id).ok());
  EXPECT_EQ(client->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  service_->done_.get_future().get();
}

// As when a client does not read, so that neither the answers nor the end reach it.
TEST_F(CallAccessTest, AStreamIsToldTheReasonThenEndsAndIsThenCancelled) {
  service_->stream_ = std::make_shared<Stream>();
  const auto made = Make(TokenRole::kUser, "red");
  const auto client = Open(made.secret);
  service_->caller_.get_future().get();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(gate_->Revoke(made.kept.record.id).ok());
  const absl::Status failed = service_->stream_->failed_.get_future().get();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Text(failed), HasSubstr("was revoked on"));
  EXPECT_EQ(service_->stream_->ended_.get_future().get(), failed);
  EXPECT_EQ(client->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  service_->done_.get_future().get();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(CallAccessTest, ACallThatHasEndedIsNotTouched) {
  const auto made = Make(TokenRole::kUser, "red");
  auto client = Open(made.secret);
  service_->caller_.get_future().get();
  client->context.TryCancel();
  client->stream->Finish();
  service_->done_.get_future().get();
  EXPECT_TRUE(gate_->Revoke(made.kept.record.id).ok());
}

}  // namespace
}  // namespace fairway
