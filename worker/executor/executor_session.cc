// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/executor_session.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <spdlog/spdlog.h>

#include "wire/sequence_codec.h"
#include "worker/compiler/checksum.h"

namespace fairway {
namespace {

// Larger buffers are destroyed by the blocking pool.
constexpr int64_t kDropInLoop = 1 << 20;

// Of a launch: arguments and results that are made ready, or outputs that are taken over, in one
// turn of the loop; and outputs that are read in one.
constexpr size_t kShardsAtOnce = 1024, kReadAtOnce = 128;

std::vector<int> Ints(const std::vector<int32_t>& in) { return {in.begin(), in.end()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutorSession>> ExecutorSession::Open(
    Context context, Incarnation incarnation, const std::string& data_bind,
    const std::string& advertise_host, std::function<void(Report)> send) {
  std::unique_ptr<ExecutorSession> session(
      new ExecutorSession(context, incarnation, std::move(send)));
  FAIRWAY_ASSIGN_OR_RETURN(
      session->plane_,
      MakeTcpDataPlane(
          *context.loop, data_bind, advertise_host, incarnation, session->data_key_,
          [s = session.get()](PullRequest request, DataPlane::Answer answer) {
            s->OnPull(request, std::move(answer));
          },
          {},
          [exchanges = session->exchanges_](PullRequest request, DataPlane::Answer answer) {
            exchanges->OnPull(request, std::move(answer));
          },
          [exchanges = session->exchanges_](const PushName& name, std::shared_ptr<Blob>& bytes) {
            return exchanges->OnPush(name, bytes);
          },
          [s = session.get()](PullRequest request) { s->OnTakenBack(request); },
          TlsUse{context.tls, std::nullopt}));
  session->exchanges_->Open(session->plane_.get());
  if (context.launches != nullptr) {
    session->exchanges_->BeforeLongWaits(context.launches->FlushGangEnds());
  }
  return session;
}

ExecutorSession::ExecutorSession(Context context, Incarnation incarnation,
                                 std::function<void(Report)> send)
    : context_(context),
      incarnation_(incarnation),
      send_(std::move(send)),
      core_(this),
      buffers_(context.runtime->info().num_devices) {}

ExecutorSession::~ExecutorSession() { End(); }

void ExecutorSession::SetController(std::string data_endpoint, Incarnation incarnation) {
  controller_endpoint_ = std::move(data_endpoint);
  controller_ = incarnation;
}

void ExecutorSession::End() {
  if (ended_) return;
  ended_ = true;
  report_pace_.Stop();
  pulls_.clear();
  exchanges_->Close(absl::UnavailableError("the executor's registration has ended"));
  plane_.reset();
  core_.Reset();
  executables_.clear();
}

void ExecutorSession::Drop(const std::vector<ShardRef>& shards) {
  std::vector<std::shared_ptr<DeviceBuffer>> large;
  for (const ShardRef ref : shards) {
    assemblies_.Drop(ref);
    auto dropped = buffers_.Drop(ref);
    if (dropped.bytes >= kDropInLoop && dropped.buffer != nullptr)
      large.push_back(std::move(dropped.buffer));
  }
  // Giving 64 MiB back to the system takes 20 ms or more.
  if (!large.empty())
    context_.blocking->Run([large = std::move(large)]() mutable { large.clear(); });
}

// ---- Code ----

void ExecutorSession::Load(const InstallExecutable& install) {
  auto executable = std::make_shared<Executable>();
  executable->shared = !install.members.empty();
  executables_[install.executable] = executable;
  auto loaded = Poster(
      "code loaded", [this, executable, id = install.executable, alone = install.members.empty()](
                         absl::StatusOr<std::shared_ptr<LoadedExecutable>> result) {
        if (result.ok()) {
          executable->loaded = *std::move(result);
          executable->follows =
              executable->loaded->follows() ||
              (alone && context_.runtime->info().gang_inputs == ArrivalRule::kExternal);
        }
        if (ended_) return;
        const auto held = executables_.find(id);  // end() if it was dropped in the meantime
        core_.InstallDone(id, result.status(), held != executables_.end() && held->second->follows);
      });
  std::shared_ptr<Exchange> exchange;
  if (!install.members.empty()) exchange = exchanges_->Make(install.members, install.member);
  context_.blocking->Run([runtime = context_.runtime, code = install.code,
                          checksum = install.checksum, devices = Ints(install.devices),
                          exchange = std::move(exchange), loaded = std::move(loaded)]() mutable {
    // Native code with a flipped byte loads without complaint.
    if (code == nullptr || Sha256Hex(*code) != checksum) {
      return loaded(absl::StatusOr<std::shared_ptr<LoadedExecutable>>(
          absl::DataLossError("compiled code was damaged in transit: its checksum differs")));
    }
    loaded(exchange == nullptr ? runtime->Load(*code, devices)
                               : runtime->LoadShare(*code, devices, std::move(exchange)));
  });
}

void ExecutorSession::LoadSequence(const InstallSequence& install) {
  using Loaded = absl::StatusOr<std::shared_ptr<const SequenceCode>>;
  auto loaded = Poster("sequence loaded", [this, id = install.executable](Loaded code) {
    if (!ended_) core_.SequenceLoaded(id, std::move(code));
  });
  // It may have hundreds of thousands of instructions, so those threads also destroy it, as long as
  // the session, and thus the pool, is there.
  context_.blocking->Run([pool = context_.blocking, alive = std::weak_ptr<bool>(alive_),
                          bytes = install.bytes, loaded = std::move(loaded)]() mutable {
    const auto load = [&]() -> Loaded {
      FAIRWAY_ASSIGN_OR_RETURN(auto sequence, DecodeSequence(*bytes));
      FAIRWAY_ASSIGN_OR_RETURN(auto code, SequenceCode::Make(std::move(sequence)));
      const SequenceCode* const whole = code.get();
      return std::shared_ptr<const SequenceCode>(
          whole, [pool, alive, code = std::move(code)](const SequenceCode*) mutable {
            if (!alive.expired()) pool->Run([code = std::move(code)]() mutable { code = nullptr; });
          });
    };
    loaded(load());
  });
}

void ExecutorSession::Unload(ExecutableId executable) { executables_.erase(executable); }

bool ExecutorSession::LinkSteps(ExecutableId block, const StepBlock& calls) {
  LinkRequest request;
  request.arguments = static_cast<int32_t>(calls.step.inputs.size());
  request.results = calls.results;
  auto linked = std::make_shared<Executable>();
  linked->shared = linked->follows = true;
  linked->launch_ids = calls.calls.size();
  for (const StepBlock::Call& call : calls.calls) {
    const auto code = executables_.find(call.executable);
    if (code == executables_.end() || code->second->loaded == nullptr) return false;
    linked->follows = linked->follows && code->second->follows;
    request.calls.push_back({code->second->loaded, call.inputs, call.outputs, call.ends});
  }
  auto loaded = context_.runtime->Link(request);
  if (!loaded.ok()) return false;
  linked->loaded = *std::move(loaded);
  executables_[block] = std::move(linked);
  return true;
}

// ---- Launches ----

size_t ExecutorSession::ReadyLaunch(const PrepareLaunch& node, size_t from) {
  const size_t arguments = node.inputs.empty() ? 0 : node.inputs[0].size();
  const size_t values = arguments + node.outputs.size();
  if (from == 0) {
    starting_.job.inputs.resize(node.inputs.size());
    for (auto& row : starting_.job.inputs) row.reserve(arguments);
    starting_.outputs.reserve(node.outputs.size() * node.devices.size());
    const auto executable = executables_.find(node.executable);
    starting_.followed = node.devices.size() == 1 ||
                         (executable != executables_.end() && executable->second->follows);
  }
  const size_t end =
      std::min(values, from + std::max<size_t>(kShardsAtOnce / node.devices.size(), 1));
  for (size_t v = from; v < end; ++v)
    v < arguments ? FindArgument(node, v) : ExpectOutput(node, v - arguments);
  return end == values ? kAll : end;
}

void ExecutorSession::FindArgument(const PrepareLaunch& node, size_t argument) {
  LaunchJob& job = starting_.job;
  for (size_t d = 0; d < node.inputs.size(); ++d) {
    const ShardRef ref = node.inputs[d][argument];
    const LaunchJob::Input& input = job.inputs[d].emplace_back(buffers_.FindInput(ref));
    if (input.buffer != nullptr) {
      if (buffers_.IsShared(*input.buffer))
        job.request.non_donatable.push_back(static_cast<int>(argument));
    } else if (input.from == nullptr && starting_.problem.ok()) {
      starting_.problem =
          Error(absl::StatusCode::kInternal, "node {}: no buffer for shard {} of group {}",
                node.node, ref.shard, ref.group);
    }
  }
}

void ExecutorSession::ExpectOutput(const PrepareLaunch& node, size_t output) {
  const GroupPart& part = node.outputs[output];
  for (size_t d = 0; d < part.shards.size(); ++d) {
    const LocalShard& shard = part.shards[d];
    const ShardRef ref{part.group, shard.shard};
    starting_.outputs.push_back({ref, {d, output}});
    LaunchJob::Input coming;
    if (starting_.followed) coming = {nullptr, starting_.job.outputs, d, output};
    buffers_.Expect(ref, shard.device, ByteSize(part.dtype, shard.shape).value_or(0),
                    std::move(coming));
  }
}

std::vector<LaunchJob::Output> ExecutorSession::OutputsOf(
    const std::vector<Launched::Output>& outputs, const std::vector<ShardRef>& shards) {
  std::vector<LaunchJob::Output> out(shards.size());
  absl::InlinedVector<std::pair<ShardRef, size_t>, 4> asked;
  for (size_t i = 0; i < shards.size(); ++i) asked.emplace_back(shards[i], i);
  std::sort(asked.begin(), asked.end());
  for (size_t o = 0, found = 0; found < shards.size() && o < outputs.size(); ++o) {
    const ShardRef ref = outputs[o].shard;
    const auto* const at = std::lower_bound(asked.begin(), asked.end(), std::pair(ref, size_t{0}));
    if (at == asked.end() || at->first != ref) continue;
    out[at->second] = outputs[o].from;
    ++found;
  }
  return out;
}

void ExecutorSession::StartLaunch(const PrepareLaunch& node, const Launch& launch) {
  if (launch.ahead) report_pace_.LaunchedAhead();
  Starting starting = std::exchange(starting_, {});
  LaunchJob& job = starting.job;
  const auto executable = executables_.find(node.executable);
  const bool loaded = executable != executables_.end() && executable->second->loaded != nullptr;
  // On other runtimes a read would keep the output from being donated to a later launch, and a read
  // after the launch costs nothing.
  if (context_.runtime->info().gang_inputs == ArrivalRule::kExternal)
    job.reads = OutputsOf(starting.outputs, launch.inline_shards);
  job.request.devices = Ints(node.devices);
  job.request.non_donatable.insert(job.request.non_donatable.end(), launch.non_donatable.begin(),
                                   launch.non_donatable.end());
  job.request.launch_id = launch.launch_id.value;
  const bool gang = launch.gang || node.devices.size() > 1;
  ++in_flight_;
  ++launches_;
  if (gang) ++gangs_launched_;
  Launched launched{node.node,
                    node.outputs.size(),
                    std::move(starting.outputs),
                    launch.inline_shards,
                    job.outputs,
                    launch.gang ? launch.launch_id : LaunchId()};
  if (loaded) launched.launch_ids = job.launch_ids = executable->second->launch_ids;
  job.done =
      Poster("launch ended", [this, launched = std::move(launched)](absl::Status status) mutable {
        LaunchEnded(std::move(launched), std::move(status));
      });
  absl::Status problem = std::move(starting.problem);
  if (!loaded)
    problem = Error(absl::StatusCode::kInternal, "node {}: executable {} is not loaded here",
                    node.node, node.executable);
  if (!problem.ok()) {
    job.outputs->status = problem;
    return job.done(problem);
  }
  job.executable = executable->second->loaded;
  if (gang) {
    job.shared = executable->second->shared;
    context_.launches->LaunchGang(std::move(job));
  } else {
    context_.launches->LaunchSingle(std::move(job));
  }
}

void ExecutorSession::LaunchEnded(Launched launched, absl::Status status) {
  if (ended_) {
    --in_flight_;
    return;
  }
  const auto& made = launched.made->buffers;
  if (status.ok() && !made.empty() && made[0].size() != launched.num_outputs) {
    status = Error(absl::StatusCode::kInternal, "the executable made {} outputs, {} were prepared",
                   made[0].size(), launched.num_outputs);
  }
  const auto results = !status.ok() && launched.launch_ids > 1 ? ResultsOf(*launched.made)
                                                               : std::vector<absl::Status>();
  const size_t end = std::min(launched.outputs.size(), launched.ended + kShardsAtOnce);
  for (; launched.ended < end; ++launched.ended) {
    const auto& [shard, from] = launched.outputs[launched.ended];
    if (!(from.output < results.size() ? results[from.output] : status).ok()) {
      buffers_.Drop(shard);
    } else if (from.device < made.size()) {
      buffers_.Put(shard, made[from.device][from.output]);
    }
  }
  if (end < launched.outputs.size()) {
    return PostHere("launch ended",
                    [this, launched = std::move(launched), status = std::move(status)]() mutable {
                      LaunchEnded(std::move(launched), std::move(status));
                    });
  }
  --in_flight_;
  report_pace_.LaunchEnded();
  if (!status.ok()) {
    // Not its end: earlier gangs may still run. A block has told each step's end.
    const bool block = launched.launch_ids > 1 && !launched.made->buffers.empty();
    if (launched.gang && !block)
      exchanges_->LeaveOut(launched.gang.value, launched.gang.value + launched.launch_ids - 1,
                           status);
    core_.LaunchDone(launched.node, status, {}, /*brief=*/0, results);
  } else if (launched.inline_shards.empty()) {
    core_.LaunchDone(launched.node, absl::OkStatus(), {}, launched.made->brief);
  } else if (const auto& bytes = launched.made->bytes; !bytes.empty()) {
    std::vector<Report::Inlined> inlined;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != nullptr) inlined.push_back({launched.inline_shards[i], bytes[i]});
    }
    core_.LaunchDone(launched.node, absl::OkStatus(), std::move(inlined), launched.made->brief);
  } else {
    ReadShards(launched.inline_shards, [this, node = launched.node, brief = launched.made->brief](
                                           std::vector<Report::Inlined> inlined) {
      core_.LaunchDone(node, absl::OkStatus(), std::move(inlined), brief);
    });
  }
  // Those that were dropped in the meantime may be many.
  if (end > kShardsAtOnce)
    context_.blocking->Run([made = std::move(launched.made)]() mutable { made = nullptr; });
}

std::vector<absl::Status> ExecutorSession::ResultsOf(const LaunchOutputs& made) {
  std::vector<absl::Status> results(made.buffers.empty() ? 0 : made.buffers[0].size());
  for (const auto& device : made.buffers) {
    for (size_t o = 0; o < device.size(); ++o) {
      auto known = std::make_shared<absl::Status>(absl::InternalError("it has not ended"));
      device[o]->OnReady([known](absl::Status status) { *known = std::move(status); });
      if (results[o].ok()) results[o] = *known;
    }
  }
  return results;
}

void ExecutorSession::Read(NodeId node, const std::vector<ShardRef>& shards) {
  // The core must not be called from within its own call.
  PostHere("read", [this, node, shards] {
    if (ended_) return;
    ReadShards(shards, [this, node](std::vector<Report::Inlined> bytes) {
      core_.ReadDone(node, std::move(bytes));
    });
  });
}

void ExecutorSession::WantTurn() {
  PostHere("executor turn", [this] {
    if (!ended_) core_.Turn();
  });
}

void ExecutorSession::ReadShards(const std::vector<ShardRef>& shards,
                                 absl::AnyInvocable<void(std::vector<Report::Inlined>)> done) {
  auto reading = std::make_shared<Reading>();
  for (const ShardRef ref : shards) reading->inlined.push_back({ref, nullptr});
  reading->done = std::move(done);
  reading->last =
      Poster("inline outputs", [this](std::shared_ptr<Reading> all) { ReadEnded(*all); });
  GoOnReading(reading, 0);
}

void ExecutorSession::ReadEnded(Reading& reading) {
  if (ended_) return;
  // An entry without bytes could not be read; a fetch will report the error.
  auto inlined = std::move(reading.inlined);
  std::erase_if(inlined, [](const Report::Inlined& shard) { return shard.bytes == nullptr; });
  reading.done(std::move(inlined));
}

void ExecutorSession::GoOnReading(const std::shared_ptr<Reading>& reading, size_t from) {
  if (ended_) return;
  const size_t shards = reading->inlined.size(), to = std::min(shards, from + kReadAtOnce);
  for (size_t i = from; i < to; ++i) {
    auto buffer = buffers_.Find(reading->inlined[i].shard);
    if (buffer == nullptr) continue;  // dropped in the meantime
    reading->open.fetch_add(1, std::memory_order_relaxed);
    context_.runtime->Read(*buffer, [reading, buffer, i](absl::StatusOr<HostView> view) {
      if (view.ok()) reading->inlined[i].bytes = Blob::Copy(view->bytes);
      if (reading->open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        reading->last(reading);
      }
    });
  }
  if (to < shards) return PostHere("read", [this, reading, to] { GoOnReading(reading, to); });
  // Usually all reads have ended by now.
  if (reading->open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    ReadEnded(*reading);
  }
}

}  // namespace fairway
