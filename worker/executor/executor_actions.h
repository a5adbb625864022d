// SPDX-License-Identifier: Apache-2.0
// What an executor's core has done by its shell.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_ACTIONS_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/plan.h"

namespace fairway {

// The doing side. Calls must not re-enter the core. Completions may come in any order.
class ExecutorActions {
 public:
  virtual ~ExecutorActions() = default;

  // Load `install.code`; then Core::InstallDone.
  virtual void Load(const InstallExecutable& install) = 0;
  virtual void Unload(ExecutableId executable) = 0;

  // Run `node` now; its inputs are ready, but that those of a launch on one device, or of a gang
  // whose code follows (InstallDone), may still be computed by launches of that kind on the same
  // devices which were started before. The shell looks its buffers up by ShardRef, launches (gangs
  // from one thread, and what runs on one device from another, in the order of these calls), stores
  // the outputs under their ShardRefs, then Core::LaunchDone. For each of launch.inline_shards it
  // hands the bytes to LaunchDone.
  virtual void StartLaunch(const PrepareLaunch& node, const Launch& launch) = 0;

  // Bring one shard here: from another device of this executor, a peer or the controller. Store it
  // under its ShardRef, then Core::ReceiveDone: once for every call, also when the shard was
  // dropped meanwhile. With node.pieces: bring that piece; the shard is to be stored before the end
  // of the last of its pieces is told.
  virtual void StartReceive(const PrepareReceive& node, size_t position) = 0;

  // The shard `to` is to be the same buffer as `from`, which is here and ready.
  virtual void Share(ShardRef from, ShardRef to) = 0;
  // Hand the bytes of these shards, which are here and ready, to Core::ReadDone; those that cannot
  // be read are left out. `node` runs a sequence.
  virtual void Read(NodeId node, const std::vector<ShardRef>& shards) = 0;
  // Call Core::Turn in a later turn of the loop, after others had theirs. Comes once before each.
  virtual void WantTurn() = 0;

  // Answer pull `pull` with the bytes of item.shard, which is here and ready, or of that box of it;
  // then Core::ServeDone.
  virtual void Serve(uint64_t pull, const PrepareSend::Item& item) = 0;
  virtual void RefusePull(uint64_t pull, absl::Status why) = 0;

  // Drop the buffers of these shards (those that exist; a receive into one may still be at work:
  // its bytes are to be thrown away when they come).
  virtual void Drop(const std::vector<ShardRef>& shards) = 0;

  // What these launches wait for of other executors fails with command.cause.
  virtual void Abandon(const AbandonLaunch& command) {}
  // These steps, which other executors run as well, are left out here: what the others want of them
  // is answered with `cause`, from now on.
  virtual void LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) {}

  // Something is to be reported: call Core::TakeReport before the turn of the loop ends.
  virtual void ReportWanted() = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_ACTIONS_H_
