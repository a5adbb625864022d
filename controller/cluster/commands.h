// SPDX-License-Identifier: Apache-2.0
// Sends commands to executors. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_COMMANDS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_COMMANDS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "graph/plan.h"

namespace fairway {

// Sends commands to executors that serve, and drops those to others: their successors know nothing.
// Frees are collected until the next command to the executor, or until the end of the work.
//
// A command's bytes are taken from the share of its session until the executor has reported that it
// has the command, or is lost. So they may outlive the session. Nobody pays for frees: a group's
// take at most 11 bytes, and its record, or the commands that declared it, counted for more.
//
// A session that has more than it leaves to others (docs/design/0059-shares.md) waits: no more of
// its requests are read (SessionCaps), none of its nodes is prepared and none of its fetches begins
// until executors have taken some. A node that has waited for options.command_grace_ms fails. What
// ends work, or must follow what was sent, never waits.
//
// Invariants: an executor with frees is in with_frees_; both lists are empty between operations. An
// executor loads a code once: its entry in Executor::installs is there from the command until the
// code is dropped or the executor is lost.
class Cluster::Commands {
 public:
  explicit Commands(State& state);

  // A share of the memory for commands, for a session.
  std::shared_ptr<MemoryBudget> Share() const;
  // The bytes of all sessions' commands that executors have not reported to have.
  int64_t bytes() const { return memory_->used(); }
  // Whether the session has to wait.
  bool Wait(SessionId session) const;
  // About the bytes of the commands that prepare the node.
  int64_t BytesOf(const Node& node) const;
  // Whether the node's session may have so many more bytes of commands, beside those that are
  // planned. One that has next to none may have any number, as long as half of the memory is left.
  bool HasRoom(const Node& node, int64_t bytes, int64_t planned = 0) const;
  // Lets nodes that wait for room try again, and fails those that have waited for too long; some of
  // them in each tick.
  void Tick(int64_t now_ms);

  // `payer`: whose the command is; it may have ended. SessionId(): nobody pays.
  void Send(Executor& executor, Command&& command, SessionId payer);
  // Sends it to all executors of the layout, which are a span; all of them serve.
  void SendAll(const CodeLayout& layout, Command&& command, SessionId payer);
  // Makes the executor load the code, and the node wait for it.
  void Install(Executor& executor, const ExecutableSpec& spec, const std::vector<int32_t>& devices,
               Node& node);
  // Lets the executor free its shards of the group, which is declared there.
  void Free(Executor& executor, GroupId group);
  // The same for all executors between these two, which are up and take spans.
  void FreeAll(std::pair<ExecutorId, ExecutorId> span, GroupId group);
  // Sends all frees that wait for a command.
  void FlushAll();
  // The executor is being forgotten.
  void Forget(ExecutorId executor) { std::erase(with_frees_, executor); }

 private:
  void Flush(Executor& executor);
  void FlushSpans();
  // Those that run the code of several executors together, as they are now: one list for all.
  const SharedVector<InstallExecutable::Member>& MembersOf(CodeLayout& layout);
  absl::Status TooMuch(const Node& node) const;
  // Says what LaunchAll leaves out.
  void DescribePart(const ExecutableSpec& spec, const CodeLayout::Part& part,
                    InstallExecutable& install);

  const std::shared_ptr<MemoryBudget> memory_;
  std::vector<ExecutorId> with_frees_;  // some may have sent theirs
  // Groups that all executors between two free, before the next command to any of them.
  std::vector<std::pair<std::pair<ExecutorId, ExecutorId>, std::vector<GroupId>>> span_frees_;
  // The next tick looks at the nodes that wait on this island first, from that node on.
  std::pair<IslandId, NodeId> tick_next_;
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_COMMANDS_H_
