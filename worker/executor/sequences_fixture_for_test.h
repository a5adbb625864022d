// SPDX-License-Identifier: Apache-2.0
// The fixture of golden dialogues of sequences on the executor's core. Groups and nodes of steps
// are numbered from 2^63; here they are printed as s0, s1, ...
#ifndef FAIRWAY_WORKER_EXECUTOR_SEQUENCES_FIXTURE_FOR_TEST_H_
#define FAIRWAY_WORKER_EXECUTOR_SEQUENCES_FIXTURE_FOR_TEST_H_

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/executor_core.h"

namespace fairway {

using Lines = std::vector<std::string>;
using Op = Instruction::Op;

inline constexpr uint64_t kFirstStep = uint64_t{1} << 63;

inline std::string Number(uint64_t id) {
  return id < kFirstStep ? fmt::format("{}", id) : fmt::format("s{}", id - kFirstStep);
}
inline std::string Name(const ShardRef& ref) {
  return fmt::format("{}:{}", Number(ref.group.value), ref.shard);
}

class Recorder : public ExecutorActions {
 public:
  void Load(const InstallExecutable&) override {}
  void Unload(ExecutableId id) override { Add("unload x{}", Number(id.value)); }
  bool LinkSteps(ExecutableId block, const StepBlock& calls) override {
    if (!links) return false;
    Lines each;
    for (const StepBlock::Call& call : calls.calls)
      each.push_back(fmt::format("x{}({})", call.executable, fmt::join(call.inputs, " ")));
    Add("link x{}: {} -> {}", Number(block.value), fmt::join(each, " "),
        fmt::join(calls.results, " "));
    return true;
  }
  void LoadSequence(const InstallSequence&) override {}
  void StartLaunch(const PrepareLaunch& node, const Launch& launch) override {
    Lines in, out;
    for (const auto& device : node.inputs) {
      for (const ShardRef& ref : device) in.push_back(Name(ref));
    }
    for (const GroupPart& part : node.outputs) out.push_back(Number(part.group.value));
    Add("x{} as {} id {} ({}) -> {}{}{}", Number(node.executable.value), Number(node.node.value),
        launch.launch_id, fmt::join(in, " "), fmt::join(out, " "), launch.ahead ? " ahead" : "",
        launch.non_donatable.empty() ? "" : fmt::format(" keep {}", launch.non_donatable));
  }
  void StartReceive(const PrepareReceive&, size_t) override {}
  void Share(ShardRef from, ShardRef to) override { Add("share {} as {}", Name(from), Name(to)); }
  void Read(NodeId node, const std::vector<ShardRef>& shards) override {
    Lines names;
    for (const ShardRef& ref : shards) names.push_back(Name(ref));
    Add("read for n{}: {}", node, fmt::join(names, " "));
  }
  void WantTurn() override { Add("want turn"); }
  void LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) override {
    Add("left out {} to {}: {}", first, last, Describe(cause));
  }
  void Serve(uint64_t pull, const PrepareSend::Item& item) override {
    Add("serve p{} {}", pull, Name(item.shard));
  }
  void RefusePull(uint64_t, absl::Status) override {}
  void Drop(const std::vector<ShardRef>& shards) override {
    Lines names;
    for (const ShardRef& ref : shards) names.push_back(Name(ref));
    Add("drop {}", fmt::join(names, " "));
  }
  void ReportWanted(bool may_wait, bool news) override {}
  Lines Take() { return std::exchange(lines_, {}); }

  bool links = false;

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  Lines lines_;
};

inline Instruction Call(uint64_t executable, std::vector<int32_t> in, std::vector<int32_t> out,
                        std::vector<int32_t> clears = {}, std::vector<int32_t> donates = {}) {
  Instruction run;
  run.executable = ExecutableId(executable);
  run.inputs = std::move(in);
  run.outputs = std::move(out);
  run.types.assign(run.outputs.size(), 0);
  run.clears = std::move(clears);
  run.donates = std::move(donates);
  return run;
}
inline Instruction Output(int32_t number, int32_t reg, std::vector<int32_t> clears = {}) {
  Instruction output;
  output.op = Op::kOutput;
  output.inputs = {reg};
  output.outputs = {number};
  output.clears = std::move(clears);
  return output;
}
inline Instruction Set(int32_t to, int32_t from, std::vector<int32_t> clears = {}) {
  Instruction set;
  set.op = Op::kSet;
  set.inputs = {from};
  set.outputs = {to};
  set.clears = std::move(clears);
  return set;
}
inline Instruction Repeat(int64_t count, int32_t length) {
  Instruction repeat;
  repeat.op = Op::kRepeat;
  repeat.count = count;
  repeat.lengths = {length};
  return repeat;
}
inline Instruction Branch(int32_t reg, std::vector<int32_t> outputs, std::vector<int32_t> lengths) {
  Instruction branch;
  branch.op = Op::kBranch;
  branch.inputs = {reg};
  branch.types.assign(outputs.size(), 0);
  branch.outputs = std::move(outputs);
  branch.lengths = std::move(lengths);
  return branch;
}

