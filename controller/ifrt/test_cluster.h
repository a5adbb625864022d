// SPDX-License-Identifier: Apache-2.0
// For tests: a real Cluster of two islands (ia: devices 0, 1; ib: devices 2, 3) whose
// executors the test plays. Their commands are recorded. A node ends when the test says so, or
// at once.
#ifndef FAIRWAY_CONTROLLER_IFRT_TEST_CLUSTER_H_
#define FAIRWAY_CONTROLLER_IFRT_TEST_CLUSTER_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/compile/compile_service.h"
#include "controller/ifrt/door.h"

namespace fairway {

class TestCluster : public ClusterActions, public CompileBackend {
 public:
  // `device_memory`: bytes per device; 0: no limit. `stored_array_bytes` as in ClusterOptions; by
  // default uploads go to their devices at once.
  explicit TestCluster(int64_t device_memory = 0, int64_t stored_array_bytes = -1,
                       IfrtSessionOptions sessions = {},
                       size_t record_memory = ClusterOptions().record_memory);

  Cluster& cluster() { return cluster_; }
  CompileService& compiler() { return compiler_; }
  IfrtDoor& door() { return door_; }

  // Ends all work off the loop and all commands so far: installs, uploads, copies and launches,
  // with their consequences, until nothing is open. An output of a launch has the bytes of the
  // argument with the same number, or zeros.
  void RunAll();
  // For the shells of front doors: RunAll calls `work`, then `then`.
  void RunOffLoop(std::function<void()> work, std::function<void()> then) {
    off_loop_.emplace_back(std::move(work), std::move(then));
  }
  // The next node that ends fails with this.
  absl::Status fail_next;

  // Answers the oldest compilation.
  void AnswerCompile(absl::StatusOr<CompiledCode> result);
  size_t open_compilations() const { return compilations_.size(); }
  const v1::CompileOptions& last_options() const { return last_options_; }
  IslandId last_island() const { return last_island_; }
  SessionId last_compiled_for() const { return last_compiled_for_; }

  ExecutorId a, b;
  std::vector<std::string> log;  // one line per action, in order

  // ClusterActions
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) override;
  void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) override;
  void WithdrawUpload(TransferId transfer) override;
  void PullToHost(TransferId transfer, ExecutorId executor, int32_t index, int64_t bytes) override;
  void WantTurn() override { turn_wanted_ = true; }

  // CompileBackend
  void Compile(SessionId session, IslandId island, std::shared_ptr<const std::string> program,
               v1::CompileOptions options,
               std::function<void(absl::StatusOr<CompiledCode>)> done) override;

  // Pieces of work for other threads that have not begun.
  size_t off_loop() const { return off_loop_.size(); }

 private:
  struct Work {
    ExecutorId executor;
    std::function<Report()> run;
    std::vector<ShardRef> needs;  // runs once each of these is there, or never will be
    NodeId node;                  // the node of a receive
  };
  void On(ExecutorId executor, const PrepareReceive& command);
  void On(ExecutorId executor, const PrepareLaunch& command);
  void On(ExecutorId executor, const Launch& command);
  void On(ExecutorId executor, const CancelNode& command);
  void Forget(const GroupPart& part, const absl::Status& cause);
  bool Ready(const Work& work) const;
  absl::Status PoisonOf(std::span<const ShardRef> shards) const;
  std::vector<ShardRef> Needs(const PrepareReceive& command) const;
  Report Ended(ExecutorId executor, uint64_t seq);
  Report Failed(const PrepareLaunch& command, const absl::Status& status);
  BytesRef Source(const PrepareReceive& command, size_t i) const;
  void Store(const PrepareReceive& command, size_t i);

  bool turn_wanted_ = false;
  std::deque<Work> work_;
  std::deque<std::pair<std::function<void()>, std::function<void()>>> off_loop_;
  std::map<std::pair<ExecutorId, NodeId>, PrepareLaunch> prepared_;
  std::map<std::pair<ExecutorId, NodeId>, PrepareReceive> received_;
  std::map<ShardRef, BytesRef> bytes_;                                 // on the "devices"
  std::map<GroupId, absl::Status> poisoned_;                           // groups that were cancelled
  std::map<TransferId, std::vector<BytesRef>> offered_;                // by the controller
  std::map<std::pair<TransferId, int32_t>, PrepareSend::Item> sends_;  // by executors
  std::deque<std::function<void(absl::StatusOr<CompiledCode>)>> compilations_;
  v1::CompileOptions last_options_;
  IslandId last_island_;
  SessionId last_compiled_for_;
  Cluster cluster_;
  CompileService compiler_;
  IfrtDoor door_;
};

// Code over `num_devices` devices with f32[8] arguments and results, cut in `num_devices` pieces.
CompiledCode TestCode(int num_arguments, int num_results, int num_devices,
                      std::vector<int> donated = {});

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_TEST_CLUSTER_H_
