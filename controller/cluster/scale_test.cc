// SPDX-License-Identifier: Apache-2.0
// No loop of the core costs the square of anything: hosts, devices of a host, arrays, nodes that
// wait, sessions, and executors that are lost at once are doubled, one after the other, and the
// units of each part of a session's life are compared. Units are counted, never time.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized_for_test.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

// What is doubled.
struct Scale {
  int hosts = 8;
  int devices = 4;  // of each host
  int arrays = 16;  // of each session
  int waits = 8;    // nodes of each session that wait for memory
  int sessions = 2;
  int lost = 4;  // executors that are lost at once
};

// The most units of one operation and a turn after it, and of one turn.
constexpr uint64_t kMost = 3000;
constexpr int64_t kMemory = 1 << 20;  // of a device

// A shell that sends nothing. It knows what its executors have to end.
class Shell final : public ClusterActions, public SessionSink {
 public:
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget>) override {
    Report& report = reports[executor];
    if (const auto* receive = std::get_if<PrepareReceive>(&command))
      report.finished.push_back(receive->seq);
    if (const auto* prepare = std::get_if<PrepareLaunch>(&command))
      seqs[{executor, prepare->node}] = prepare->seq;
    if (const auto* launch = std::get_if<Launch>(&command))
      report.finished.push_back(seqs.at({executor, launch->node}));
    if (const auto* install = std::get_if<InstallExecutable>(&command))
      report.installed.push_back({install->executable, absl::OkStatus()});
  }
  void OfferUpload(TransferId, std::vector<BytesRef>) override {}
  void WithdrawUpload(TransferId) override {}
  void PullToHost(TransferId, ExecutorId, int32_t, int64_t) override {}
  void OnWatched(SessionId, uint64_t, absl::Status status) override {
    ++(status.ok() ? good : failed);
  }
  void WantTurn() override { turn_wanted = true; }
  void OnFetched(SessionId, uint64_t, absl::StatusOr<BytesRef>) override {}
  void OnBound(SessionId, uint64_t, absl::StatusOr<uint64_t>) override {}

  bool turn_wanted = false;
  int good = 0, failed = 0;  // watches
  std::map<ExecutorId, Report> reports;
  std::map<std::pair<ExecutorId, NodeId>, uint64_t> seqs;
};

// One island of many hosts, and sessions that use all of it.
class World {
 public:
  explicit World(const Scale& scale) : scale_(scale) {}

  // The parts of the sessions' lives, and the units of each.
  std::map<std::string, uint64_t> Run() {
    Part("register", [&] { Register(); });
    Part("open", [&] { Open(); });
    Part("put", [&] { Put(); });
    Part("call", [&] { Call(1); });
    Part("call again", [&] { Call(1); });
    Part("wait", [&] { Wait(); });
    Part("admit", [&] { Admit(); });
    Part("copy", [&] { Copy(); });
    Part("tick", [&] { cluster_.Tick(now_ += 1000); });
    Part("launch", [&] { Launch(); });
    Part("lose", [&] { Lose(); });
    Part("return", [&] { Return(); });
    Part("close", [&] { Close(); });
    EXPECT_EQ(Describe(cluster_.inspection().CheckInvariants()), "OK");
    return units_;
  }

