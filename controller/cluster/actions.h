// SPDX-License-Identifier: Apache-2.0
// The interfaces through which the controller's core acts and answers. The core calls them in the
// loop.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "graph/plan.h"

namespace fairway {

using BytesRef = std::shared_ptr<const Blob>;

// Takes the answers to a session's requests. Its front door implements it, one for each session.
// An answer comes once the operation that made it is over, perhaps before that returns to its
// caller, and may call the core. A session that was closed gets none.
class SessionSink {
 public:
  virtual ~SessionSink() = default;

  // Answers Watch and ExecuteOptions::watch.
  virtual void OnWatched(SessionId session, uint64_t token, absl::Status status) = 0;
  // Answers Fetch.
  virtual void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) = 0;
  // Answers Programs::Bind with the program's handle.
  virtual void OnBound(SessionId session, uint64_t key, absl::StatusOr<uint64_t> program) = 0;
};

// The core's requests to its shell, which implements it. They must not call the core.
class ClusterActions {
 public:
  virtual ~ClusterActions() = default;

  // Sends commands in order per executor, to the incarnation that is registered now. Takes the
  // command's bytes from `payer` until the executor has it, or is lost; nullptr: nobody pays.
  virtual void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) = 0;

  // The same for all executors from `first` to `last`, which are of one island and up, and all of
  // which take spans (ExecutorSpec). Of a LaunchAll, the shell calls Fleet::LaunchesEnded. This
  // default is for shells with one island.
  virtual void SendAll(ExecutorId first, ExecutorId last, Command command,
                       std::shared_ptr<MemoryBudget> payer) {
    for (ExecutorId id = first; id <= last; id = ExecutorId(id.value + 1)) Send(id, command, payer);
  }

  // Serves blobs[i] as shard i of `transfer` on the controller's data port, until WithdrawUpload.
  virtual void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) = 0;
  virtual void WithdrawUpload(TransferId transfer) = 0;
  // Pulls shard `index` of `transfer` (`bytes` long) from the executor's data port, then calls
  // Cluster::Arrays::FetchArrived.
  virtual void PullToHost(TransferId transfer, ExecutorId executor, int32_t index,
                          int64_t bytes) = 0;

  // Work is left: call Cluster::Turn soon, after others have had their turn in the loop. The core
  // calls this once before each Turn.
  virtual void WantTurn() = 0;

  // Lets another thread destroy what the core no longer needs, if that takes long.
  virtual void Discard(std::shared_ptr<const void> garbage) { garbage.reset(); }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ACTIONS_H_
