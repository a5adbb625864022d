// SPDX-License-Identifier: Apache-2.0
// A client of a controller's Admin service. Blocking; an error is one clear line.
#ifndef FAIRWAY_CLIENT_CLI_ADMIN_CLIENT_H_
#define FAIRWAY_CLIENT_CLI_ADMIN_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "client/cli/reach.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

// gRPC writes lines of its own to standard error when a handshake fails; from now on it does not.
// Not in the SDK, since it is for the whole process.
void SilenceGrpc();

class AdminClient {
 public:
  // `reach.controller` is as ControllerAddress takes it. If a part is wrong, all calls return that
  // error.
  explicit AdminClient(const Reach& reach);
  ~AdminClient();

  // UNAVAILABLE: nobody listens there, or TLS does not fit; DEADLINE_EXCEEDED: no answer within 5
  // s; UNIMPLEMENTED: the server there has no such service;
  // UNAUTHENTICATED, PERMISSION_DENIED: it wants a token, or one of another role.
  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  // A page each; `fairway get` pages through (paging.h).
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const v1::ListRequest& request);
  absl::StatusOr<v1::ListArraysResponse> ListArrays(const v1::ListRequest& request);
  absl::StatusOr<v1::ListProgramsResponse> ListPrograms(const v1::ListRequest& request);
  absl::StatusOr<v1::ListNodesResponse> ListNodes(const v1::ListRequest& request);
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const v1::ListRequest& request);
  // The same errors until the first line; `on_line` and the later lines may take any time.
  absl::Status GetLogs(const v1::GetLogsRequest& request,
                       const std::function<void(const v1::LogLine&)>& on_line);
  absl::StatusOr<v1::RestartExecutorResponse> RestartExecutor(const std::string& worker);
  absl::StatusOr<v1::CordonIslandResponse> CordonIsland(const std::string& island);
  absl::StatusOr<v1::UncordonIslandResponse> UncordonIsland(const std::string& island);
  absl::StatusOr<v1::DrainIslandResponse> DrainIsland(const std::string& island, bool again);
  absl::StatusOr<v1::ShutdownResponse> Shutdown();
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensResponse> ListTokens();  // all of them
  absl::Status RevokeToken(int64_t id);
  absl::StatusOr<v1::ListCertificatesResponse> ListCertificates();  // all of them
  absl::StatusOr<v1::RevokeCertificatesResponse> RevokeCertificates(const std::string& worker);
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_ADMIN_CLIENT_H_