  // Loses executors while each session has so many arrays, of eight devices each, and launches on
  // all devices under way. Only the steps of the loss count for `most_`.
  void LoseMany(int arrays) {
    Register();
    Open();
    Put();
    Call(1);
    for (Client& client : clients_) {
      for (int i = 0; i < arrays; ++i) {
        std::vector<int32_t> some;
        for (int d = 0; d < 8; ++d) some.push_back((i + d * AllDevices() / 8) % AllDevices());
        const auto put =
            cluster_.arrays().Put(client.id, client.next++,
                                  ArraySpec{DType::kF32, Shape{{16}}, Sharding::Replicated(some)},
                                  std::vector<int32_t>(some.size(), 0));
        ASSERT_TRUE(put.ok()) << put.status();
        cluster_.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64)));
      }
      client.puts.push_back(client.next - 1);
    }
    EndAll();
    Launch();
    most_ = 0;
    Lose();
    EXPECT_EQ(Describe(cluster_.inspection().CheckInvariants()), "OK");
    const uint64_t most = most_;
    EndAll();
    EXPECT_EQ(shell_.failed, 4 * scale_.sessions);  // all that was launched
    for (const Client& client : clients_)
      cluster_.arrays().Watch(client.id, 4, {client.puts.back()});
    EXPECT_EQ(shell_.failed, 5 * scale_.sessions);
    most_ = most;
    Return();
  }

  Scale scale_;
  Shell shell_;
  Cluster cluster_{Options(), &shell_};
  uint64_t most_ = 0;  // the most units of one step

 private:
  struct Client {
    SessionId id;
    uint64_t step = 0;   // takes and makes an array of 64 bytes a device
    uint64_t large = 0;  // makes one that takes half of each device
    uint64_t next = 1;   // handle
    std::vector<uint64_t> puts;
  };

  static ClusterOptions Options() {
    ClusterOptions options;
    options.stored_array_bytes = -1;
    return options;
  }
  template <typename F>
  void Part(const std::string& name, F part) {
    const uint64_t before = cluster_.units();
    part();
    units_[name] += cluster_.units() - before;
  }
  // Every operation and every turn is a step.
  template <typename F>
  auto Step(F step) {
    const uint64_t before = cluster_.units();
    auto result = step();
    most_ = std::max(most_, cluster_.units() - before);
    return result;
  }
  void Turns() {
    while (std::exchange(shell_.turn_wanted, false)) Step([&] { return cluster_.Turn(), 0; });
  }
  // All executors end what they have; again, until nothing more comes.
  void EndAll() {
    Turns();
    while (!shell_.reports.empty()) {
      for (auto& entry : std::exchange(shell_.reports, {})) {
        std::sort(entry.second.finished.begin(), entry.second.finished.end());
        Step([&] {
          cluster_.fleet().OnReport(entry.first, Incarnation(7), std::move(entry.second));
          return 0;
        });
      }
      Turns();
    }
  }
  int AllDevices() const { return scale_.hosts * scale_.devices; }

  ExecutorSpec Spec(int host) const {
    ExecutorSpec spec;
    spec.worker = fmt::format("w{}", host);
    spec.island = "i";
    spec.incarnation = Incarnation(7);
    spec.runtime = spec.platform_name = "fake";
    spec.memory_kinds = {"device"};
    spec.island_workers = scale_.hosts;
    spec.num_devices = scale_.devices;
    spec.device_memory = kMemory;
    spec.data_endpoint = spec.worker + ":1";
    return spec;
  }
  void Register() {
    for (int host = 0; host < scale_.hosts; ++host)
      executors_.push_back(Step([&] { return cluster_.fleet().ExecutorUp(Spec(host)); }).value());
  }
  void Define(uint64_t id, int64_t elements) {
    ExecutableSpec spec;
    spec.id = ExecutableId(id);
    spec.name = fmt::format("f{}", id);
    spec.island = IslandId(1);
    for (const VirtualDevice& device : cluster_.sessions().Devices(clients_[0].id))
      spec.devices.push_back(device.device);
    ValueType in, out;
    in.dtype = out.dtype = DType::kF32;
    in.global = in.shard = Shape{{16}};
    out.global = out.shard = Shape{{elements}};
    spec.parameters = {in};
    spec.outputs = {out};
    cluster_.executables().Define(std::move(spec));
  }
  void Open() {
    devices_.resize(AllDevices());
    std::iota(devices_.begin(), devices_.end(), 0);
    for (int i = 0; i < scale_.sessions; ++i) {
      Client& client = clients_.emplace_back();
      client.id = cluster_.sessions().Open("t").value();
      cluster_.sessions().SetSink(client.id, &shell_);
      if (i == 0) {
        Define(1, 16);
        Define(2, kMemory / 8);
      }
      client.step = cluster_.executables().Bind(client.id, 0, ExecutableId(1), devices_).value();
      client.large = cluster_.executables().Bind(client.id, 0, ExecutableId(2), devices_).value();
    }
  }
  void Put() {
    for (Client& client : clients_) {
      for (int i = 0; i < scale_.arrays; ++i) {
        const auto put = Step([&] {
          return cluster_.arrays().Put(
              client.id, client.next,
              ArraySpec{DType::kF32, Shape{{16}}, Sharding::Replicated(devices_)},
              std::vector<int32_t>(devices_.size(), 0));
        });
        ASSERT_TRUE(put.ok()) << put.status();
        client.puts.push_back(client.next++);
        Step([&] {
          return cluster_.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64))), 0;
        });
        EndAll();
      }
    }
  }
  // Each session calls something, and gives the result up.
  void Call(uint64_t watch) {
    for (Client& client : clients_) {
      Execute(client, client.step, watch);
      EndAll();
      Step([&] { return cluster_.arrays().Destruct(client.id, {client.next - 1}); }).IgnoreError();
    }
    EndAll();
  }
  void Execute(Client& client, uint64_t executable, uint64_t watch) {
    ExecuteOptions options;
    options.watch = watch;
    const auto called = Step([&] {
      return cluster_.executables().Execute(client.id, executable, {client.puts[0]}, options,
                                            {client.next});
    });
    ASSERT_TRUE(called.ok()) << called.status();
    ++client.next;
  }
  // Large results: the first is there, and the others wait for its memory.
  void Wait() {
    for (int i = 0; i < scale_.waits; ++i) {
      for (Client& client : clients_) Execute(client, client.large, 2);
      Turns();
    }
  }
  // Each result is given up as soon as it is there.
  void Admit() {
    for (Client& client : clients_) {
      Step([&] {
        for (int i = scale_.waits; i > 0; --i)
          cluster_.arrays().Destruct(client.id, {client.next - i}).IgnoreError();
        return 0;
      });
    }
    EndAll();
  }
  // Each session moves an array to the devices in another order.
  void Copy() {
    std::vector<int32_t> turned(devices_.rbegin(), devices_.rend());
    for (Client& client : clients_) {
      EXPECT_TRUE(Step([&] {
                    return cluster_.arrays().Copy(client.id, {client.puts[0]}, turned, std::nullopt,
                                                  CopySemantics::kAlwaysCopy, {client.next});
                  }).ok());
      ++client.next;
      EndAll();
    }
  }
  // Each session has launches under way.
  void Launch() {
    for (Client& client : clients_) {
      for (int i = 0; i < 4; ++i) Execute(client, client.step, 3);
    }
    Turns();
  }
  void Lose() {
    for (int i = 0; i < scale_.lost; ++i) {
      Step([&] {
        return cluster_.fleet().ExecutorLost(executors_[i], absl::UnavailableError("killed")), 0;
      });
      shell_.reports.erase(executors_[i]);
    }
    Turns();
  }
  void Return() {
    for (int i = 0; i < scale_.lost; ++i)
      Step([&] { return cluster_.fleet().ExecutorUp(Spec(i)); }).IgnoreError();
    cluster_.Tick(now_ += 1000);
    EndAll();
  }
  void Close() {
    for (const Client& client : clients_)
      Step([&] { return cluster_.sessions().Close(client.id), 0; });
    EndAll();
  }

  std::map<std::string, uint64_t> units_;
  std::vector<ExecutorId> executors_;
  std::vector<int32_t> devices_;
  std::vector<Client> clients_;
  int64_t now_ = 0;
};

