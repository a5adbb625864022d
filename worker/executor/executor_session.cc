// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/executor_session.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include <spdlog/spdlog.h>

#include "worker/compiler/checksum.h"

namespace fairway {
namespace {

// Smaller blocks are handed to the runtime in the loop, larger ones by the blocking pool.
constexpr int64_t kPlaceInLoop = 256 << 10;
// Larger buffers are destroyed by the blocking pool.
constexpr int64_t kDropInLoop = 1 << 20;

std::vector<int> Ints(const std::vector<int32_t>& in) { return {in.begin(), in.end()}; }

// The box of these bytes alone.
absl::StatusOr<HostView> CutOut(const Box& box, const HostView& view) {
  if (box.array_bytes() != static_cast<int64_t>(view.bytes.size()))
    return Error(absl::StatusCode::kInternal, "a box of {} bytes in a shard of {}",
                 box.array_bytes(), view.bytes.size());
  auto blob = Blob::Make(static_cast<size_t>(box.bytes()));
  if (blob == nullptr)
    return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes of a shard",
                 box.bytes());
  CopyBox(box, view.bytes.data(), box.Alone(), blob->data());
  return HostView{blob->view(), blob};
}

template <typename Answerer, typename Served>
void Answer(const absl::StatusOr<HostView>& view, Answerer& answer, Served& served) {
  if (view.ok()) {
    answer(DataView{view->bytes, view->owner});
  } else {
    answer(view.status());
  }
  served(view.ok());
}

// Wraps a handler so that it is posted, from any thread, and dropped when the session has gone by
// then.
template <typename F>
class Posted {
 public:
  Posted(EventLoop* loop, std::string_view name, std::weak_ptr<bool> alive, F f)
      : loop_(loop), name_(name), alive_(std::move(alive)), f_(std::move(f)) {}
  template <typename... Args>
  void operator()(Args... args) {
    loop_->Post(name_, [alive = std::move(alive_), f = std::move(f_),
                        ... args = std::move(args)]() mutable {
      if (alive.lock() != nullptr) f(std::move(args)...);
    });
  }

 private:
  EventLoop* loop_;
  std::string_view name_;
  std::weak_ptr<bool> alive_;
  F f_;
};

}  // namespace

template <typename F>
void ExecutorSession::PostHere(std::string_view name, F f) {
  Poster(name, std::move(f))();
}

template <typename F>
auto ExecutorSession::Poster(std::string_view name, F f) {
  return Posted<F>(context_.loop, name, alive_, std::move(f));
}

absl::StatusOr<std::unique_ptr<ExecutorSession>> ExecutorSession::Open(
    Context context, Incarnation incarnation, const std::string& data_bind,
    const std::string& advertise_host, std::function<void(Report)> send) {
  std::unique_ptr<ExecutorSession> session(
      new ExecutorSession(context, incarnation, std::move(send)));
  FAIRWAY_ASSIGN_OR_RETURN(
      session->plane_,
      MakeTcpDataPlane(
          *context.loop, data_bind, advertise_host, incarnation,
          [s = session.get()](PullRequest request, DataPlane::Answer answer) {
            s->OnPull(request, std::move(answer));
          },
          {},
          [exchanges = session->exchanges_](PullRequest request, DataPlane::Answer answer) {
            exchanges->OnPull(request, std::move(answer));
          }));
  session->exchanges_->Open(session->plane_.get());
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
  pulls_.clear();
  exchanges_->Close(absl::UnavailableError("the executor's registration has ended"));
  plane_.reset();
  // What has not been handed to the launch threads will not run.
  in_flight_ -= gangs_.size() + singles_.size();
  gangs_.clear();
  singles_.clear();
  coming_.clear();
  not_handed_.clear();
  core_.Reset();
  executables_.clear();
}

