// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/machine.h"

#include <algorithm>

#include "tests/sim/controller.h"
#include "tests/sim/world.h"
#include "wire/sequence_codec.h"

namespace fairway::sim {
namespace {

constexpr uint64_t kAtOnce = 400;  // most units of what cannot be interrupted

}  // namespace

void Machine::Deliver(const Command& command) {
  gang_watch_.OnCommand(command);
  core_->OnCommand(command);
}

void Machine::WantTurn() {
  world_.Count("turn of an executor");
  const int64_t delay = world_.random.Between(0, world_.config.turn_delay);
  turn_wanted_ = true;
  After(delay, [this] {
    turn_wanted_ = false;
    core_->Turn();
    CheckUnits();
    AfterLaunch();
  });
}

void Machine::CheckUnits() {
  const uint64_t most = core_->work().most();
  if (most > world_.config.executor_units + kAtOnce)
    world_.Broken("liveness", "{}: a turn took {} units of {}", worker_, most,
                  world_.config.executor_units);
}

void Machine::CheckTurns() {
  if (turn_wanted_) return;  // it has not come to it yet
  const auto at_work = [&](int32_t device, bool shared) {
    return std::count_if(runs_.begin(), runs_.end(), [&](const auto& run) {
      const std::vector<int32_t>& on = run->node.devices;
      return run->counts && (shared ? gang_watch_.IsShared(run->node.executable)
                                    : std::find(on.begin(), on.end(), device) != on.end());
    });
  };
  const auto overdue = gang_watch_.Overdue(
      *core_,
      [&](ShardRef ref) {
        const auto it = buffers_.find(ref);
        return it != buffers_.end() && !it->second.consumed;
      },
      [&](const PrepareLaunch& node, bool shared) {
        if (follows_.contains(node.executable)) return true;
        const int most = world_.config.gangs_at_work;
        return (!shared || at_work(0, true) < most) &&
               std::all_of(node.devices.begin(), node.devices.end(),
                           [&](int32_t device) { return at_work(device, false) < most; });
      });
  if (overdue.has_value())
    world_.Broken("G1", "{}: gang {} waits, though no gang before it uses its devices", worker_,
                  *overdue);
}

// ---- memory

void Machine::Charge(int device, int64_t bytes) {
  used_[device] += bytes;
  if (memory_ != 0 && used_[device] > memory_)
    world_.Broken("B2", "{}: device {} holds {} bytes of {}", worker_, device, used_[device],
                  memory_);
}

void Machine::Store(ShardRef ref, int device, int64_t bytes, uint64_t value) {
  const auto [it, fresh] = buffers_.emplace(ref, Buffer{value, device, bytes, 0, false});
  if (!fresh) {
    world_.Broken("B1", "{}: shard {}:{} is made while it exists", worker_, ref.group, ref.shard);
    Charge(device, -bytes);
    it->second.value = value;
  }
}

Machine::Buffer* Machine::Readable(ShardRef ref, const char* what) {
  const auto it = buffers_.find(ref);
  if (it == buffers_.end()) {
    world_.Broken("B1", "{}: {} reads {}:{}, which is not here", worker_, what, ref.group,
                  ref.shard);
    return nullptr;
  }
  if (it->second.consumed) {
    world_.Broken("B1", "{}: {} reads {}:{}, which was donated", worker_, what, ref.group,
                  ref.shard);
    return nullptr;
  }
  return &it->second;
}

void Machine::EndRead(ShardRef ref) {
  const auto it = buffers_.find(ref);
  if (it != buffers_.end() && it->second.readers > 0) --it->second.readers;
}

void Machine::EndStaleReads() {
  for (auto& [number, pull] : pulls_) {
    if (!pull.reading || core_->sends(pull.transfer)) continue;
    pull.reading = false;
    EndRead(pull.serving);
  }
}

void Machine::Drop(const std::vector<ShardRef>& shards) {
  EndStaleReads();
  for (const ShardRef ref : shards) {
    for (auto& [id, receive] : receives_) {
      if (receive.ref != ref || receive.abandoned) continue;
      receive.abandoned = true;
      if (receive.local) EndRead(receive.source);
      if (receive.assembly == nullptr) Charge(receive.device, -receive.bytes);
    }
  }
  for (const ShardRef ref : shards) {
    failed_.erase(ref);
    if (const Shards::Ref dropped = assemblies_.Drop(ref); dropped != nullptr)
      Charge(dropped->bytes.device, -dropped->bytes.bytes);
    const auto it = buffers_.find(ref);
    if (it == buffers_.end()) continue;
    if (it->second.readers > 0 && !resetting_)
      world_.Broken("B1", "{}: {}:{} is dropped while it is read", worker_, ref.group, ref.shard);
    if (!it->second.consumed) Charge(it->second.device, -it->second.bytes);
    buffers_.erase(it);
  }
}

void Machine::Share(ShardRef from, ShardRef to) {
  Buffer* buffer = Readable(from, "sharing");
  if (buffer == nullptr) return;
  buffers_[to] = Buffer{buffer->value, buffer->device, buffer->bytes, 0, false};
  buffer->bytes = 0;  // counted once
}

void Machine::Read(NodeId node, const std::vector<ShardRef>& shards) {
  world_.Count("sequence read");
  std::vector<Report::Inlined> bytes;
  for (const ShardRef ref : shards) {
    const auto it = buffers_.find(ref);
    if (it != buffers_.end() && it->second.consumed) continue;  // an output that was here before
    if (const Buffer* buffer = Readable(ref, "reading"))
      bytes.push_back({ref, BytesOf(buffer->value, 8)});
  }
  After(1, [this, node, bytes] {
    core_->ReadDone(node, bytes);
    AfterLaunch();  // a sequence may have waited for this alone
  });
}

// ---- code

void Machine::Load(const InstallExecutable& install) {
  const ExecutableId id = install.executable;
  loaded_[id] = false;
  peers_[id] = install.members;
  follows_.erase(id);
  After(world_.random.Between(1, 4 * world_.config.duration), [this, id,
                                                               alone = install.members.empty()] {
    const Code& code = world_.codes.at(id);
    loaded_[id] = !code.load_fails;
    world_.Count(code.load_fails ? "install fails" : "install");
    // Code of several executors follows where blocks are linked, as on the host runtime.
    const bool follows = !code.load_fails && (alone ? code.separable || world_.config.gang_inputs ==
                                                                            ArrivalRule::kExternal
                                                    : world_.config.blocks);
    if (follows) follows_.insert(id);
    core_->InstallDone(
        id, code.load_fails ? absl::InvalidArgumentError(code.LoadFailureText()) : absl::OkStatus(),
        follows);
  });
}

void Machine::Unload(ExecutableId executable) {
  if (blocks_.erase(executable) == 0 && loaded_.erase(executable) == 0)
    world_.Broken("code", "{}: code {} is dropped that is not there", worker_, executable);
}

void Machine::LoadSequence(const InstallSequence& install) {
  After(world_.random.Between(1, world_.config.duration), [this, install] {
    world_.Count("install of a sequence");
    core_->SequenceLoaded(install.executable, SequenceCode::Make(*DecodeSequence(*install.bytes)));
  });
}

// ---- launches

void Machine::TakeInputs(Run& run) {
  EndStaleReads();
  const ExecutableSpec& spec = run.gang->code->spec;
  const auto kept = [&](size_t a) {
    const auto& list = run.launch.non_donatable;
    return std::find(list.begin(), list.end(), static_cast<int32_t>(a)) != list.end();
  };
  for (const ShardRefs& device : run.node.inputs) {
    run.inputs.emplace_back();
    for (const ShardRef ref : device) {
      const Buffer* buffer = Readable(ref, "a launch");
      run.inputs.back().push_back(buffer == nullptr ? 0 : buffer->value);
    }
  }
  for (const ShardRefs& device : run.node.inputs) {
    for (size_t a = 0; a < device.size(); ++a) {
      if (spec.parameters[a].donated && !kept(a)) continue;
      run.reads.push_back(device[a]);
      if (Buffer* buffer = Readable(device[a], "a launch")) ++buffer->readers;
    }
  }
  for (const ShardRefs& device : run.node.inputs) {
    for (size_t a = 0; a < device.size(); ++a) {
      if (!spec.parameters[a].donated || kept(a)) continue;
      Buffer* buffer = Readable(device[a], "a donating launch");
      if (buffer == nullptr) continue;
      if (buffer->readers > 0)
        world_.Broken("B1", "{}: {}:{} is donated while it is read", worker_, device[a].group,
                      device[a].shard);
      buffer->consumed = true;
      world_.Count("donated");
      Charge(buffer->device, -buffer->bytes);
    }
  }
}

size_t Machine::ReadyLaunch(const PrepareLaunch& node, size_t from) {
  const size_t arguments = node.inputs.empty() ? 0 : node.inputs[0].size();
  if (readying_ != std::pair(from == 0 ? NodeId() : node.node, from))
    world_.Broken("API", "{}: node {} is made ready from {} on, after {} of node {}", worker_,
                  node.node, from, readying_.second, readying_.first);
  const size_t all = arguments + node.outputs.size();
  const size_t ready = from + world_.config.executor_shards;
  if (from > 0) world_.Count("launch made ready in parts");
  readying_ = {node.node, ready < all ? ready : kAll};
  return readying_.second;
}

void Machine::StartLaunch(const PrepareLaunch& node, const Launch& launch) {
  if (std::exchange(readying_, {}) != std::pair(node.node, kAll))
    world_.Broken("API", "{}: node {} is launched before it is ready", worker_, node.node);
  const auto block = blocks_.find(node.executable);
  block != blocks_.end() ? StartBlock(node, launch, block->second)
                         : StartRun(node, launch, nullptr);
  Kick();
}

void Machine::StartRun(const PrepareLaunch& node, const Launch& launch,
                       std::shared_ptr<BlockRun> block) {
  const auto before =
      launch.gang ? gang_watch_.OnStart(node, launch.launch_id) : std::optional<uint64_t>();
  if (before.has_value())
    world_.Broken("G1", "{}: launch id {} after {}", worker_, launch.launch_id, *before);
  auto run = std::make_shared<Run>();
  run->node = node;
  run->launch = launch;
  run->session = session_;
  const bool step = node.node.value >> 63 != 0;
  run->gang = step ? world_.GangOfStep(epoch_, *this, launch.launch_id, node.executable)
                   : world_.GangOf(epoch_, node.node, launch.launch_id);
  if (run->gang == nullptr)
    return world_.Broken("F1", "{}: node {} has launch id {} of no launch of its controller",
                         worker_, node.node, launch.launch_id);
  if (launch.ahead) pace_->LaunchedAhead();
  const ExecutableSpec& spec = run->gang->code->spec;
  if (!loaded_[spec.id])
    world_.Broken("G2", "{}: node {} is launched before its code is loaded", worker_, node.node);
  CheckPeers(*run);
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    if (run->gang->places[i] == this) run->positions.push_back(i);
  }
  run->block = std::move(block);
  run->behind = !launch.gang || run->block != nullptr || follows_.contains(node.executable);
  run->counts = !run->behind;
  if (run->block != nullptr)
    run->counts = ++run->block->started == run->block->linked->calls.calls.size() &&
                  !run->block->linked->follows;
  bool others = false;  // gangs of other devices are at work
  for (const int32_t device : node.devices) {
    int gangs = 1;
    for (const auto& other : runs_) {
      const std::vector<int32_t>& on = other->node.devices;
      const bool same = std::find(on.begin(), on.end(), device) != on.end();
      gangs += same && other->counts ? 1 : 0;
      others |= !same && other->launch.gang;
    }
    if (run->counts && gangs > world_.config.gangs_at_work)
      world_.Broken("G1", "{}: {} gangs at work on device {}, {} allowed", worker_, gangs, device,
                    world_.config.gangs_at_work);
  }
  if (launch.gang && others) world_.Count("launch beside gangs of other devices");
  if (!run->behind) Occupy(*run);
  for (const int32_t device : node.devices) queues_[device].push_back(run);
  runs_.insert(run);
  const bool spread = run->gang->members.size() > 1;
  if (launch.gang && run->behind)
    world_.Count(run->gang->code->separable ? "launch separable" : "launch on a stream");
  if (step) world_.Count(spread ? "step over executors" : "launch step");
  world_.Count(launch.gang ? spread ? "launch over executors" : "launch gang" : "launch single");
}

