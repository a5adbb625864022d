// SPDX-License-Identifier: Apache-2.0
// The arrays of one session that a front door itself made errors of: results of requests that never
// reached the core. The core does not know what they would have been, so that using one is answered
// with its error before the core looks at its type or devices.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_ERROR_ARRAYS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_ERROR_ARRAYS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "controller/cluster/cluster.h"

namespace fairway {

// Loop-confined.
class ErrorArrays {
 public:
  ErrorArrays(Cluster* cluster, SessionId session) : cluster_(cluster), session_(session) {}

  // The error of the first of these that is one.
  absl::Status First(const std::vector<uint64_t>& handles) const;
  // Handles that are free get an array that holds the error; `status` is returned.
  absl::Status Poison(const std::vector<uint64_t>& handles, absl::Status status);
  // They were given up.
  void Forget(const std::vector<uint64_t>& handles);

 private:
  Cluster* const cluster_;
  const SessionId session_;
  std::unordered_map<uint64_t, absl::Status> errors_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_ERROR_ARRAYS_H_