void ExecutorSession::Drop(const std::vector<ShardRef>& shards) {
  std::vector<std::shared_ptr<DeviceBuffer>> large;
  for (const ShardRef ref : shards) {
    assemblies_.erase(ref);
    auto dropped = buffers_.Drop(ref);
    if (dropped.bytes >= kDropInLoop && dropped.buffer != nullptr)
      large.push_back(std::move(dropped.buffer));
  }
  // Giving 64 MiB back to the system takes 20 ms and more.
  if (!large.empty())
    context_.blocking->Run([large = std::move(large)]() mutable { large.clear(); });
}

// ---- Code ----

void ExecutorSession::Load(const InstallExecutable& install) {
  auto executable = std::make_shared<Executable>();
  executables_[install.executable] = executable;
  auto loaded =
      Poster("code loaded", [this, executable, id = install.executable](
                                absl::StatusOr<std::shared_ptr<LoadedExecutable>> result) {
        executable->loading = false;
        executable->status = result.status();
        if (result.ok()) executable->loaded = *std::move(result);
        if (ended_) return;
        const auto held = executables_.find(id);  // or it was dropped meanwhile
        core_.InstallDone(id, executable->status,
                          held != executables_.end() && held->second->separable());
        Dispatch();
      });
  std::shared_ptr<Exchange> exchange;
  if (!install.members.empty()) exchange = exchanges_->Make(install.members, install.member);
  context_.blocking->Run([runtime = context_.runtime, code = install.code,
                          checksum = install.checksum, devices = Ints(install.devices),
                          exchange = std::move(exchange), loaded = std::move(loaded)]() mutable {
    // Native code with a flipped byte loads without complaint.
    if (code == nullptr || Sha256Hex(*code) != checksum) {
      return loaded(absl::StatusOr<std::shared_ptr<LoadedExecutable>>(
          absl::DataLossError("compiled code was damaged on its way: its checksum differs")));
    }
    loaded(exchange == nullptr ? runtime->Load(*code, devices)
                               : runtime->LoadShare(*code, devices, std::move(exchange)));
  });
}

void ExecutorSession::Unload(ExecutableId executable) { executables_.erase(executable); }

// ---- Launches ----

void ExecutorSession::StartLaunch(const PrepareLaunch& node, const Launch& launch) {
  if (launch.ahead) report_pace_.LaunchedAhead();
  Launched launched{node.node, node.outputs, launch.inline_shards, nullptr,
                    launch.gang ? launch.launch_id : LaunchId()};
  Queued queued;
  launched.made = queued.job.outputs;
  const auto executable = executables_.find(node.executable);
  const bool followed = node.devices.size() == 1 ||
                        (executable != executables_.end() && executable->second->separable());
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const GroupPart& part = node.outputs[o];
    for (size_t d = 0; d < part.shards.size(); ++d) {
      const LocalShard& shard = part.shards[d];
      const ShardRef ref{part.group, shard.shard};
      buffers_.Expect(ref, shard.device, ByteSize(part.dtype, shard.shape).value_or(0));
      if (followed) coming_[ref] = {node.node, queued.job.outputs, d, o};
    }
  }
  queued.gang = launch.gang || node.devices.size() > 1;
  queued.job.devices = Ints(node.devices);
  queued.job.non_donatable = Ints(launch.non_donatable);
  queued.job.launch_id = launch.launch_id.value;
  absl::Status problem;
  if (executable == executables_.end()) {
    problem = Error(absl::StatusCode::kInternal, "node {}: executable {} is not installed here",
                    node.node, node.executable);
  } else {
    queued.executable = executable->second;
  }
  for (const auto& row : node.inputs) {
    auto& to = queued.job.inputs.emplace_back();
    for (const ShardRef ref : row) {
      LaunchJob::Input& input = to.emplace_back();
      input.buffer = buffers_.Find(ref);
      if (input.buffer != nullptr) {
        if (buffers_.IsShared(*input.buffer))
          queued.job.non_donatable.push_back(static_cast<int>(to.size()) - 1);
        continue;
      }
      if (const auto coming = coming_.find(ref); coming != coming_.end()) {
        input.from = coming->second.made;
        input.device = coming->second.device;
        input.output = coming->second.output;
        queued.after.push_back(coming->second.node);
      } else if (problem.ok()) {
        problem = Error(absl::StatusCode::kInternal, "node {}: no buffer for shard {} of group {}",
                        node.node, ref.shard, ref.group);
      }
    }
  }
  ++in_flight_;
  ++launches_;
  if (queued.gang) ++gangs_launched_;
  auto end =
      Poster("launch ended", [this, launched = std::move(launched)](absl::Status status) mutable {
        OnLaunchEnd(std::move(launched), std::move(status));
      });
  if (!problem.ok()) {
    queued.job.outputs->status = problem;
    return end(problem);
  }
  queued.node = node.node;
  not_handed_.insert(node.node);
  queued.job.done = std::move(end);
  (queued.gang ? gangs_ : singles_).push_back(std::move(queued));
  Dispatch();
}

