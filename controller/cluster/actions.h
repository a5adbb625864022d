// SPDX-License-Identifier: Apache-2.0
// The interface through which the controller's core acts. The shell implements it; the core calls
// it in the loop.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"
#include "graph/plan.h"

namespace fairway {

using BytesRef = std::shared_ptr<const Blob>;

// The core's requests to its shell. Only OnWatched and OnFetched may call the core: they come once
// the operation that made the answer is over.
class ClusterActions {
 public:
  virtual ~ClusterActions() = default;

  // Sends commands in order per executor, to the incarnation that is registered now.
  virtual void Send(ExecutorId executor, Command command) = 0;

  // Serves blobs[i] as shard i of `transfer` on the controller's data port, until WithdrawUpload.
  virtual void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) = 0;
  virtual void WithdrawUpload(TransferId transfer) = 0;
  // Pulls shard `index` of `transfer` (`bytes` long) from the executor's data port, then calls
  // Cluster::Arrays::FetchArrived.
  virtual void PullToHost(TransferId transfer, ExecutorId executor, int32_t index,
                          int64_t bytes) = 0;

  // Answer Watch, ExecuteOptions::watch and Fetch. A session that was closed gets no answer.
  virtual void OnWatched(SessionId session, uint64_t token, absl::Status status) = 0;
  virtual void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) = 0;

  // Work is left: call Cluster::Turn soon, after others have had their turn in the loop. The core
  // calls this once before each Turn.
  virtual void WantTurn() = 0;

  // Lets another thread destroy what the core no longer needs, if that takes long.
  virtual void Discard(std::shared_ptr<const void> garbage) { garbage.reset(); }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_
