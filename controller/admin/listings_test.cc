// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "controller/admin/admin_service.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/rpc/server_for_test.h"
#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A controller with tokens, and sessions of two tenants that have what they have when it begins to
// serve.
class AdminListingsTest : public ClusterTest {
 protected:
  AdminListingsTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    directory_ = made;
    gate_ = Gate::Open(directory_).value();
  }
  void Serve() {
    AdminHooks hooks;
    hooks.loop = &loop_;
    hooks.cluster = &cluster;
    hooks.access = CallAccess(&loop_, gate_.get());
    service_ = MakeAdminService(std::move(hooks));
    server_ = std::make_unique<ServerForTest>(service_->methods());
    stub_ = v1::Admin::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                   grpc::InsecureChannelCredentials()));
    thread_ = std::thread([this] { loop_.Run(); });
  }
  void TearDown() override {
    server_->Shutdown({});
    loop_.Stop();
    thread_.join();
    service_ = nullptr;
    gate_ = nullptr;
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
    ClusterTest::TearDown();
  }
  std::string TokenOf(TokenRole role, const std::string& tenant = "") {
    return gate_->Create({.role = role, .tenant = tenant, .lifetime = std::chrono::hours(1)})
        .value()
        .secret;
  }
  // Has the session compile a function, and put two arrays, one of which does not come.
  void Fill(const std::string& tenant) {
    session = actions.Open(cluster, tenant);
    PutReady(1, 0);
    Define(session.value, {0}, {F32({4})}, {F32({4})});
    const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::SingleDevice(2)};
    ASSERT_TRUE(cluster.arrays().Put(session, 2, spec, {0}).ok());
    ASSERT_TRUE(
        cluster.arrays().MakeError(session, 3, spec, absl::InternalError("\xff" + tenant)).ok());
    actions.Take();
  }

  template <typename Response, typename Call>
  Response Ask(Call call, const std::string& token, const v1::ListRequest& request = {}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    Response response;
    const grpc::Status status = (stub_.get()->*call)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  using Stub = v1::Admin::Stub;
  // What each list has for who shows the token: "session tenant what".
  Lines Seen(const std::string& token, const v1::ListRequest& request = {}) {
    Lines lines;
    const auto add = [&](auto session, const auto& row, const auto& what) {
      lines.push_back(fmt::format("{} {} {}", session, row.tenant(), what));
    };
    const auto sessions = Ask<v1::ListSessionsResponse>(&Stub::ListSessions, token, request);
    const auto arrays = Ask<v1::ListArraysResponse>(&Stub::ListArrays, token, request);
    const auto programs = Ask<v1::ListProgramsResponse>(&Stub::ListPrograms, token, request);
    const auto nodes = Ask<v1::ListNodesResponse>(&Stub::ListNodes, token, request);
    for (const auto& row : sessions.sessions()) add(row.id(), row, row.state());
    for (const auto& row : arrays.arrays()) {
      add(row.session(), row,
          fmt::format("{} {} {}{}", row.handle(), row.type(), row.state(), row.error()));
    }
    for (const auto& row : programs.programs()) add(row.session(), row, row.name());
    for (const auto& row : nodes.nodes())
      add(row.session(), row, fmt::format("{} {}", row.kind(), row.waits_for()));
    return lines;
  }

  std::string directory_;
  std::unique_ptr<Gate> gate_;
  EventLoop loop_;
  std::unique_ptr<AdminService> service_;
  std::unique_ptr<ServerForTest> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
  std::thread thread_;
};

TEST_F(AdminListingsTest, AUserSeesWhatIsOfItsTenantAndWhoLooksAfterTheClusterSeesAll) {
  Start();
  Fill("red");
  Fill("blue");
  Serve();
  const auto red =
      ElementsAre("2 red waits for bytes", "2 red 1 f32[4] ready", "2 red 2 f32[4] pending",
                  "2 red 3 f32[4] failed?red", "2 red f2", "2 red upload bytes of its client");
  EXPECT_THAT(Seen(TokenOf(TokenRole::kUser, "red")), red);
  EXPECT_THAT(Seen(TokenOf(TokenRole::kUser, "green")), IsEmpty());
  for (const TokenRole role : {TokenRole::kAdmin, TokenRole::kOperator, TokenRole::kViewer})
    EXPECT_EQ(Seen(TokenOf(role)).size(), 13u);
  // Another tenant's session is as one that there is not.
  v1::ListRequest request;
  request.set_session(2);
  EXPECT_THAT(Seen(TokenOf(TokenRole::kAdmin), request), red);
  EXPECT_THAT(Seen(TokenOf(TokenRole::kUser, "red"), request), red);
  EXPECT_THAT(Seen(TokenOf(TokenRole::kUser, "blue"), request), IsEmpty());
  request.set_session(99);
  EXPECT_THAT(Seen(TokenOf(TokenRole::kAdmin), request), IsEmpty());
}

TEST_F(AdminListingsTest, ThePagesOfALongListFollowEachOther) {
  Start();
  const ArraySpec spec{DType::kF32, Shape{{1}}, Sharding::SingleDevice(0)};
  for (uint64_t i = 1; i <= 600; ++i) {
    ASSERT_TRUE(cluster.arrays().Put(session, i, spec, {0}).ok());
    actions.Take();
  }
  Serve();
  const std::string viewer = TokenOf(TokenRole::kViewer);
  v1::ListRequest request;
  request.set_transfers(true);
  uint64_t handle = 0, node = 0;
  for (bool more = true; more;) {
    const auto page = Ask<v1::ListArraysResponse>(&Stub::ListArrays, viewer, request);
    EXPECT_EQ(page.total(), 600u);
    for (const v1::ListedArray& array : page.arrays()) EXPECT_EQ(array.handle(), ++handle);
    more = page.has_next();
    *request.mutable_after() = page.next();
  }
  EXPECT_EQ(handle, 600u);
  request.clear_after();
  for (bool more = true; more;) {
    const auto page = Ask<v1::ListNodesResponse>(&Stub::ListNodes, viewer, request);
    EXPECT_EQ(page.total(), 0u) << "it is not known";
    for (const v1::ListedNode& row : page.nodes()) EXPECT_EQ(row.id(), ++node);
    more = page.has_next();
    *request.mutable_after() = page.next();
  }
  EXPECT_EQ(node, 600u);
}

}  // namespace
}  // namespace fairway
