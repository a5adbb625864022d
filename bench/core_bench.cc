// SPDX-License-Identifier: Apache-2.0
// The cost of deciding: one thread, no sockets, no devices. Each iteration is one step of a chain,
// y = f(y): Execute, its PREPARE and LAUNCH at the executors' cores, their reports of its end, and
// the free of the input. Expectation: a step touches a few maps per shard, so it costs some
// microseconds and less than one per shard. BM_Copy is a copy to another island.
// BM_WideCall is a call of many results.
#include <time.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <numeric>

#include <benchmark/benchmark.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "wire/link_codec.h"
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
  void LoadSequence(const InstallSequence&) override {}  // none is used
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
  void ReportWanted(bool may_wait, bool news) override { report_wanted = true; }

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

// One island of one executor, and a session.
class OneIsland : public ClusterActions {
 public:
  explicit OneIsland(int devices) {
    ExecutorSpec spec;
    spec.worker = spec.island = "w";
    spec.incarnation = Incarnation(1);
    spec.runtime = "instant";
    spec.num_devices = devices;
    cluster.fleet().ExecutorUp(spec).value();
    session = cluster.sessions().Open("bench").value();
    ids.resize(static_cast<size_t>(devices));
    std::iota(ids.begin(), ids.end(), 0);
  }
  // Defines code that takes and makes so many scalars, on all devices. Returns its handle.
  uint64_t Code(size_t arguments, size_t results) {
    ExecutableSpec executable;
    executable.id = ExecutableId(1);
    executable.name = "step";
    executable.island = IslandId(1);
    for (const int32_t id : ids)
      executable.devices.push_back(cluster.sessions().Devices(session)[id].device);
    ValueType scalar;
    scalar.dtype = DType::kF32;
    executable.parameters.assign(arguments, scalar);
    executable.outputs.assign(results, scalar);
    cluster.executables().Define(executable);
    return cluster.executables().Bind(session, 0, ExecutableId(1), ids).value();
  }
  void Send(ExecutorId, Command command, std::shared_ptr<MemoryBudget>) override {
    commands.push_back(std::move(command));
  }
  void OfferUpload(TransferId, std::vector<BytesRef>) override {}
  void WithdrawUpload(TransferId) override {}
  void PullToHost(TransferId, ExecutorId, int32_t, int64_t) override {}
  void WantTurn() override { turn_wanted = true; }

  bool turn_wanted = false;
  Cluster cluster{ClusterOptions{}, this};
  InstantExecutor executor;
  std::deque<Command> commands;
  SessionId session;
  std::vector<int32_t> ids;  // of all devices
};

class World : public OneIsland {
 public:
  explicit World(int devices) : OneIsland(devices) {
    step = Code(1, 1);
    const auto put = cluster.arrays().Put(session, 1, {DType::kF32, {}, Sharding::Replicated(ids)},
                                          std::vector<int32_t>(ids.size(), 0));
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4)));
    Deliver();
  }
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

// Two islands of one executor each. Commands are encoded and decoded, as between processes.
class TwoIslands : public ClusterActions {
 public:
  explicit TwoIslands(int devices) : devices(devices) {
    for (const char* name : {"a", "b"}) {
      ExecutorSpec spec;
      spec.worker = spec.island = name;
      spec.data_endpoint = "10.20.30.40:29004";
      spec.incarnation = Incarnation(0x1234567890abcdef);
      spec.runtime = "instant";
      spec.num_devices = devices;
      cluster.fleet().ExecutorUp(spec).value();
    }
    session = cluster.sessions().Open("bench").value();
    std::vector<int32_t> blobs(static_cast<size_t>(devices));
    std::iota(blobs.begin(), blobs.end(), 0);
    const Shape shape{{devices * kBytes / 4}};
    const auto put = cluster.arrays().Put(
        session, 1,
        {DType::kF32, shape,
         Sharding::ConcreteEven(OnIsland(0), Shape{{kBytes / 4}}, /*replicated=*/false)},
        blobs);
    for (const int32_t blob : blobs)
      cluster.arrays().ProvideUpload(put->upload, blob, BytesRef(Blob::Make(kBytes)));
    Deliver();
  }
  std::vector<int32_t> OnIsland(int island) const {
    std::vector<int32_t> ids(static_cast<size_t>(devices));
    std::iota(ids.begin(), ids.end(), island * devices);
    return ids;
  }
  absl::Status CopyTo(int island, uint64_t in, uint64_t out) {
    return cluster.arrays()
        .Copy(session, {in}, OnIsland(island), std::nullopt, CopySemantics::kAlwaysCopy, {out})
        .status();
  }
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget>) override {
    commands.emplace_back(executor, EncodeCommand(command).value());
  }
  void OfferUpload(TransferId, std::vector<BytesRef>) override {}
  void WithdrawUpload(TransferId) override {}
  void PullToHost(TransferId, ExecutorId, int32_t, int64_t) override {}
  void WantTurn() override { turn_wanted = true; }
  void Deliver() {
    bool more = true;
    while (more) {
      while (std::exchange(turn_wanted, false)) cluster.Turn();
      for (; !commands.empty(); commands.pop_front()) {
        const auto& [executor, body] = commands.front();
        bytes += body.size();
        executors[executor.value - 1].core.OnCommand(DecodeCommand(body).value());
      }
      for (uint32_t i = 0; i < executors.size(); ++i) {
        InstantExecutor& executor = executors[i];
        executor.Work();
        if (!std::exchange(executor.report_wanted, false)) continue;
        cluster.fleet().OnReport(ExecutorId(i + 1), Incarnation(0x1234567890abcdef),
                                 executor.core.TakeReport());
      }
      more = turn_wanted || !commands.empty() || executors[0].report_wanted ||
             executors[1].report_wanted;
    }
  }

  static constexpr int64_t kBytes = 1 << 20;  // large uploads do not stay with the controller
  const int devices;
  bool turn_wanted = false;
  std::array<InstantExecutor, 2> executors;
  std::deque<std::pair<ExecutorId, std::string>> commands;
  size_t bytes = 0;  // of all commands so far
  Cluster cluster{ClusterOptions{}, this};
  SessionId session;
};

