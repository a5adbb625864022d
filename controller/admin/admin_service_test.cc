// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/admin_service.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/cluster/status.h"
#include "controller/rpc/server_for_test.h"
#include "fairway/v1/admin.grpc.pb.h"
#include "identity/issuer.h"

namespace fairway {
namespace {

// The service of a controller with tokens, whose disk is slow.
class AdminTokensTest : public ::testing::Test {
 protected:
  AdminTokensTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    directory_ = made;
    gate_ = Gate::Open(directory_).value();
    issuer_ = Issuer::Open(gate_.get(), &revocations_, {}).value();
    AdminHooks hooks;
    hooks.loop = &loop_;
    hooks.access = CallAccess(&loop_, gate_.get());
    hooks.gate = gate_.get();
    hooks.tokens = tokens_.get();
    hooks.issuer = issuer_.get();
    hooks.end_worker = [this](const std::string& worker, const std::string&) {
      ended_.push_back(worker);
    };
    service_ = MakeAdminService(std::move(hooks));
    server_ = std::make_unique<ServerForTest>(service_->methods());
    stub_ = v1::Admin::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                   grpc::InsecureChannelCredentials()));
    thread_ = std::thread([this] { loop_.Run(); });
    tokens_->Run([this] { disk_.get_future().wait(); });
  }
  ~AdminTokensTest() override {
    tokens_ = nullptr;  // all calls end
    server_->Shutdown({});
    loop_.Stop();
    thread_.join();
    service_ = nullptr;
    issuer_ = nullptr;
    gate_ = nullptr;
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  TokenStore::Made MakeAdmin() {
    return gate_->Create({.role = TokenRole::kAdmin, .lifetime = std::chrono::hours(1)}).value();
  }
  // A call that asks for a token to be revoked. It may wait for long.
  struct Revocation {
    std::future<grpc::Status> status;
    grpc::ClientContext context;
    v1::RevokeTokenRequest request;
    v1::RevokeTokenResponse response;
  };
  Revocation& Revoke(const TokenStore::Made& caller, int64_t id) {
    Revocation& call = *calls_.emplace_back(std::make_unique<Revocation>());
    call.context.AddMetadata("authorization", "Bearer " + caller.secret);
    call.request.set_id(id);
    auto said = std::make_shared<std::promise<grpc::Status>>();
    call.status = said->get_future();
    stub_->async()->RevokeToken(&call.context, &call.request, &call.response,
                                [said](grpc::Status status) { said->set_value(status); });
    return call;
  }
  struct WorkerRevocation {
    std::future<grpc::Status> status;
    grpc::ClientContext context;
    v1::RevokeCertificatesRequest request;
    v1::RevokeCertificatesResponse response;
  };
  void RevokeWorker(const TokenStore::Made& caller, const std::string& worker,
                    WorkerRevocation& call) {
    call.context.AddMetadata("authorization", "Bearer " + caller.secret);
    call.request.set_worker(worker);
    auto said = std::make_shared<std::promise<grpc::Status>>();
    call.status = said->get_future();
    stub_->async()->RevokeCertificates(
        &call.context, &call.request, &call.response,
        [said](grpc::Status status) { said->set_value(std::move(status)); });
  }
  bool WorkerCounts(const std::string& worker) const {
    return revocations_.Check({Role::kWorker, worker}, {}).ok();
  }
  // The workers whose connections were ended so far.
  std::vector<std::string> Ended() {
    std::promise<std::vector<std::string>> ended;
    loop_.Post("test", [&] { ended.set_value(ended_); });
    return ended.get_future().get();
  }
  // Waits until so many calls wait for the disk, besides what holds it up.
  void AwaitPending(size_t count) {
    while (tokens_->pending() < count + 1) std::this_thread::yield();
  }

  std::string directory_;
  std::unique_ptr<Gate> gate_;
  Revocations revocations_;
  std::unique_ptr<Issuer> issuer_;
  EventLoop loop_;
  std::vector<std::string> ended_;  // of the loop
  std::thread thread_;
  std::promise<void> disk_;  // works once this is set
  std::unique_ptr<BlockingPool> tokens_ = std::make_unique<BlockingPool>("test-tokens", 1);
  std::vector<std::unique_ptr<Revocation>> calls_;
  std::unique_ptr<AdminService> service_;
  std::unique_ptr<ServerForTest> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

TEST_F(AdminTokensTest, AnAdminWhoseCallsWaitForTheDiskLeavesRoomToOthers) {
  const auto first = MakeAdmin(), second = MakeAdmin();
  constexpr size_t kHalf = 512;
  for (size_t i = 0; i < kHalf; ++i) Revoke(first, 99);
  AwaitPending(kHalf);
  const grpc::Status refused = Revoke(first, 99).status.get();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  Revocation& other = Revoke(second, first.kept.record.id);
  AwaitPending(kHalf + 1);
  // It counts before it is on the disk, so the others end.
  EXPECT_FALSE(gate_->Check(first.kept.record.id).ok());
  disk_.set_value();
  const grpc::Status done = other.status.get();
  EXPECT_TRUE(done.ok()) << done.error_message();
}

TEST_F(AdminTokensTest, ARevocationWithoutRoomCountsAtOnceAndSaysThatItIsNotWrittenDown) {
  const auto first = MakeAdmin(), second = MakeAdmin();
  for (int i = 0; i < 1024; ++i) tokens_->Run([] {}, 1000 + static_cast<uint64_t>(i));
  const grpc::Status said = Revoke(second, first.kept.record.id).status.get();
  EXPECT_EQ(said.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(said.error_message(), ::testing::HasSubstr("counts no longer, but this could not"));
  EXPECT_FALSE(gate_->Check(first.kept.record.id).ok());
  disk_.set_value();
}

TEST_F(AdminTokensTest, AnAdminMayRevokeItself) {
  const auto first = MakeAdmin();
  Revocation& call = Revoke(first, first.kept.record.id);
  AwaitPending(1);
  disk_.set_value();
  const grpc::Status done = call.status.get();
  EXPECT_TRUE(done.ok()) << done.error_message();
}

TEST_F(AdminTokensTest, CertificatesThatAreRevokedCountNoLongerBeforeItIsOnTheDisk) {
  const auto admin = MakeAdmin();
  const auto joins = gate_->Create(
      {.role = TokenRole::kWorker, .worker = "w7", .lifetime = std::chrono::hours(1), .uses = 1});
  ASSERT_TRUE(joins.ok()) << joins.status();
  WorkerRevocation call;
  RevokeWorker(admin, "w7", call);
  AwaitPending(1);
  EXPECT_FALSE(WorkerCounts("w7"));
  EXPECT_TRUE(WorkerCounts("w8"));
  EXPECT_FALSE(gate_->Check(joins->kept.record.id).ok());
  EXPECT_EQ(Ended(), (std::vector<std::string>{"w7"}));
  disk_.set_value();
  const grpc::Status done = call.status.get();
  ASSERT_TRUE(done.ok()) << done.error_message();
  EXPECT_EQ(call.response.tokens(), 1);  // it is written down, too
}

TEST_F(AdminTokensTest, CertificatesAreRevokedWithoutRoomAndItIsSaidThatItIsNotWrittenDown) {
  const auto admin = MakeAdmin();
  for (int i = 0; i < 1024; ++i) tokens_->Run([] {}, 1000 + static_cast<uint64_t>(i));
  WorkerRevocation call;
  RevokeWorker(admin, "w7", call);
  const grpc::Status said = call.status.get();
  EXPECT_EQ(said.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(said.error_message(), ::testing::HasSubstr("w7 count no longer, but this could not"));
  EXPECT_FALSE(WorkerCounts("w7"));
  disk_.set_value();
}

TEST(AdminServiceTest, AStatusCanBeReadWhateverBytesItsTextsHold) {
  ControllerSnapshot snapshot;
  snapshot.host = "h\xff";
  snapshot.log_dir = "/tmp/\xff";
  ExecutorStatus executor{
      .id = ExecutorId(1), .island = IslandId(1), .spec = {}, .up = false, .last_error = "\xff"};
  snapshot.executors.push_back(executor);
  const v1::GetStatusResponse sent = ToStatusResponse(snapshot);
  v1::GetStatusResponse received;
  ASSERT_TRUE(received.ParseFromString(sent.SerializeAsString()));
  EXPECT_EQ(received.host(), "h?");
  EXPECT_EQ(received.log_dir(), "/tmp/?");
  EXPECT_EQ(received.executors(0).last_error(), "?");
}

TEST(AdminServiceTest, OfAnIslandTheExecutorThatAcknowledgedNothingForLongestIsNamed) {
  ControllerSnapshot snapshot;
  snapshot.islands = {{.id = IslandId(1), .name = "a"}, {.id = IslandId(2), .name = "b"}};
  const auto add = [&](uint32_t id, uint32_t island, int still_ms) {
    ExecutorStatus executor{
        .id = ExecutorId(id), .island = IslandId(island), .spec = {}, .up = true, .last_error = ""};
    executor.spec.worker = fmt::format("w{}", id);
    snapshot.executors.push_back(executor);
    snapshot.health[ExecutorId(id)].still = std::chrono::milliseconds(still_ms);
  };
  add(1, 1, 0);
  add(2, 1, 1200);
  add(3, 1, 1500);
  add(4, 2, 999);
  snapshot.islands[1].sessions = 6;
  snapshot.islands[1].given_up = 7;
  snapshot.executors[3].spec.runtime = "pjrt";
  snapshot.executors[3].spec.data_endpoint = "h:1";
  snapshot.health[ExecutorId(3)].open_entries = 5;
  snapshot.health[ExecutorId(3)].round_trip = std::chrono::microseconds(700);
  const v1::GetStatusResponse status = ToStatusResponse(snapshot);
  EXPECT_EQ(status.islands(0).lagging_worker(), "w3");
  EXPECT_EQ(status.islands(1).lagging_worker(), "");
  EXPECT_EQ(status.islands(1).sessions(), 6u);
  EXPECT_EQ(status.islands(1).nodes_given_up(), 7u);
  EXPECT_EQ(status.executors(3).runtime(), "pjrt");
  EXPECT_EQ(status.executors(3).data_endpoint(), "h:1");
  EXPECT_EQ(status.executors(2).still_ms(), 1500);
  EXPECT_EQ(status.executors(2).open_commands(), 5u);
  EXPECT_EQ(status.executors(2).round_trip_us(), 700);
}

}  // namespace
}  // namespace fairway
