// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <fmt/format.h>

#include "controller/admin/service_for_test.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sessions of two tenants.
class AdminListingsTest : public AdminServiceTest {
 protected:
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

  template <typename Response, typename Method>
  Response Ask(Method method, const std::string& token, const v1::ListRequest& request = {}) {
    Response response;
    const grpc::Status status = Call(method, token, request, &response);
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
