// SPDX-License-Identifier: Apache-2.0
// Talks to a controller's Admin service. Blocking; errors are one clear line.
#ifndef FAIRWAY_CLIENT_CLI_ADMIN_CLIENT_H_
#define FAIRWAY_CLIENT_CLI_ADMIN_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

class AdminClient {
 public:
  // `controller`: as ControllerAddress takes it; otherwise all calls return its error.
  explicit AdminClient(const std::string& controller);
  ~AdminClient();

  // UNAVAILABLE: nobody is there; DEADLINE_EXCEEDED: no answer within 5 s; UNIMPLEMENTED: somebody
  // else answers.
  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  // The same until the first line; `on_line` and the lines behind it may take any time.
  absl::Status GetLogs(const v1::GetLogsRequest& request,
                       const std::function<void(const v1::LogLine&)>& on_line);
  absl::StatusOr<v1::RestartExecutorResponse> RestartExecutor(const std::string& worker);
  absl::StatusOr<v1::ShutdownResponse> Shutdown();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_ADMIN_CLIENT_H_