// Sequence x9 (`code`) over `devices` devices, as node 5 with seq 1; argument a is group 10 + a,
// output o is group 20 + o.
class SequencesTest : public ::testing::Test {
 protected:
  void Install(int32_t registers, int32_t outputs, std::vector<Instruction> instructions) {
    auto sequence = std::make_shared<Sequence>();
    sequence->name = "test";
    sequence->registers = registers;
    sequence->outputs = outputs;
    sequence->types = types;
    sequence->instructions = std::move(instructions);
    core.OnCommand(InstallSequence{ExecutableId(code), sequence});
    installed = core.TakeReport().installed.at(0).status;
    num_outputs = outputs;
  }
  void Arguments(int count) {
    for (int a = 0; a < count; ++a) {
      PrepareReceive command;
      command.node = NodeId(100 + a);
      command.seq = 0;
      command.out = {GroupId(10 + a), DType::kF32, "", {}};
      for (int d = 0; d < devices; ++d) {
        command.out.shards.push_back({d, d, Shape{{4}}});
        command.sources.push_back({.kind = ShardSource::Kind::kInline});
      }
      core.OnCommand(command);
      for (int d = 0; d < devices; ++d) core.ReceiveDone(command.node, d, absl::OkStatus());
    }
    core.TakeReport();
    num_arguments = count;
  }
  void Launch(std::vector<ShardRef> inlined = {}, std::vector<int32_t> keep = {}) {
    fairway::Launch launch;
    launch.inline_shards = std::move(inlined);
    launch.non_donatable = std::move(keep);
    Launch(std::move(launch));
  }
  void Launch(fairway::Launch launch) {
    PrepareLaunch prepare;
    prepare.node = NodeId(5);
    prepare.seq = 1;
    prepare.executable = ExecutableId(code);
    for (int d = 0; d < devices; ++d) {
      prepare.devices.push_back(d);
      auto& row = prepare.inputs.emplace_back();
      for (int a = 0; a < num_arguments; ++a) row.push_back({GroupId(10 + a), d});
    }
    for (int o = 0; o < num_outputs; ++o) {
      prepare.outputs.push_back({GroupId(20 + o), DType::kF32, "", {}});
      for (int d = 0; d < devices; ++d) prepare.outputs.back().shards.push_back({d, d, Shape{{4}}});
    }
    core.OnCommand(prepare);
    launch.node = NodeId(5);
    launch.launch_id = LaunchId(70);
    launch.gang = devices > 1;
    core.OnCommand(std::move(launch));
  }
  void Done(uint64_t step, absl::Status status = absl::OkStatus()) {
    core.LaunchDone(NodeId(kFirstStep + step), status, {});
  }
  std::string Reported() {
    const Report report = core.TakeReport();
    std::string text = fmt::format("through {}", report.finished_through);
    for (const auto& f : report.failures)
      text += fmt::format(" failed {}[{}]{}: {}", f.seq, f.output,
                          f.argument < 0 ? "" : fmt::format(" by argument {}", f.argument),
                          Describe(f.status));
    for (const auto& i : report.inlined) text += fmt::format(" inline {}", Name(i.shard));
    return text;
  }
  Report::Inlined Bytes(ShardRef ref, int32_t value) {
    auto bytes = Blob::Make(sizeof value);
    std::memcpy(bytes->data(), &value, sizeof value);
    return {ref, std::move(bytes)};
  }

  std::vector<Sequence::Type> types = {{DType::kF32, Shape{{4}}, ""}};
  uint64_t code = 9;
  int devices = 1;
  int num_arguments = 0;
  int num_outputs = 0;
  absl::Status installed;
  Recorder shell;
  ExecutorCore core{&shell};
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_SEQUENCES_FIXTURE_FOR_TEST_H_
