// SPDX-License-Identifier: Apache-2.0
// The support of the core's golden tests: a shell that writes every action down, and two islands.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_FIXTURE_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_FIXTURE_FOR_TEST_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace fairway {

using Lines = std::vector<std::string>;

inline std::string Ref(const ShardRef& ref) { return fmt::format("{}:{}", ref.group, ref.shard); }

inline std::string Text(const ShardSource& s) {
  switch (s.kind) {
    case ShardSource::Kind::kLocal:
      return "local " + Ref(s.shard);
    case ShardSource::Kind::kPeer:
      return fmt::format("{}#{}", s.endpoint, s.index);
    case ShardSource::Kind::kController:
      return fmt::format("controller#{}", s.index);
    case ShardSource::Kind::kInline:
      return fmt::format("inline {}B", s.bytes->size());
  }
  return "";
}

inline std::string Text(const Command& command) {
  struct Visitor {
    std::string operator()(const InstallExecutable& c) const {
      std::vector<std::string> with;
      for (const auto& member : c.members) with.push_back(member.endpoint);
      return fmt::format(
          "install x{}{}", c.executable,
          with.empty() ? "" : fmt::format(" as {} of [{}]", c.member, fmt::join(with, " ")));
    }
    std::string operator()(const InstallSequence& c) const {
      return fmt::format("install sequence x{} of {} instructions", c.executable,
                         c.sequence->instructions.size());
    }
    std::string operator()(const DropExecutable& c) const {
      return fmt::format("drop x{}", c.executable);
    }
    std::string operator()(const PrepareLaunch& c) const {
      std::vector<std::string> in;
      for (const auto& device : c.inputs)
        for (const ShardRef& ref : device) in.push_back(Ref(ref));
      std::vector<uint64_t> out;
      for (const GroupPart& part : c.outputs) out.push_back(part.group.value);
      return fmt::format("prepare n{} x{} in [{}] out {} on {}{}", c.node, c.executable,
                         fmt::join(in, " "), out, c.devices, c.more ? " and more" : "");
    }
    std::string operator()(const Launch& c) const {
      std::vector<std::string> inlined;
      for (const ShardRef& ref : c.inline_shards) inlined.push_back(Ref(ref));
      std::string failed;
      for (const auto& argument : c.failed)
        failed += fmt::format(" failed {}: {}", argument.argument, Describe(argument.status));
      return fmt::format("launch n{} id {}{}{} keep {} inline [{}]{}", c.node, c.launch_id,
                         c.gang ? " gang" : "", c.ahead ? " ahead" : "", c.non_donatable,
                         fmt::join(inlined, " "), failed);
    }
    std::string operator()(const PrepareReceive& c) const {
      std::vector<std::string> sources;
      for (size_t i = 0; i < c.sources.size(); ++i) {
        sources.push_back(Text(c.sources[i]));
        if (!c.pieces.empty()) {
          const Piece& piece = c.pieces[i];
          sources.back() += fmt::format(" {}+{} to {}:{}", piece.from.origin, piece.from.extents,
                                        c.out.shards[piece.out].shard, piece.to.origin);
        }
      }
      return fmt::format("receive n{} g{} from [{}]{}", c.node, c.out.group,
                         fmt::join(sources, ", "), c.has_reader ? " for its reader" : "");
    }
    std::string operator()(const PrepareSend& c) const {
      std::vector<std::string> items;
      for (const auto& item : c.items)
        items.push_back(
            fmt::format("#{}={}{}", item.index, Ref(item.shard),
                        item.box ? fmt::format("{}+{}", item.box->origin, item.box->extents) : ""));
      return fmt::format("send t{} [{}]", c.transfer, fmt::join(items, " "));
    }
    std::string operator()(const EndSend& c) const {
      return fmt::format("end send t{}", c.transfer);
    }
    std::string operator()(const CancelNode& c) const { return fmt::format("cancel n{}", c.node); }
    std::string operator()(const AbandonLaunch& c) const {
      return fmt::format("abandon {} to {}: {}", c.first, c.last, Describe(c.cause));
    }
    std::string operator()(const FreeGroups& c) const {
      std::vector<uint64_t> ids;
      for (const GroupId id : c.groups) ids.push_back(id.value);
      return fmt::format("free {}", ids);
    }
    std::string operator()(const LaunchAll& c) const {
      std::vector<uint64_t> in, out;
      for (const GroupId id : c.inputs) in.push_back(id.value);
      for (const GroupId id : c.outputs) out.push_back(id.value);
      return fmt::format("launch all n{} id {} x{}{} in {} out {} keep {} inline {}", c.node,
                         c.launch_id, c.executable, c.ahead ? " ahead" : "", in, out,
                         c.non_donatable, c.inline_outputs);
    }
    std::string operator()(const FailureHeard& c) const { return fmt::format("heard n{}", c.node); }
  };
  return std::visit(Visitor{}, command);
}