void BM_Copy(benchmark::State& state) {
  TwoIslands world(static_cast<int>(state.range(0)));
  const size_t before = world.bytes;
  uint64_t handle = 1;
  for (auto _ : state) {
    if (!world.CopyTo(1, 1, ++handle).ok()) state.SkipWithError("refused");
    world.Deliver();
    benchmark::DoNotOptimize(world.cluster.arrays().Destruct(world.session, {handle}));
    world.Deliver();
  }
  state.counters["bytes"] =
      static_cast<double>(world.bytes - before) / static_cast<double>(state.iterations());
}
BENCHMARK(BM_Copy)->ArgName("devices")->Arg(1)->Arg(8);

double CpuMs() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Calls `f`; `longest` becomes the longest processor time of such a call, in ms.
template <typename F>
void Timed(double& longest, const F& f) {
  const double began = CpuMs();
  f();
  longest = std::max(longest, CpuMs() - began);
}

// A world whose calls into the cores are timed, and whose commands are encoded as the hub does it.
class WideWorld : public OneIsland {
 public:
  explicit WideWorld(size_t results) : OneIsland(1), handles(results) {
    wide = Code(0, results);
    std::iota(handles.begin(), handles.end(), 1);
  }
  void Deliver() {
    bool more = true;
    while (more) {
      while (std::exchange(turn_wanted, false)) Timed(core_ms, [&] { cluster.Turn(); });
      while (!commands.empty()) {
        std::string body;
        Timed(encode_ms, [&] { body = EncodeCommand(commands.front()).value(); });
        commands.pop_front();
        Timed(executor_ms, [&] { executor.core.OnCommand(DecodeCommand(body).value()); });
      }
      while (std::exchange(executor.turn_wanted, false))
        Timed(executor_ms, [&] { executor.core.Turn(); });
      for (; !executor.launched.empty(); executor.launched.pop_front()) {
        Timed(executor_ms,
              [&] { executor.core.LaunchDone(executor.launched.front(), absl::OkStatus(), {}); });
      }
      if (std::exchange(executor.report_wanted, false)) {
        Report report;
        Timed(executor_ms, [&] { report = executor.core.TakeReport(); });
        Timed(core_ms,
              [&] { cluster.fleet().OnReport(ExecutorId(1), Incarnation(1), std::move(report)); });
      }
      more = turn_wanted || !commands.empty() || executor.turn_wanted || executor.report_wanted ||
             !executor.launched.empty();
    }
  }

  double core_ms = 0, encode_ms = 0, executor_ms = 0;
  uint64_t wide = 0;
  std::vector<uint64_t> handles;
};

// A call of many results, and their end: how long is the longest turn of each loop?
void BM_WideCall(benchmark::State& state) {
  WideWorld world(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    Timed(world.core_ms, [&] {
      world.cluster.executables().Execute(world.session, world.wide, {}, {}, world.handles,
                                          [](absl::StatusOr<std::vector<uint64_t>>) {});
    });
    world.Deliver();
    Timed(world.core_ms, [&] {
      world.cluster.arrays().Destruct(world.session, world.handles, [](absl::Status) {});
    });
    world.Deliver();
  }
  if (world.cluster.inspection().counts().groups != 0) state.SkipWithError("results are left");
  state.counters["core_ms"] = world.core_ms;
  state.counters["encode_ms"] = world.encode_ms;
  state.counters["executor_ms"] = world.executor_ms;
}
BENCHMARK(BM_WideCall)->ArgName("results")->Arg(1024)->Arg(65535)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fairway

BENCHMARK_MAIN();
