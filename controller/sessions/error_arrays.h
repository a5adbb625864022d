// SPDX-License-Identifier: Apache-2.0
// The arrays of one session that its front door made as errors: the results of refused
// requests. The core does not know their types, so a request that uses one is answered with its
// error.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_ERROR_ARRAYS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_ERROR_ARRAYS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"

namespace fairway {

// Loop-confined.
class ErrorArrays {
 public:
  ErrorArrays(Cluster* cluster, SessionId session) : cluster_(cluster), session_(session) {}

  // OK, or the error of such an array.
  absl::Status Check(uint64_t handle) const {
    return cluster_->arrays().CheckKnown(session_, handle);
  }
  // Makes error arrays of those handles that are free, and returns `status`. Many handles take
  // several turns.
  absl::Status Poison(std::vector<uint64_t> handles, absl::Status status) {
    if (!status.ok() && !handles.empty())
      cluster_->arrays().MakeErrors(session_, std::move(handles), status);
    return status;
  }

 private:
  Cluster* const cluster_;
  const SessionId session_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_ERROR_ARRAYS_H_