// Writes every action down as a line. Remembers the sequence numbers, so that tests can report the
// ends of nodes by node id.
class Recorder : public ClusterActions, public SessionSink {
 public:
  // Opens a session whose answers come here.
  SessionId Open(Cluster& of, const std::string& tenant = "t") {
    const SessionId session = of.sessions().Open(tenant).value();
    of.sessions().SetSink(session, this);
    return session;
  }
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) override {
    if (weigh) charges[executor].emplace_back(std::move(payer), weigh(command));
    if (const auto* c = std::get_if<PrepareLaunch>(&command)) seq[{executor, c->node}] = c->seq;
    if (const auto* c = std::get_if<PrepareReceive>(&command)) seq[{executor, c->node}] = c->seq;
    lines.push_back(fmt::format("e{} <- {}", executor, Text(command)));
  }
  void SendAll(ExecutorId first, ExecutorId last, Command command,
               std::shared_ptr<MemoryBudget>) override {
    lines.push_back(fmt::format("e{} to e{} <- {}", first, last, Text(command)));
  }
  void OfferUpload(TransferId t, std::vector<BytesRef> blobs) override {
    lines.push_back(fmt::format("offer t{} {} blobs", t, blobs.size()));
  }
  void WithdrawUpload(TransferId t) override { lines.push_back(fmt::format("withdraw t{}", t)); }
  void PullToHost(TransferId t, ExecutorId e, int32_t index, int64_t bytes) override {
    lines.push_back(fmt::format("pull t{} from e{} #{} {}B", t, e, index, bytes));
  }
  void OnWatched(SessionId s, uint64_t token, absl::Status status) override {
    CheckCore();
    lines.push_back(fmt::format("s{} watched {}: {}", s, token, Describe(status)));
    if (const auto call = std::exchange(on_watched, nullptr)) call();
  }
  void WantTurn() override { turn_wanted = true; }
  void OnFetched(SessionId s, uint64_t token, absl::StatusOr<BytesRef> bytes) override {
    CheckCore();
    lines.push_back(
        fmt::format("s{} fetched {}: {}", s, token,
                    bytes.ok() ? std::string((*bytes)->view()) : Describe(bytes.status())));
    if (keeps_fetched && bytes.ok()) kept.push_back(*std::move(bytes));
  }
  void OnBound(SessionId, uint64_t, absl::StatusOr<uint64_t> program) override {
    CheckCore();
    bound = program.ok() ? fmt::format("handle {}", *program) : Describe(program.status());
  }
  // An answer may call the core, so the core must be consistent when it comes.
  void CheckCore() const { EXPECT_EQ(Describe(cluster->inspection().CheckInvariants()), "OK"); }
  Lines Take() { return std::exchange(lines, {}); }

  Cluster* cluster = nullptr;
  bool turn_wanted = false;
  std::string bound;                 // how the latest program was bound
  std::function<void()> on_watched;  // called at the next one
  // What a command counts for, if tests weigh them; and what is charged until they clear it.
  std::function<int64_t(const Command&)> weigh;
  std::map<ExecutorId, std::vector<MemoryCharge>> charges;
  bool keeps_fetched = false;
  std::vector<BytesRef> kept;
  Lines lines;
  std::map<std::pair<ExecutorId, NodeId>, uint64_t> seq;
};

