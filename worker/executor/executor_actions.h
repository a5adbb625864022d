// SPDX-License-Identifier: Apache-2.0
// The actions that an executor's core asks for.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_ACTIONS_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/step_blocks.h"

namespace fairway {

// Implemented by ExecutorSession and by the simulation. Called in the event loop, from within the
// core: a call must not re-enter the core. Completions may come in any order. "Core" is
// ExecutorCore.
class ExecutorActions {
 public:
  virtual ~ExecutorActions() = default;

  // Loads `install.code`, then calls Core::InstallDone.
  virtual void Load(const InstallExecutable& install) = 0;
  virtual void Unload(ExecutableId executable) = 0;
  // Makes code `block` of these calls, until Unload. A launch of it runs them one behind the other,
  // with launch ids from its own on. A call that fails, fails the calls that need its outputs.
  // Returns false if that is not possible here: then each step is a launch.
  virtual bool LinkSteps(ExecutableId block, const StepBlock& calls) { return false; }
  // Decodes install.bytes and checks the sequence (CheckSequence), then calls Core::SequenceLoaded.
  virtual void LoadSequence(const InstallSequence& install) = 0;

  // Makes a part of what StartLaunch needs of `node` ready: of its arguments and then its results,
  // counted together, from `from` on. Returns how far it is, kAll at the end. Then comes
  // StartLaunch; nothing else is started before that.
  virtual size_t ReadyLaunch(const PrepareLaunch& node, size_t from) { return kAll; }
  static constexpr size_t kAll = SIZE_MAX;

  // Runs `node` now. The controller has been told that its code is loaded; if that is not so, it
  // fails with INTERNAL. Its inputs are ready, with one exception: inputs of a launch on one
  // device, or of a gang whose code follows (InstallDone), may still be computed by earlier
  // launches of that kind on the same devices. Finds the buffers by ShardRef; launches in the order
  // of these calls (gangs from one thread, launches on one device from another); stores the outputs
  // under their ShardRefs; then calls Core::LaunchDone with the bytes of each of
  // launch.inline_shards.
  virtual void StartLaunch(const PrepareLaunch& node, const Launch& launch) = 0;

  // Brings one shard here: from another device of this executor, from a peer or from the
  // controller. Stores it under its ShardRef, then calls Core::ReceiveDone: once for every call,
  // also if the shard was dropped in the meantime. With node.pieces it brings that piece; it stores
  // the shard before it reports the end of the last piece.
  virtual void StartReceive(const PrepareReceive& node, size_t position) = 0;

  // The node was cancelled while it received: nobody wants the bytes that it asked others for.
  // Still calls Core::ReceiveDone for each StartReceive.
  virtual void TakeBackPulls(const PrepareReceive& node) {}

  // Makes shard `to` the same buffer as `from`, which is here and ready.
  virtual void Share(ShardRef from, ShardRef to) = 0;
  // Passes the bytes of these shards, which are here and ready, to Core::ReadDone. It leaves out
  // shards that cannot be read. `node` runs a sequence.
  virtual void Read(NodeId node, const std::vector<ShardRef>& shards) = 0;
  // Calls Core::Turn in a later turn of the loop, after other handlers. The core asks once for each
  // Turn.
  virtual void WantTurn() = 0;

  // Answers pull `pull` with the bytes of item.shard (of item.box of it, if set), which is here and
  // ready; then calls Core::ServeDone.
  virtual void Serve(uint64_t pull, const PrepareSend::Item& item) = 0;
  virtual void RefusePull(uint64_t pull, absl::Status why) = 0;

  // Drops the buffers of these shards, as far as they exist. A receive into one of them may still
  // be at work: its bytes are thrown away when they come.
  virtual void Drop(const std::vector<ShardRef>& shards) = 0;

  // Fails with command.cause whatever these launches wait for from other executors.
  virtual void Abandon(const AbandonLaunch& command) {}
  // These launches, or steps of a sequence, do not run here, but other executors run them: from now
  // on, answers whatever those want from them with `cause`.
  virtual void LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) {}

  // Something is to be reported. Calls Core::TakeReport before the turn of the loop ends, or, if it
  // `may_wait`, a little later, so that more goes with it (ReportPace). `news`: Report::news.
  virtual void ReportWanted(bool may_wait, bool news) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_ACTIONS_H_