struct Doubled {
  const char* what;
  int Scale::*number;
  int once;
};

class ScaleTest : public ::testing::TestWithParam<Doubled> {};

TEST_P(ScaleTest, DoublingItDoublesNoMoreThanTheUnits) {
  constexpr uint64_t kConstant = 64;
  Scale once;
  once.*GetParam().number = GetParam().once;
  once.hosts = std::max(once.hosts, 2 * once.lost);
  Scale twice = once;
  twice.*GetParam().number *= 2;
  World a(once), b(twice);
  const auto before = a.Run(), after = b.Run();
  for (const auto& [part, units] : after) {
    EXPECT_LE(units, 2 * before.at(part) + kConstant) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScaleTest,
                         ::testing::Values(Doubled{"Hosts", &Scale::hosts, 64},
                                           Doubled{"DevicesOfAHost", &Scale::devices, 64},
                                           Doubled{"Arrays", &Scale::arrays, 256},
                                           Doubled{"WaitingNodes", &Scale::waits, 64},
                                           Doubled{"Sessions", &Scale::sessions, 32},
                                           Doubled{"ExecutorsLostAtOnce", &Scale::lost, 32}),
                         [](const auto& info) { return info.param.what; });

// A rack goes: 512 of 1,024 executors are lost at once, while there are 10,000 arrays and launches
// on all of them are under way. No step is long, and all are told.
TEST(LargeLossTest, ManyExecutorsAreLostAtOnceInShortTurns) {
  if (kSanitized) GTEST_SKIP() << "the simulation loses executors with sanitizers";
  Scale scale;
  scale.hosts = 1024;
  scale.devices = 1;
  scale.sessions = 2;
  scale.lost = 512;
  World world(scale);
  world.LoseMany(5000);
  EXPECT_LE(world.most_, kMost);
}

}  // namespace
}  // namespace fairway
