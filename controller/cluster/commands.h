// SPDX-License-Identifier: Apache-2.0
// Sends commands to executors. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_COMMANDS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_COMMANDS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "base/ids.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "graph/plan.h"

namespace fairway {

// Sends commands to executors that serve, and drops those to others: their successors know nothing.
// Frees are collected until the next command to the executor, or until the end of the work.
//
// Invariants: an executor with frees is in with_frees_. An executor loads a code once: its entry in
// Executor::installs is there from the command until the code is dropped or the executor is lost.
class Cluster::Commands {
 public:
  explicit Commands(State& state) : s(state) {}

  void Send(Executor& executor, Command command);
  // Makes the executor load the code, and the node wait for it.
  void Install(Executor& executor, const ExecutableSpec& spec, const std::vector<int32_t>& devices,
               Node& node);
  // Lets the executor free its shards of the group, which is declared there.
  void Free(Executor& executor, GroupId group);
  // Sends all frees that wait for a command.
  void FlushAll();
  // The executor is being forgotten.
  void Forget(ExecutorId executor) { with_frees_.erase(executor); }

 private:
  void Flush(Executor& executor);

  std::set<ExecutorId> with_frees_;
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_COMMANDS_H_
