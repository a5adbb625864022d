// SPDX-License-Identifier: Apache-2.0
// The Admin service of a controller with tokens, whose cluster the core's fixture makes.
#ifndef FAIRWAY_CONTROLLER_ADMIN_SERVICE_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_ADMIN_SERVICE_FOR_TEST_H_

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "controller/admin/admin_service.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/rpc/server_for_test.h"
#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {

// The cluster has what it has when the service begins to serve.
class AdminServiceTest : public ClusterTest {
 protected:
  AdminServiceTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    directory_ = made;
    gate_ = Gate::Open(directory_).value();
  }
  void Serve() {
    AdminHooks hooks;
    hooks.loop = &loop_;
    hooks.cluster = &cluster;
    hooks.events = &events_;
    hooks.note = [this](NewEvent event) { events_.Add(std::move(event), Event::Time()); };
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
  // Calls as whoever has the token.
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Admin::Stub::*call)(grpc::ClientContext*, const Request&,
                                                          Response*),
                    const std::string& token, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    return (stub_.get()->*call)(&context, request, response);
  }

  EventRing events_;  // in the loop, once it serves
  std::string directory_;
  std::unique_ptr<Gate> gate_;
  EventLoop loop_;
  std::unique_ptr<AdminService> service_;
  std::unique_ptr<ServerForTest> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
  std::thread thread_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_SERVICE_FOR_TEST_H_
