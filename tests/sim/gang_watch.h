// SPDX-License-Identifier: Apache-2.0
// What an observer knows of the gangs that an executor was told to launch, without its core's
// lines.
#ifndef FAIRWAY_TESTS_SIM_GANG_WATCH_H_
#define FAIRWAY_TESTS_SIM_GANG_WATCH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <absl/functional/function_ref.h>

#include "graph/plan.h"
#include "worker/executor/executor_core.h"

namespace fairway::sim {

// Checks rule G1 on one machine. Of two gangs that share a device, or that other executors run,
// too, the one with the lower launch id starts first. And a gang starts as soon as no such gang
// with a lower id waits: gangs of other devices never hold it up.
class GangWatch {
 public:
  // The executor gets this command.
  void OnCommand(const Command& command);
  // Steps of gangs that others run, too, become code of their own.
  void OnLink(ExecutableId block) { shared_.insert(block); }
  // The gang, or the step of a gang, starts. Returns the launch id that came before it on a line
  // although it is higher; nullopt: its turn had come.
  std::optional<uint64_t> OnStart(const PrepareLaunch& node, LaunchId id);
  // Returns a gang that should have been started. `ready`: the shard is here; `has_room`: the
  // limit of gangs at work allows it.
  std::optional<NodeId> Overdue(const ExecutorCore& core, absl::FunctionRef<bool(ShardRef)> ready,
                                absl::FunctionRef<bool(const PrepareLaunch&, bool)> has_room);
  bool IsShared(ExecutableId code) const { return shared_.contains(code); }
  // The process has ended, or forgets all but the ids.
  void Clear();
  void ForgetIds() { last_.clear(); }

 private:
  // The devices of the gang; -1 stands for the gangs that other executors run, too.
  std::vector<int32_t> LinesOf(const PrepareLaunch& node) const;

  // Code that was dropped stays: what was launched of it may still wait for its turn.
  std::set<ExecutableId> shared_, sequences_;
  std::deque<NodeId> launched_;       // gangs, in the order of their ids; perhaps started by now
  std::map<int32_t, uint64_t> last_;  // by line: the id of the last one that was started
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_GANG_WATCH_H_
