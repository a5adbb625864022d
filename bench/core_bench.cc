// SPDX-License-Identifier: Apache-2.0
// The cost of deciding: one thread, no sockets, no devices. Each iteration is one step of a chain,
// y = f(y): Execute, its PREPARE and LAUNCH at the executors' cores, their reports of its end, and
// the free of the input. Expectation: a step touches a few maps per shard, so it costs some
// microseconds and less than one per shard.
#include <deque>
#include <memory>

#include <benchmark/benchmark.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "worker/executor/executor_core.h"

namespace fairway {
namespace {

// An executor whose device is infinitely fast.
class InstantExecutor : public ExecutorActions {
 public:
  void Load(const InstallExecutable& install) override {
    core.InstallDone(install.executable, absl::OkStatus());
  }
  void Unload(ExecutableId) override {}
  void StartLaunch(const PrepareLaunch& node, const Launch&) override {
    launched.push_back(node.node);
  }
  void StartReceive(const PrepareReceive& node, size_t position) override {
    received.emplace_back(node.node, position);
  }
  void Share(ShardRef, ShardRef) override {}
  void Read(NodeId, const std::vector<ShardRef>&) override {}
  void WantTurn() override { turn_wanted = true; }
  void Serve(uint64_t, const PrepareSend::Item&) override {}
  void RefusePull(uint64_t, absl::Status) override {}
  void Drop(const std::vector<ShardRef>&) override {}
  void ReportWanted() override { report_wanted = true; }

  void Work() {
    while (std::exchange(turn_wanted, false)) core.Turn();
    while (!launched.empty()) {
      const NodeId node = launched.front();
      launched.pop_front();
      core.LaunchDone(node, absl::OkStatus(), {});
    }
    while (!received.empty()) {
      const auto [node, position] = received.front();
      received.pop_front();
      core.ReceiveDone(node, position, absl::OkStatus());
    }
  }

  ExecutorCore core{this};
  bool report_wanted = false, turn_wanted = false;
  std::deque<NodeId> launched;
  std::deque<std::pair<NodeId, size_t>> received;
};

class World : public ClusterActions {
 public:
  explicit World(int devices) {
    ExecutorSpec spec;
    spec.worker = spec.island = "w";
    spec.incarnation = Incarnation(1);
    spec.runtime = "instant";
    spec.num_devices = devices;
    cluster.fleet().ExecutorUp(spec).value();
    session = cluster.sessions().Open("bench").value();
    std::vector<int32_t> ids;
    ExecutableSpec executable;
    executable.id = ExecutableId(1);
    executable.name = "step";
    executable.island = IslandId(1);
    for (int i = 0; i < devices; ++i) {
      ids.push_back(i);
      executable.devices.push_back(cluster.sessions().Devices(session)[i].device);
    }
    ValueType scalar;
    scalar.dtype = DType::kF32;
    executable.parameters = {scalar};
    executable.outputs = {scalar};
    cluster.executables().Define(executable);
    step = cluster.executables().Bind(session, 0, ExecutableId(1), ids).value();
    const auto put = cluster.arrays().Put(session, 1, {DType::kF32, {}, Sharding::Replicated(ids)},
                                          std::vector<int32_t>(devices, 0));
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4)));
    Deliver();
  }
  void Send(ExecutorId, Command command, std::shared_ptr<MemoryBudget>) override {
    commands.push_back(std::move(command));
  }
  void OfferUpload(TransferId, std::vector<BytesRef>) override {}
  void WithdrawUpload(TransferId) override {}
  void PullToHost(TransferId, ExecutorId, int32_t, int64_t) override {}
  void WantTurn() override { turn_wanted = true; }

  bool turn_wanted = false;
  void Deliver() {
    do {
      while (std::exchange(turn_wanted, false)) cluster.Turn();
      while (!commands.empty()) {
        executor.core.OnCommand(std::move(commands.front()));
        commands.pop_front();
      }
      executor.Work();
      if (executor.report_wanted) {
        executor.report_wanted = false;
        cluster.fleet().OnReport(ExecutorId(1), Incarnation(1), executor.core.TakeReport());
      }
    } while (!commands.empty() || executor.report_wanted);
  }

  Cluster cluster{ClusterOptions{}, this};
  InstantExecutor executor;
  std::deque<Command> commands;
  SessionId session;
  uint64_t step = 0;
};

void BM_ChainStep(benchmark::State& state) {
  World world(static_cast<int>(state.range(0)));
  uint64_t handle = 1;
  for (auto _ : state) {
    const auto run =
        world.cluster.executables().Execute(world.session, world.step, {handle}, {}, {handle + 1});
    if (!run.ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(world.cluster.arrays().Destruct(world.session, {handle}));
    ++handle;
    world.Deliver();
  }
  if (world.cluster.inspection().counts().groups != 1) state.SkipWithError("steps are missing");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ChainStep)->ArgName("devices")->Arg(1)->Arg(8)->Arg(32);

}  // namespace
}  // namespace fairway

BENCHMARK_MAIN();
