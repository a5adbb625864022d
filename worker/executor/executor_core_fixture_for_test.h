// SPDX-License-Identifier: Apache-2.0
// The fixture of the golden tests of the executor's core: it writes down every action.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_FIXTURE_FOR_TEST_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_FIXTURE_FOR_TEST_H_

#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/executor_core.h"

namespace fairway {

using Lines = std::vector<std::string>;

inline std::string Name(const ShardRef& ref) { return fmt::format("{}:{}", ref.group, ref.shard); }

class Recorder : public ExecutorActions {
 public:
  void Load(const InstallExecutable& install) override { Add("load x{}", install.executable); }
  void Unload(ExecutableId executable) override { Add("unload x{}", executable); }
  void LoadSequence(const InstallSequence& install) override {
    Add("load sequence x{}", install.executable);
  }
  // As the session does: so many at once.
  size_t ReadyLaunch(const PrepareLaunch& node, size_t from) override {
    const size_t all = (node.inputs.empty() ? 0 : node.inputs[0].size()) + node.outputs.size();
    return from + kReadyAtOnce < all ? from + kReadyAtOnce : kAll;
  }
  static constexpr size_t kReadyAtOnce = 1000;
  void StartLaunch(const PrepareLaunch& node, const Launch& launch) override {
    Add("launch n{} id {}", node.node, launch.launch_id);
    started = node;
    launched = launch;
  }
  void StartReceive(const PrepareReceive& node, size_t position) override {
    Add("receive n{}[{}]", node.node, position);
  }
  void TakeBackPulls(const PrepareReceive& node) override { Add("take back t{}", node.transfer); }
  void Share(ShardRef from, ShardRef to) override { Add("share {} {}", Name(from), Name(to)); }
  void Read(NodeId node, const std::vector<ShardRef>& shards) override {
    Add("read n{} {} shards", node, shards.size());
  }
  void WantTurn() override { turn_wanted = true; }
  void Serve(uint64_t pull, const PrepareSend::Item& item) override {
    Add("serve p{} {}{}", pull, Name(item.shard), item.box.has_value() ? " box" : "");
  }
  void RefusePull(uint64_t pull, absl::Status why) override {
    Add("refuse p{}: {}", pull, Describe(why));
  }
  void Drop(const std::vector<ShardRef>& shards) override {
    Lines names;
    for (const ShardRef& ref : shards) names.push_back(Name(ref));
    Add("drop {}", fmt::join(names, " "));
  }
  void ReportWanted(bool may_wait, bool news) override {
    wanted = true;
    urgent = urgent || !may_wait;
  }
  Lines Take() { return std::exchange(lines, {}); }