inline ExecutorSpec Worker(const std::string& name, const std::string& island, int devices,
                           int64_t memory = 0) {
  ExecutorSpec spec;
  spec.worker = name;
  spec.island = island;
  spec.incarnation = Incarnation(7);
  spec.runtime = "fake";
  spec.platform_name = "cpu";
  spec.memory_kinds = {"device"};
  spec.num_devices = devices;
  spec.device_memory = memory;
  spec.data_endpoint = name + ":1";
  return spec;
}

inline ValueType F32(std::vector<int64_t> dims, bool donated = false) {
  ValueType type;
  type.dtype = DType::kF32;
  type.global = type.shard = Shape{std::move(dims)};
  type.donated = donated;
  return type;
}

class ClusterTest : public ::testing::Test {
 protected:
  // Uploads go to their devices at once, whatever their size: most tests are about device memory.
  static ClusterOptions AtOnce() {
    ClusterOptions options;
    options.stored_array_bytes = -1;
    return options;
  }
  explicit ClusterTest(ClusterOptions options = AtOnce()) : cluster(std::move(options), &actions) {
    actions.cluster = &cluster;
  }
  void Start(int64_t memory = 0) {
    a = cluster.fleet().ExecutorUp(Worker("wa", "ia", 2, memory)).value();
    b = cluster.fleet().ExecutorUp(Worker("wb", "ib", 2, memory)).value();
    session = actions.Open(cluster);
    EXPECT_THAT(actions.Take(), ::testing::IsEmpty());
  }
  void TearDown() override { EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK"); }

  // Does the work that earlier operations left.
  void RunTurns() {
    while (std::exchange(actions.turn_wanted, false)) cluster.Turn();
  }
  // Uploads f32[4], or `elements`, onto one device, and reports its arrival.
  void PutReady(uint64_t handle, int32_t device, int64_t elements = 4) {
    const auto put = cluster.arrays().Put(
        session, handle, {DType::kF32, Shape{{elements}}, Sharding::SingleDevice(device)}, {0});
    ASSERT_TRUE(put.ok()) << put.status();
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4 * elements)));
    End(device < 2 ? a : b, put->upload.value);
    actions.Take();
  }
  uint64_t Define(uint64_t id, std::vector<int32_t> devices, std::vector<ValueType> in,
                  std::vector<ValueType> out, int64_t temp = 0) {
    ExecutableSpec spec;
    spec.id = ExecutableId(id);
    spec.name = fmt::format("f{}", id);
    spec.island = cluster.sessions().IslandOf(session, devices).value();
    for (const int32_t d : devices)
      spec.devices.push_back(cluster.sessions().Devices(session)[d].device);
    spec.parameters = std::move(in);
    spec.outputs = std::move(out);
    spec.temp_bytes = temp;
    cluster.executables().Define(std::move(spec));
    return cluster.executables().Bind(session, 0, ExecutableId(id), devices).value();
  }
  void Installed(ExecutorId e, uint64_t id, absl::Status status = absl::OkStatus()) {
    Report report;
    report.installed.push_back({ExecutableId(id), status});
    cluster.fleet().OnReport(e, Incarnation(7), report);
  }
  void End(ExecutorId e, uint64_t node, absl::Status status = absl::OkStatus(),
           std::vector<Report::Inlined> inlined = {}) {
    Report report;
    const uint64_t seq = actions.seq.at({e, NodeId(node)});
    report.finished = {seq};
    if (!status.ok()) report.failures.push_back({seq, status});
    report.inlined = std::move(inlined);
    cluster.fleet().OnReport(e, Incarnation(7), report);
    EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  static BytesRef Bytes(std::string_view text) { return Blob::Copy(text); }

  Recorder actions;
  Cluster cluster;
  ExecutorId a, b;
  SessionId session;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_FIXTURE_FOR_TEST_H_