void ExecutorSession::Dispatch() {
  const auto go = [this](Queued& queued) {
    not_handed_.erase(queued.node);
    if (!queued.executable->status.ok()) {
      queued.job.outputs->status = queued.executable->status;
      return queued.job.done(queued.executable->status);
    }
    queued.job.executable = queued.executable->loaded;
    if (queued.gang) {
      context_.launches->LaunchGang(std::move(queued.job));
    } else {
      context_.launches->LaunchSingle(std::move(queued.job));
    }
  };
  while (!gangs_.empty() && !gangs_.front().executable->loading) {
    go(gangs_.front());
    gangs_.pop_front();
  }
  std::deque<Queued> waiting;
  for (Queued& queued : singles_) {
    const bool early = std::any_of(queued.after.begin(), queued.after.end(),
                                   [this](NodeId node) { return not_handed_.contains(node); });
    if (queued.executable->loading || early) {
      waiting.push_back(std::move(queued));
    } else {
      go(queued);
    }
  }
  singles_ = std::move(waiting);
}

void ExecutorSession::OnLaunchEnd(Launched launched, absl::Status status) {
  --in_flight_;
  if (ended_) return;
  const auto& made = launched.made->buffers;
  if (status.ok() && !made.empty() && made[0].size() != launched.outputs.size()) {
    status = Error(absl::StatusCode::kInternal, "the executable made {} outputs, {} were prepared",
                   made[0].size(), launched.outputs.size());
  }
  for (size_t o = 0; o < launched.outputs.size(); ++o) {
    const GroupPart& part = launched.outputs[o];
    for (size_t d = 0; d < part.shards.size(); ++d) {
      const ShardRef ref{part.group, part.shards[d].shard};
      coming_.erase(ref);
      if (!status.ok()) {
        buffers_.Drop(ref);
      } else if (d < made.size()) {
        buffers_.Put(ref, made[d][o]);
      }
    }
  }
  if (!status.ok()) {
    if (launched.gang) exchanges_->End(launched.gang.value, status);
    return EndLaunch(launched.node, status, {});
  }
  ReadShards(launched.inline_shards,
             [this, node = launched.node](std::vector<Report::Inlined> inlined) {
               EndLaunch(node, absl::OkStatus(), std::move(inlined));
             });
}

void ExecutorSession::Read(NodeId node, const std::vector<ShardRef>& shards) {
  // The core is not to be called within its own call.
  PostHere("read", [this, node, shards] {
    if (ended_) return;
    ReadShards(shards, [this, node](std::vector<Report::Inlined> bytes) {
      core_.ReadDone(node, std::move(bytes));
    });
  });
}

void ExecutorSession::GoOnLater(NodeId node) {
  PostHere("sequence", [this, node] {
    if (!ended_) core_.GoOn(node);
  });
}

