// SPDX-License-Identifier: Apache-2.0
// What the controller's core asks of its shell. The shell implements it; the core calls it in the
// loop.
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

// What the core asks of its shell. Only OnWatched and OnFetched may call the core: they come when
// the operation that made the answer is over.
class ClusterActions {
 public:
  virtual ~ClusterActions() = default;

  // In order per executor. Sent to the incarnation that is registered now.
  virtual void Send(ExecutorId executor, Command command) = 0;

  // Serve blobs[i] as shard i of `transfer` on the controller's data port, until WithdrawUpload.
  virtual void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) = 0;
  virtual void WithdrawUpload(TransferId transfer) = 0;
  // Pull shard `index` of `transfer` (`bytes` long) from the executor's data port, then
  // Cluster::Arrays::FetchArrived.
  virtual void PullToHost(TransferId transfer, ExecutorId executor, int32_t index,
                          int64_t bytes) = 0;

  // The answers to Watch, ExecuteOptions::watch and Fetch. A session that was closed gets none.
  virtual void OnWatched(SessionId session, uint64_t token, absl::Status status) = 0;
  virtual void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) = 0;

  // Work is left: call Cluster::Turn soon, after others had their turn in the loop. Comes once
  // before each Turn.
  virtual void WantTurn() = 0;

  // Has another thread destroy what the core has no use for any more, if that takes long.
  virtual void Discard(std::shared_ptr<const void> garbage) { garbage.reset(); }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_