void Machine::CheckPeers(const Run& run) {
  if (run.gang->broken || run.gang->MembersAreApart() || draining()) return;
  const ExecutableId code = run.gang->code->spec.id;
  for (const InstallExecutable::Member& member : PeersOf(run)) {
    Machine* peer = world_.FindMachine(member.endpoint);
    // It may have ended or restarted without the controller knowing yet.
    const auto& members = run.gang->members;
    const bool launched_there = std::find(members.begin(), members.end(),
                                          std::pair(peer, peer->session())) != members.end();
    if (launched_there && peer->incarnation() != member.incarnation)
      world_.Broken("G2", "{}: code {} is loaded to run with an earlier {}", worker_, code,
                    member.endpoint);
  }
}

void Machine::Occupy(Run& run) {
  TakeInputs(run);
  for (const int32_t device : run.node.devices)
    Charge(device, Units(run.gang->code->spec.temp_bytes));
  for (const GroupPart& part : run.node.outputs) {
    for (const LocalShard& shard : part.shards)
      Charge(shard.device, Units(ByteSize(part.dtype, shard.shape).value()));
  }
}

absl::Status Machine::InputError(const Run& run) const {
  for (size_t a = 0; !run.node.inputs.empty() && a < run.node.inputs[0].size(); ++a) {
    for (const ShardRefs& device : run.node.inputs) {
      if (const auto failed = failed_.find(device[a]); failed != failed_.end())
        return failed->second;
    }
  }
  return absl::OkStatus();
}