void ExecutorSession::ReadShards(const std::vector<ShardRef>& shards,
                                 absl::AnyInvocable<void(std::vector<Report::Inlined>)> done) {
  // An entry without bytes could not be read; a fetch will tell why.
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
  // Called by the last read that ends after this function; it breaks the cycle as well.
  collector->last = Poster("inline outputs", end);
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardRef ref = shards[i];
    collector->inlined[i].shard = ref;
    auto buffer = buffers_.Find(ref);
    if (buffer == nullptr) continue;  // dropped meanwhile
    collector->open.fetch_add(1, std::memory_order_relaxed);
    context_.runtime->Read(*buffer, [collector, buffer, i](absl::StatusOr<HostView> view) {
      if (view.ok()) collector->inlined[i].bytes = Blob::Copy(view->bytes);
      if (collector->open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::exchange(collector->last, nullptr)();
      }
    });
  }
  // As a rule all have ended by now.
  if (collector->open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    collector->last = nullptr;
    end();
  }
}

// ---- Receiving ----

ExecutorSession::Arrival ExecutorSession::ArrivalOf(const PrepareReceive& node,
                                                    size_t position) const {
  const size_t out = node.pieces.empty() ? position : node.pieces[position].out;
  const LocalShard& shard = node.out.shards[out];
  Arrival arrival{node.node,   position,     {node.out.group, shard.shard}, node.out.dtype,
                  shard.shape, shard.device, node.out.memory_kind,          0};
  arrival.bytes = ByteSize(arrival.dtype, arrival.shape).value_or(0);
  return arrival;
}

void ExecutorSession::StartReceive(const PrepareReceive& node, size_t position) {
  const ShardSource& source = node.sources[position];
  if (!node.pieces.empty() && source.kind != ShardSource::Kind::kInline)
    return StartPiece(node, position);
  Arrival arrival = ArrivalOf(node, position);
  buffers_.Expect(arrival.ref, arrival.device, arrival.bytes);
  const auto fail = [&](absl::Status why) {
    PostHere("receive failed",
             [this, arrival, why = std::move(why)] { Arrived(arrival, nullptr, why); });
  };
  switch (source.kind) {
    case ShardSource::Kind::kLocal: {
      auto from = buffers_.Find(source.shard);
      if (from == nullptr) {
        return fail(Error(absl::StatusCode::kInternal, "no buffer for shard {} of group {}",
                          source.shard.shard, source.shard.group));
      }
      auto placed = Poster("local copy",
                           [this, arrival](absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer) {
                             Placed(arrival, std::move(buffer));
                           });
      context_.blocking->Run([runtime = context_.runtime, from, device = arrival.device,
                              kind = arrival.memory_kind, placed = std::move(placed)]() mutable {
        auto copy = runtime->CopyToDevice(*from, device, kind);
        placed(copy.ok() ? absl::StatusOr<std::shared_ptr<DeviceBuffer>>(*std::move(copy))
                         : copy.status());
      });
      return;
    }
    case ShardSource::Kind::kPeer:
    case ShardSource::Kind::kController: {
      const bool peer = source.kind == ShardSource::Kind::kPeer;
      plane_->Pull(peer ? source.endpoint : controller_endpoint_,
                   peer ? source.incarnation : controller_, {node.transfer, source.index},
                   arrival.bytes,
                   [this, alive = std::weak_ptr<bool>(alive_),
                    arrival](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
                     if (alive.lock() == nullptr || ended_) return;
                     if (!bytes.ok()) return Arrived(arrival, nullptr, bytes.status());
                     Place(arrival, *std::move(bytes));
                   });
      return;
    }
    case ShardSource::Kind::kInline: {
      auto copy = source.bytes == nullptr ? nullptr : Blob::Copy(source.bytes->view());
      if (copy == nullptr)
        return fail(absl::ResourceExhaustedError("no host memory for an inline shard"));
      PostHere("inline upload", [this, arrival, copy = std::move(copy)]() mutable {
        Place(arrival, std::move(copy));
      });
      return;
    }
  }
}

