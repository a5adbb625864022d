// SPDX-License-Identifier: Apache-2.0
// Every method of the services that a controller offers, for every role, and whosever the object
// is.
#include <map>
#include <set>
#include <string>

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "fairway/v1/admin.pb.h"
#include "fairway/v1/callbacks.pb.h"
#include "fairway/v1/client.pb.h"
#include "identity/authorize.h"
#include "ifrt/service.pb.h"

namespace fairway {
namespace {

using enum TokenRole;

// Who may call it, and about whose object: the table as people would write it.
struct Allowed {
  Whose whose;
  std::set<TokenRole> roles;
};
const std::map<std::string, Allowed> kTable = {
    {"fairway.v1.Admin.GetStatus", {Whose::kNone, {kAdmin, kOperator, kUser, kViewer}}},
    {"fairway.v1.Admin.ListSessions", {Whose::kNone, {kAdmin, kOperator, kUser, kViewer}}},
    {"fairway.v1.Admin.ListArrays", {Whose::kNone, {kAdmin, kOperator, kUser, kViewer}}},
    {"fairway.v1.Admin.ListPrograms", {Whose::kNone, {kAdmin, kOperator, kUser, kViewer}}},
    {"fairway.v1.Admin.ListNodes", {Whose::kNone, {kAdmin, kOperator, kUser, kViewer}}},
    {"fairway.v1.Admin.ListEvents", {Whose::kNone, {kAdmin, kOperator, kUser, kViewer}}},
    {"fairway.v1.Admin.GetLogs", {Whose::kNone, {kAdmin, kOperator}}},
    {"fairway.v1.Admin.RestartExecutor", {Whose::kNone, {kAdmin, kOperator}}},
    {"fairway.v1.Admin.CordonIsland", {Whose::kNone, {kAdmin, kOperator}}},
    {"fairway.v1.Admin.UncordonIsland", {Whose::kNone, {kAdmin, kOperator}}},
    {"fairway.v1.Admin.DrainIsland", {Whose::kNone, {kAdmin, kOperator}}},
    {"fairway.v1.Admin.Shutdown", {Whose::kNone, {kAdmin, kOperator}}},
    {"fairway.v1.Admin.CreateToken", {Whose::kNone, {kAdmin}}},
    {"fairway.v1.Admin.ListTokens", {Whose::kNone, {kAdmin}}},
    {"fairway.v1.Admin.RevokeToken", {Whose::kNone, {kAdmin}}},
    {"fairway.v1.Admin.Join", {Whose::kNone, {kWorker}}},
    {"fairway.v1.Admin.ListCertificates", {Whose::kNone, {kAdmin}}},
    {"fairway.v1.Admin.RevokeCertificates", {Whose::kNone, {kAdmin}}},
    {"fairway.v1.Client.Session", {Whose::kNone, {kUser}}},
    {"fairway.v1.Callbacks.Serve", {Whose::kOwn, {kUser}}},
    {"xla.ifrt.proxy.GrpcIfrtService.GetVersion", {Whose::kNone, {kUser}}},
    {"xla.ifrt.proxy.GrpcIfrtService.IfrtSession", {Whose::kNone, {kUser}}},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferStore", {Whose::kOwn, {kUser}}},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferLookup", {Whose::kOwn, {kUser}}},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferDelete", {Whose::kOwn, {kUser}}},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferReadFromDisk", {Whose::kOwn, {kUser}}},
};

TEST(MethodsTest, EachHasARuleAndIsAllowedToNobodyElse) {
  std::set<std::string> found;
  for (const google::protobuf::FileDescriptor* const file :
       {v1::GetStatusRequest::descriptor()->file(), v1::ClientMessage::descriptor()->file(),
        v1::CallbackOpen::descriptor()->file(),
        xla::ifrt::proxy::GrpcGetVersionRequest::descriptor()->file()}) {
    ASSERT_GT(file->service_count(), 0) << file->name();
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        found.insert(file->service(s)->method(m)->full_name());
    }
  }
  for (const auto& [rpc, _] : kTable) EXPECT_TRUE(found.contains(rpc)) << rpc << " is gone";
  for (const std::string& rpc : found) {
    const auto verb = VerbOf(rpc);
    const auto allowed = kTable.find(rpc);
    ASSERT_TRUE(verb.has_value() && allowed != kTable.end())
        << rpc << " has no rule: add one to identity/authorize.cc, and here";
    for (const TokenRole role : kTokenRoles) {
      for (const Whose whose : {Whose::kNone, Whose::kOwn, Whose::kForeign}) {
        EXPECT_EQ(Authorize(role, *verb, whose),
                  whose == allowed->second.whose && allowed->second.roles.contains(role))
            << NameOf(role) << " calls " << rpc << ", whose: " << static_cast<int>(whose);
      }
    }
  }
}

}  // namespace
}  // namespace fairway