void Machine::Kick() {
  std::vector<std::shared_ptr<Run>> runs(runs_.begin(), runs_.end());
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a->launch.launch_id < b->launch.launch_id; });
  for (const auto& run : runs) {
    if (run->joined) continue;
    const bool first = std::all_of(run->node.devices.begin(), run->node.devices.end(),
                                   [&](int32_t d) { return queues_[d].front() == run; });
    if (first) Join(run);
  }
}

void Machine::Join(const std::shared_ptr<Run>& run) {
  run->joined = true;
  Gang& gang = *run->gang;
  world_.Trace("  {} launch {} joins {}", worker_, run->launch.launch_id, gang.code->spec.name);
  if (run->behind) run->failure = InputError(*run);
  if (!run->failure.ok()) {
    world_.Count("launch behind a failed one");
    // Its peers hear why.
    world_.queue.After(world_.DataDelay(),
                       [&world = world_, run] { world.BreakGang(run->gang, run->failure); });
    After(1, [this, run] { LetBe(run); });
    return;
  }
  if (run->behind) Occupy(*run);
  MayFail(*run);
  if (!run->failure.ok() && world_.random.Percent(50)) {
    // It never begins. Its peers hear why when they want data from it (GangExchanges).
    world_.queue.After(world_.DataDelay(),
                       [&world = world_, run] { world.BreakGang(run->gang, run->failure); });
    After(world_.random.Between(1, 1000), [this, run] { EndRun(run); });
    return;
  }
  gang.joined[this] = run;
  for (size_t d = 0; d < run->positions.size(); ++d) {
    for (size_t a = 0; a < gang.inputs.size(); ++a)
      gang.inputs[a][run->positions[d]] = run->inputs[d][a];
  }
  if (gang.broken) {
    After(world_.random.Between(1, 500000), [this, run] { EndRun(run); });
  } else if (gang.MembersAreApart()) {
    world_.Count("launch of a member apart");
    After(gang.code->duration, [this, run] { EndRun(run); });
  } else if (gang.joined.size() == gang.members.size()) {
    world_.queue.After(gang.code->duration, [this, g = run->gang] { world_.FinishGang(g); });
  }
}