void ExecutorSession::StartPiece(const PrepareReceive& node, size_t position) {
  const Arrival arrival = ArrivalOf(node, position);
  const ShardSource& source = node.sources[position];
  const Piece& piece = node.pieces[position];
  std::shared_ptr<Assembly>& assembly = assemblies_[arrival.ref];
  if (assembly == nullptr) {
    assembly = std::make_shared<Assembly>();
    assembly->bytes = Blob::Make(static_cast<size_t>(arrival.bytes));
    for (const Piece& other : node.pieces) assembly->open += other.out == piece.out ? 1 : 0;
    buffers_.Expect(arrival.ref, arrival.device, arrival.bytes);
  }
  const auto fail = [&](absl::Status why) {
    PostHere("piece failed", [this, arrival, assembly, why = std::move(why)] {
      PieceEnded(arrival, assembly, why);
    });
  };
  if (assembly->bytes == nullptr) {
    return fail(
        Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes", arrival.bytes));
  }
  if (source.kind == ShardSource::Kind::kLocal) {
    auto from = buffers_.Find(source.shard);
    if (from == nullptr) {
      return fail(Error(absl::StatusCode::kInternal, "no buffer for shard {} of group {}",
                        source.shard.shard, source.shard.group));
    }
    auto came = Poster("piece read", [this, arrival, assembly, from, box = piece.from,
                                      to = piece.to](absl::StatusOr<HostView> view) {
      PieceCame(arrival, assembly, box, to, std::move(view));
    });
    return context_.runtime->Read(*from, std::move(came));
  }
  const bool peer = source.kind == ShardSource::Kind::kPeer;
  plane_->Pull(
      peer ? source.endpoint : controller_endpoint_, peer ? source.incarnation : controller_,
      {node.transfer, source.index}, piece.from.bytes(),
      [this, alive = std::weak_ptr<bool>(alive_), arrival, assembly, box = piece.from.Alone(),
       to = piece.to](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
        if (alive.lock() == nullptr || ended_) return;
        if (!bytes.ok()) return PieceEnded(arrival, assembly, bytes.status());
        PieceCame(arrival, assembly, box, to, HostView{(*bytes)->view(), *bytes});
      });
}

void ExecutorSession::PieceCame(Arrival arrival, const std::shared_ptr<Assembly>& assembly,
                                const Box& from, const Box& to, absl::StatusOr<HostView> view) {
  if (ended_) return;
  if (!view.ok()) return PieceEnded(std::move(arrival), assembly, view.status());
  if (from.array_bytes() != static_cast<int64_t>(view->bytes.size()) ||
      to.array_bytes() != arrival.bytes) {
    return PieceEnded(std::move(arrival), assembly,
                      Error(absl::StatusCode::kInternal, "a piece of {} bytes in a shard of {}",
                            from.array_bytes(), view->bytes.size()));
  }
  if (from.bytes() <= kPlaceInLoop) {
    CopyBox(from, view->bytes.data(), to, assembly->bytes->data());
    return PieceEnded(std::move(arrival), assembly, absl::OkStatus());
  }
  auto copied = Poster("piece copied", [this, arrival, assembly] {
    PieceEnded(arrival, assembly, absl::OkStatus());
  });
  // The boxes of one shard do not overlap: several may be copied at once.
  context_.blocking->Run(
      [from, to, assembly, view = *std::move(view), copied = std::move(copied)]() mutable {
        CopyBox(from, view.bytes.data(), to, assembly->bytes->data());
        copied();
      });
}

void ExecutorSession::PieceEnded(Arrival arrival, const std::shared_ptr<Assembly>& assembly,
                                 absl::Status status) {
  if (ended_) return;
  assembly->failed = assembly->failed || !status.ok();
  const bool last = --assembly->open == 0;
  const auto at = assemblies_.find(arrival.ref);
  const bool wanted = at != assemblies_.end() && at->second == assembly;
  if (last && wanted) assemblies_.erase(at);
  if (last && wanted && !assembly->failed) return Place(std::move(arrival), assembly->bytes);
  if (last && wanted) buffers_.Drop(arrival.ref);
  core_.ReceiveDone(arrival.node, arrival.position, std::move(status));
}

void ExecutorSession::Place(Arrival arrival, std::shared_ptr<Blob> bytes) {
  if (ended_) return;
  const auto make = [runtime = context_.runtime](const Arrival& a, std::shared_ptr<Blob> block)
      -> absl::StatusOr<std::shared_ptr<DeviceBuffer>> {
    auto buffer = runtime->FromHost(std::move(block), a.dtype, a.shape, a.device, a.memory_kind);
    if (!buffer.ok()) return buffer.status();
    return std::shared_ptr<DeviceBuffer>(*std::move(buffer));
  };
  if (arrival.bytes <= kPlaceInLoop) return Placed(arrival, make(arrival, std::move(bytes)));
  auto placed =
      Poster("placed", [this, arrival](absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer) {
        Placed(arrival, std::move(buffer));
      });
  context_.blocking->Run(
      [make, arrival, bytes = std::move(bytes), placed = std::move(placed)]() mutable {
        placed(make(arrival, std::move(bytes)));
      });
}

void ExecutorSession::Placed(Arrival arrival,
                             absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer) {
  if (ended_) return;
  if (!buffer.ok()) return Arrived(arrival, nullptr, buffer.status());
  auto& b = **buffer;
  b.OnReady(Poster("received", [this, arrival, buffer = *std::move(buffer)](absl::Status status) {
    Arrived(arrival, buffer, status);
  }));
}

void ExecutorSession::Arrived(const Arrival& arrival, const std::shared_ptr<DeviceBuffer>& buffer,
                              const absl::Status& status) {
  if (ended_) return;
  if (status.ok()) {
    buffers_.Put(arrival.ref, buffer);
  } else {
    buffers_.Drop(arrival.ref);
  }
  core_.ReceiveDone(arrival.node, arrival.position, status);
}

// ---- Serving ----

void ExecutorSession::OnPull(PullRequest request, DataPlane::Answer answer) {
  if (ended_) return;
  if (IsCallback(request.transfer)) return ServeArgument(request, std::move(answer));
  const uint64_t pull = next_pull_++;
  pulls_.emplace(pull, WaitingPull{std::move(answer), request.from});
  core_.OnPull(pull, request.transfer, request.index);
}

void ExecutorSession::Serve(uint64_t pull, const PrepareSend::Item& item) {
  const ShardRef shard = item.shard;
  auto waiting = pulls_.extract(pull);
  if (waiting.empty()) return;
  auto buffer = buffers_.Find(shard);
  if (buffer == nullptr) {
    waiting.mapped().answer(Error(absl::StatusCode::kInternal, "no buffer for shard {} of group {}",
                                  shard.shard, shard.group));
    return PostHere("serve failed", [this, pull] { core_.ServeDone(pull); });
  }
  const bool fetch = waiting.mapped().from == controller_;
  // Answers from the thread that has the bytes; the loop only hears of it.
  auto served = Poster("served", [this, pull, fetch](bool ok) {
    if (fetch && ok) ++fetches_served_;
    core_.ServeDone(pull);
  });
  context_.runtime->Read(
      *buffer, [buffer, box = item.box, pool = context_.blocking,
                answer = std::move(waiting.mapped().answer),
                served = std::move(served)](absl::StatusOr<HostView> view) mutable {
        if (!view.ok() || !box.has_value()) return Answer(view, answer, served);
        auto cut = [buffer, box = *std::move(box), view = *std::move(view),
                    answer = std::move(answer), served = std::move(served)]() mutable {
          Answer(CutOut(box, view), answer, served);
        };
        if (box->bytes() <= kPlaceInLoop) return cut();
        pool->Run(std::move(cut));
      });
}

void ExecutorSession::RefusePull(uint64_t pull, absl::Status why) {
  auto waiting = pulls_.extract(pull);
  if (!waiting.empty()) waiting.mapped().answer(std::move(why));
}

}  // namespace fairway
