// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/executor_session.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <spdlog/spdlog.h>

#include "worker/compiler/checksum.h"

namespace fairway {
namespace {

// Larger buffers are destroyed by the blocking pool.
constexpr int64_t kDropInLoop = 1 << 20;

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

void ExecutorSession::Unload(ExecutableId executable) { executables_.erase(executable); }

// ---- Launches ----

namespace {

// Returns where the launch makes each of `shards`, in their order.
std::vector<LaunchJob::Output> OutputsOf(const PrepareLaunch& node,
                                         const std::vector<ShardRef>& shards) {
  std::vector<LaunchJob::Output> out(shards.size());
  if (shards.empty()) return out;
  // By shard: a launch may make 65,536 small outputs, and all may be asked for.
  absl::InlinedVector<std::pair<ShardRef, size_t>, 4> asked;
  for (size_t i = 0; i < shards.size(); ++i) asked.emplace_back(shards[i], i);
  std::sort(asked.begin(), asked.end());
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const GroupPart& part = node.outputs[o];
    for (size_t d = 0; d < part.shards.size(); ++d) {
      const ShardRef ref{part.group, part.shards[d].shard};
      const auto* const at =
          std::lower_bound(asked.begin(), asked.end(), std::pair(ref, size_t{0}));
      if (at != asked.end() && at->first == ref) out[at->second] = {d, o};
    }
  }
  return out;
}

}  // namespace

void ExecutorSession::StartLaunch(const PrepareLaunch& node, const Launch& launch) {
  if (launch.ahead) report_pace_.LaunchedAhead();
  LaunchJob job;
  Launched launched{node.node,   node.outputs.size(),
                    {},          launch.inline_shards,
                    job.outputs, launch.gang ? launch.launch_id : LaunchId()};
  launched.outputs.reserve(node.outputs.size() * node.devices.size());
  const auto executable = executables_.find(node.executable);
  const bool loaded = executable != executables_.end() && executable->second->loaded != nullptr;
  const bool followed = node.devices.size() == 1 || (loaded && executable->second->follows);
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const GroupPart& part = node.outputs[o];
    for (size_t d = 0; d < part.shards.size(); ++d) {
      const LocalShard& shard = part.shards[d];
      launched.outputs.push_back({{part.group, shard.shard}, {d, o}});
      LaunchJob::Input coming;
      if (followed) coming = {nullptr, job.outputs, d, o};
      buffers_.Expect({part.group, shard.shard}, shard.device,
                      ByteSize(part.dtype, shard.shape).value_or(0), std::move(coming));
    }
  }
  // On other runtimes a read would keep the output from being donated to a later launch, and a read
  // after the launch costs nothing.
  if (context_.runtime->info().gang_inputs == ArrivalRule::kExternal)
    job.reads = OutputsOf(node, launch.inline_shards);
  job.request.devices = Ints(node.devices);
  job.request.non_donatable = Ints(launch.non_donatable);
  job.request.launch_id = launch.launch_id.value;
  const bool gang = launch.gang || node.devices.size() > 1;
  ++in_flight_;
  ++launches_;
  if (gang) ++gangs_launched_;
  job.done =
      Poster("launch ended", [this, launched = std::move(launched)](absl::Status status) mutable {
        LaunchEnded(std::move(launched), std::move(status));
      });
  absl::Status problem = FindInputs(node, job);
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

absl::Status ExecutorSession::FindInputs(const PrepareLaunch& node, LaunchJob& job) const {
  for (const auto& row : node.inputs) {
    auto& to = job.inputs.emplace_back();
    to.reserve(row.size());
    for (const ShardRef ref : row) {
      LaunchJob::Input& input = to.emplace_back(buffers_.FindInput(ref));
      if (input.buffer != nullptr) {
        if (buffers_.IsShared(*input.buffer))
          job.request.non_donatable.push_back(static_cast<int>(to.size()) - 1);
      } else if (input.from == nullptr) {
        return Error(absl::StatusCode::kInternal, "node {}: no buffer for shard {} of group {}",
                     node.node, ref.shard, ref.group);
      }
    }
  }
  return absl::OkStatus();
}

void ExecutorSession::LaunchEnded(Launched launched, absl::Status status) {
  --in_flight_;
  if (ended_) return;
  const auto& made = launched.made->buffers;
  if (status.ok() && !made.empty() && made[0].size() != launched.num_outputs) {
    status = Error(absl::StatusCode::kInternal, "the executable made {} outputs, {} were prepared",
                   made[0].size(), launched.num_outputs);
  }
  for (const auto& [shard, from] : launched.outputs) {
    if (!status.ok()) {
      buffers_.Drop(shard);
    } else if (from.device < made.size()) {
      buffers_.Put(shard, made[from.device][from.output]);
    }
  }
  if (!status.ok()) {
    // Not its end: earlier gangs may still run.
    if (launched.gang) exchanges_->LeaveOut(launched.gang.value, launched.gang.value, status);
    return TellLaunchDone(launched.node, status, {});
  }
  if (const auto& bytes = launched.made->bytes; !bytes.empty()) {
    std::vector<Report::Inlined> inlined;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != nullptr) inlined.push_back({launched.inline_shards[i], bytes[i]});
    }
    return TellLaunchDone(launched.node, absl::OkStatus(), std::move(inlined));
  }
  ReadShards(launched.inline_shards,
             [this, node = launched.node](std::vector<Report::Inlined> inlined) {
               TellLaunchDone(node, absl::OkStatus(), std::move(inlined));
             });
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
  // An entry without bytes could not be read; a fetch will report the error.
  struct Collector {
    std::atomic<size_t> open{1};
    std::vector<Report::Inlined> inlined;
    absl::AnyInvocable<void(std::vector<Report::Inlined>)> done;
    absl::AnyInvocable<void()> last;
  };
  auto collector = std::make_shared<Collector>();
  collector->inlined.resize(shards.size());
  collector->done = std::move(done);
  const auto end = [this, collector] {
    if (ended_) return;
    auto inlined = std::move(collector->inlined);
    std::erase_if(inlined, [](const Report::Inlined& shard) { return shard.bytes == nullptr; });
    collector->done(std::move(inlined));
  };
  // The last read that ends after this function calls it. The call also breaks the reference cycle.
  collector->last = Poster("inline outputs", end);
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardRef ref = shards[i];
    collector->inlined[i].shard = ref;
    auto buffer = buffers_.Find(ref);
    if (buffer == nullptr) continue;  // dropped in the meantime
    collector->open.fetch_add(1, std::memory_order_relaxed);
    context_.runtime->Read(*buffer, [collector, buffer, i](absl::StatusOr<HostView> view) {
      if (view.ok()) collector->inlined[i].bytes = Blob::Copy(view->bytes);
      if (collector->open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::exchange(collector->last, nullptr)();
      }
    });
  }
  // Usually all reads have ended by now.
  if (collector->open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    collector->last = nullptr;
    end();
  }
}

}  // namespace fairway