void Machine::MayFail(Run& run) {
  Random& r = world_.random;
  // More often for code that chooses a branch: little of it runs on several executors.
  const std::vector<ValueType>& outputs = run.gang->code->spec.outputs;
  const bool chooses = run.gang->members.size() > 1 && outputs.size() == 1 &&
                       outputs[0].dtype == DType::kS64 && outputs[0].global.rank() == 0;
  const int lone = world_.config.lone_percent * (chooses ? 8 : 1);
  if (lone > 0 && r.Percent(lone)) {
    world_.Count("launch fails alone");
    world_.alone |= bit();
    run.failure = absl::UnknownError("a device gave out");
  } else if (world_.config.full_percent > 0 && r.Percent(world_.config.full_percent)) {
    world_.Count("launch runs out of memory");
    world_.full |= bit();
    run.failure = absl::ResourceExhaustedError("the runtime has no memory left");
  }
}

void Machine::LetBe(const std::shared_ptr<Run>& run) {
  if (!runs_.contains(run)) return;
  runs_.erase(run);
  for (const int32_t device : run->node.devices) std::erase(queues_[device], run);
  for (const GroupPart& part : run->node.outputs) {
    for (const LocalShard& shard : part.shards) failed_[{part.group, shard.shard}] = run->failure;
  }
  if (run->block != nullptr) return StepEnded(*run->block, run->failure);
  pace_->LaunchEnded();
  core_->LaunchDone(run->node.node, run->failure, {});
  AfterLaunch();
}

void Machine::Abandon(const AbandonLaunch& command) {
  for (const auto& run : runs_) {
    const LaunchId id = run->launch.launch_id;
    if (run->gang->members.size() < 2 || id < command.first || command.last < id) continue;
    world_.Count("launch abandoned");
    world_.BreakGang(run->gang, command.cause);
  }
}

void Machine::LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) {
  world_.Trace("  {} leaves launches {} to {} out: {}", worker_, first, last, Describe(cause));
  world_.Count(first == last ? "step left out" : "branch left out");
  world_.LeftOut(epoch_, *this, first, last, cause);
}