  Lines lines;
  PrepareLaunch started;  // the last one
  Launch launched;        // and its launch
  bool wanted = false;
  bool urgent = false;  // some report may not wait
  bool turn_wanted = false;

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> text, Args&&... args) {
    lines.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
};

inline std::string Text(const Report& report) {
  std::string text = fmt::format("through {} also {}", report.finished_through, report.finished);
  for (const Report::Failure& f : report.failures)
    text += f.node ? fmt::format(" failed n{}: {}", f.node, Describe(f.status))
                   : fmt::format(" failed {}: {}", f.seq, Describe(f.status));
  for (const Report::Inlined& i : report.inlined) text += fmt::format(" inline {}", Name(i.shard));
  for (const Report::Installed& i : report.installed)
    text += fmt::format(" x{}: {}", i.executable, Describe(i.status));
  if (!report.ended.empty()) text += fmt::format(" entries {}", report.ended);
  if (!report.ended.empty() && !report.news) text += " no news";
  return text;
}

inline GroupPart Part(uint64_t group, std::vector<int32_t> shards) {
  GroupPart part{GroupId(group), DType::kF32, "", {}};
  for (const int32_t shard : shards) part.shards.push_back({shard, shard, Shape{{4}}});
  return part;
}

class ExecutorCoreTest : public ::testing::Test {
 protected:
  // On one device: reads shard 0 of `inputs` and makes shard 0 of `outputs`.
  void Prepare(uint64_t node, uint64_t seq, std::vector<uint64_t> inputs,
               std::vector<uint64_t> outputs, uint64_t executable = 1, bool more = false) {
    PrepareLaunch command;
    command.node = NodeId(node);
    command.seq = seq;
    command.executable = ExecutableId(executable);
    command.devices = {0};
    command.inputs.resize(1);
    for (const uint64_t group : inputs) command.inputs[0].push_back({GroupId(group), 0});
    for (const uint64_t group : outputs) command.outputs.push_back(Part(group, {0}));
    command.more = more;
    core.OnCommand(command);
  }
  // Prepares a gang on these devices, without inputs and outputs, and launches it.
  void Gang(uint64_t node, uint64_t id, std::vector<int32_t> devices, uint64_t executable = 1) {
    PrepareLaunch command;
    command.node = NodeId(node);
    command.seq = node;
    command.executable = ExecutableId(executable);
    command.inputs.resize(devices.size());
    command.devices = std::move(devices);
    core.OnCommand(command);
    Launch(node, id, false, true);
  }
  void Done(uint64_t node) { core.LaunchDone(NodeId(node), absl::OkStatus(), {}); }
  void Launch(uint64_t node, uint64_t id, bool ahead = false, bool gang = false) {
    fairway::Launch command;
    command.node = NodeId(node);
    command.launch_id = LaunchId(id);
    command.ahead = ahead;
    command.gang = gang;
    core.OnCommand(command);
  }
  void Receive(uint64_t node, uint64_t seq, uint64_t group, std::vector<ShardSource> sources) {
    PrepareReceive command;
    command.node = NodeId(node);
    command.seq = seq;
    command.transfer = TransferId(node);
    std::vector<int32_t> shards;
    for (size_t i = 0; i < sources.size(); ++i) shards.push_back(static_cast<int32_t>(i));
    command.out = Part(group, shards);
    command.sources = std::move(sources);
    core.OnCommand(command);
  }
  void Send(uint64_t transfer, int32_t index, uint64_t group) {
    core.OnCommand(PrepareSend{TransferId(transfer), {{index, {GroupId(group), 0}}}});
  }
  void Cancel(uint64_t node) {
    core.OnCommand(CancelNode{NodeId(node), absl::UnknownError("poison")});
  }
  void Free(std::vector<uint64_t> groups) {
    FreeGroups command;
    for (const uint64_t group : groups) command.groups.push_back(GroupId(group));
    core.OnCommand(command);
  }
  static ShardSource Peer() {
    ShardSource source;
    source.kind = ShardSource::Kind::kPeer;
    return source;
  }
  static ShardSource Local(uint64_t group) {
    ShardSource source;
    source.kind = ShardSource::Kind::kLocal;
    source.shard = {GroupId(group), 0};
    return source;
  }
  // Shard 0 of `group` is here: received by node 100 + group, whose report is taken.
  void Have(uint64_t group, uint64_t seq) {
    Receive(100 + group, seq, group, {Peer()});
    core.ReceiveDone(NodeId(100 + group), 0, absl::OkStatus());
    core.TakeReport();
    actions.Take();
  }
  // All that is to be reported, in parts.
  std::vector<Report> TakeReports() {
    std::vector<Report> reports;
    while (std::exchange(actions.wanted, false)) reports.push_back(core.TakeReport());
    return reports;
  }
  std::string Reported() { return Text(core.TakeReport()); }
  // Runs the work that is left; returns the number of turns.
  int RunTurns() {
    int turns = 0;
    for (; std::exchange(actions.turn_wanted, false); ++turns) core.Turn();
    return turns;
  }

  Recorder actions;
  ExecutorCore core{&actions};
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_CORE_FIXTURE_FOR_TEST_H_