void Machine::AfterLaunch() {
  if (registration_->ending())
    core_->EndReceives(absl::UnavailableError("the executor ends its registration"));
  const size_t in_flight = std::max(runs_.size(), core_->num_launched());
  if (registration_->Over(in_flight, core_->highest_launch_id())) {
    Reset();
  } else {
    CheckTurns();
    Kick();
  }
}

void Machine::EndRun(const std::shared_ptr<Run>& run) {
  if (!runs_.contains(run)) return;
  if (asleep_) return void(waiting_.emplace_back(life_, [this, run] { EndRun(run); }));
  runs_.erase(run);
  for (const int32_t device : run->node.devices) {
    std::erase(queues_[device], run);
    Charge(device, -Units(run->gang->code->spec.temp_bytes));
  }
  for (const ShardRef ref : run->reads) EndRead(ref);
  const Gang& gang = *run->gang;
  absl::Status status = run->failure;
  if (status.ok() && gang.broken) {
    status = gang.cause.ok() ? absl::UnknownError("a peer of the gang is gone") : gang.cause;
  } else if (status.ok()) {
    const std::vector<std::string> failures = gang.code->Failures(gang.inputs, run->positions);
    if (!failures.empty()) status = absl::UnknownError(failures[0]);
  }
  world_.Trace("  {} launch {} ends: {}", worker_, run->launch.launch_id, Describe(status));
  world_.Count(status.ok() ? "launch ends" : gang.broken ? "launch breaks" : "launch fails");
  std::vector<Report::Inlined> inlined;
  for (size_t o = 0; o < run->node.outputs.size(); ++o) {
    const GroupPart& part = run->node.outputs[o];
    for (size_t d = 0; d < part.shards.size(); ++d) {
      const LocalShard& shard = part.shards[d];
      const ShardRef ref{part.group, shard.shard};
      const int64_t size = ByteSize(part.dtype, shard.shape).value();
      if (!status.ok()) {
        Charge(shard.device, -Units(size));
        failed_[ref] = status;
        continue;
      }
      const uint64_t value = gang.code->Output(gang.inputs, o, run->positions[d]);
      Store(ref, shard.device, Units(size), value);
      const auto& wanted = run->launch.inline_shards;
      if (std::find(wanted.begin(), wanted.end(), ref) != wanted.end())
        inlined.push_back({ref, BytesOf(value, size)});
    }
  }
  if (run->block != nullptr) return StepEnded(*run->block, status);
  pace_->LaunchEnded();
  const uint64_t number = run->node.node.value;
  // Most are brief, some would be if fewer of them were launched together, and some are not.
  const size_t brief = number % 16 >= 14 ? 0 : number % 16 == 0 ? 6 : 1000;
  core_->LaunchDone(run->node.node, status, std::move(inlined), brief);
  AfterLaunch();
}

// ---- what is left

void Machine::CheckTotals() {
  for (int d = 0; d < devices_; ++d) {
    int64_t sum = 0;
    for (const auto& [ref, buffer] : buffers_)
      sum += buffer.device == d && !buffer.consumed ? buffer.bytes : 0;
    for (const auto& [id, receive] : receives_)
      sum += receive.device == d && !receive.abandoned && receive.assembly == nullptr
                 ? receive.bytes
                 : 0;
    for (const auto& [ref, made] : assemblies_)
      sum += made->bytes.device == d ? made->bytes.bytes : 0;
    if (runs_.empty() && sum != used_[d])
      world_.Broken("sim", "{}: device {} counts {} bytes and has {}", worker_, d, used_[d], sum);
  }
}

std::optional<NodeId> Machine::Running(int32_t ordinal) const {
  std::optional<NodeId> oldest;
  for (const auto& run : runs_) {
    const std::vector<int32_t>& devices = run->node.devices;
    const bool here = std::find(devices.begin(), devices.end(), ordinal) != devices.end();
    if (here && (!oldest || run->node.node < *oldest)) oldest = run->node.node;
  }
  return oldest;
}

std::string Machine::Leftovers() const {
  if (!alive()) return {};
  std::string text;
  const auto add = [&](const char* what, size_t count) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add("shards", core_->num_shards());
  add("nodes", core_->num_nodes());
  add("sends", core_->num_sends());
  add("pulls in the core", core_->num_pulls());
  add("buffers", buffers_.size());
  add("launches", runs_.size());
  add("receives", receives_.size());
  add("assemblies", assemblies_.size());
  add("pulls", pulls_.size());
  add("commands that did not come", on_the_way_.size());
  add("reports that did not come", said_.size());
  for (const int64_t bytes : used_) add("bytes", static_cast<size_t>(bytes));
  return text;
}

}  // namespace fairway::sim
