// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/launch_queues.h"

#include <algorithm>
#include <utility>

#include "worker/executor/one_cpu.h"

namespace fairway {
namespace {

// Waits for three things in any order: the outputs from the call, the end of the execution, and the
// bytes of outputs that are read. The last one calls `done`.
struct Pending {
  std::atomic<int> open{2};
  absl::Status status;
  absl::AnyInvocable<void(absl::Status)> done;

  void PartEnded() {
    if (open.fetch_sub(1, std::memory_order_acq_rel) == 1) std::move(done)(std::move(status));
  }
};

// Fills in the request's inputs, which live as long as job.inputs. Returns the error of the first
// input, in argument order, whose launch failed; OK: all are there.
absl::Status TakeInputs(LaunchJob& job) {
  job.request.inputs.reserve(job.inputs.size());
  for (auto& row : job.inputs) {
    auto& to = job.request.inputs.emplace_back();
    to.reserve(row.size());
    for (LaunchJob::Input& input : row) {
      if (input.from != nullptr) {
        if (!input.from->status.ok()) return input.from->status;
        input.buffer = input.from->buffers.at(input.device).at(input.output);
      }
      to.push_back(input.buffer.get());
    }
  }
  return absl::OkStatus();
}

void RunLaunch(Runtime& runtime, LaunchJob job) {
  const auto fail = [&](absl::Status status) {
    job.outputs->status = status;
    job.done(std::move(status));
  };
  if (absl::Status status = TakeInputs(job); !status.ok()) return fail(std::move(status));
  job.request.executable = job.executable.get();
  auto pending = std::make_shared<Pending>();
  pending->done = std::move(job.done);
  auto result = runtime.Launch(job.request, [pending](absl::Status status) {
    pending->status = std::move(status);
    pending->PartEnded();
  });
  if (!result.ok()) {  // then the callback does not come
    job.done = std::move(pending->done);
    return fail(result.status());
  }
  for (auto& row : result->outputs) {
    auto& to = job.outputs->buffers.emplace_back();
    for (auto& buffer : row) to.push_back(std::move(buffer));
  }
  job.outputs->bytes.resize(job.reads.size());
  pending->open.fetch_add(static_cast<int>(job.reads.size()), std::memory_order_relaxed);
  for (size_t i = 0; i < job.reads.size(); ++i) {
    const auto buffer = job.outputs->buffers.at(job.reads[i].device).at(job.reads[i].output);
    runtime.Read(*buffer, [pending, outputs = job.outputs, i](absl::StatusOr<HostView> view) {
      if (view.ok()) outputs->bytes[i] = Blob::Copy(view->bytes);
      pending->PartEnded();
    });
  }
  pending->PartEnded();
}

absl::Status NoDevice(int device, size_t devices) {
  return InvalidArgument("no local device {}: this executor has {}", device, devices);
}

}  // namespace

LaunchQueues::LaunchQueues(Runtime* runtime, int num_devices)
    : runtime_(runtime),
      under_way_(std::make_shared<UnderWay>(static_cast<size_t>(num_devices) + 1)),
      last_(static_cast<size_t>(num_devices) + 1),
      gangs_(static_cast<size_t>(num_devices)) {
  for (int i = 0; i < num_devices; ++i)
    singles_.push_back(std::make_unique<Queue>("fairway-dev" + std::to_string(i)));
}

LaunchQueues::~LaunchQueues() {
  // A thread that has gone could not take the gangs that wait for those of another one.
  std::unique_lock lock(mutex_);
  none_left_.wait(lock, [this] { return waiting_ == 0; });
}

std::function<void()> LaunchQueues::FlushGangEnds() const {
  std::vector<std::shared_ptr<GangEnds>> all;
  for (const GangQueue& queue : gangs_) all.push_back(queue.ends);
  return [all = std::move(all)] {
    for (const auto& ends : all) ends->Flush();
  };
}

void LaunchQueues::LaunchGang(LaunchJob job) {
  auto gang = std::make_shared<Gang>();
  gang->launch_ids = job.launch_ids;
  gang->lines = job.request.devices;
  for (const int device : gang->lines) {
    if (device < 0 || static_cast<size_t>(device) >= gangs_.size())
      return job.done(NoDevice(device, gangs_.size()));
  }
  if (!gang->lines.empty())
    gang->queue = static_cast<size_t>(*std::min_element(gang->lines.begin(), gang->lines.end()));
  if (job.shared || gang->lines.empty()) gang->lines.push_back(static_cast<int>(gangs_.size()));
  // If nothing is under way, all inputs are computed and the runtime has a free slot.
  bool here = job.executable->brief();
  for (const int line : gang->lines) {
    here = (*under_way_)[line].fetch_add(1, std::memory_order_acquire) == 0 && here;
  }
  GangQueue& queue = gangs_[gang->queue];
  gang->under_way = under_way_;
  gang->ends = queue.ends;
  gang->done = std::move(job.done);
  gang->outputs = job.outputs;
  job.done = [gang](absl::Status status) { Ended(*gang, std::move(status)); };
  job.request.host_calls = host_calls_;
  if (here) {
    gang->begin = GangEnds::Clock::now();
    return RunLaunch(*runtime_, std::move(job));
  }
  if (queue.thread == nullptr) {
    queue.thread = std::make_unique<BlockingPool>("fairway-g" + std::to_string(gang->queue), 1);
  }
  gang->job = std::move(job);
  Enqueue(std::move(gang));
}

void LaunchQueues::Ended(Gang& gang, absl::Status status) {
  for (const int line : gang.lines) (*gang.under_way)[line].fetch_sub(1, std::memory_order_acq_rel);
  gang.outputs->brief = GangEnds::Brief(GangEnds::Clock::now() - gang.begin, gang.launch_ids);
  gang.ends->Add([done = std::move(gang.done),
                  status = std::move(status)]() mutable { std::move(done)(std::move(status)); },
                 gang.launch_ids);
}

void LaunchQueues::Enqueue(GangPtr gang) {
  {
    std::lock_guard lock(mutex_);
    ++waiting_;
    for (const int line : gang->lines) {
      Gang* const before = std::exchange(last_[line], gang.get());
      // A thread keeps the order of what it has got.
      if (before == nullptr || (before->queued && before->queue == gang->queue)) continue;
      before->next.push_back(gang);
      ++gang->waits_for;
    }
    if (gang->waits_for > 0) return;
    gang->queued = true;
  }
  // Without the mutex, since this may wake the thread. No gang can have come after this one yet.
  PutOnThread(std::move(gang));
}

void LaunchQueues::PutOnThread(GangPtr gang) {
  BlockingPool& thread = *gangs_[gang->queue].thread;
  thread.Run([this, gang = std::move(gang)] { Launch(*gang); });
}

void LaunchQueues::Launch(Gang& gang) {
  const void* const code = gang.job->executable.get();
  const BlockingPool& thread = *gangs_[gang.queue].thread;
  // What is left of it, its `done` say, refers to it.
  LaunchJob job = *std::exchange(gang.job, std::nullopt);
  gang.begin = GangEnds::Clock::now();
  OneCpu::OfThisThread().OnLaunch(gang.begin);
  gang.ends->Run(
      code, [&thread] { return thread.pending() - 1; },
      [&] { RunLaunch(*runtime_, std::move(job)); });
  OneCpu::OfThisThread().OnEnd(GangEnds::Clock::now());
  std::lock_guard lock(mutex_);
  for (const int line : gang.lines) {
    if (last_[line] == &gang) last_[line] = nullptr;
  }
  for (GangPtr& next : gang.next) {
    if (--next->waits_for > 0) continue;
    next->queued = true;
    PutOnThread(std::move(next));
  }
  if (--waiting_ == 0) none_left_.notify_all();
}

void LaunchQueues::LaunchSingle(LaunchJob job) {
  const int device = job.request.devices.empty() ? 0 : job.request.devices[0];
  if (device < 0 || static_cast<size_t>(device) >= singles_.size())
    return job.done(NoDevice(device, singles_.size()));
  Queue& queue = *singles_[static_cast<size_t>(device)];
  const bool here =
      job.executable->brief() && queue.under_way->load(std::memory_order_acquire) == 0;
  queue.under_way->fetch_add(1, std::memory_order_relaxed);
  job.done = [under_way = queue.under_way,
              done = std::move(job.done)](absl::Status status) mutable {
    under_way->fetch_sub(1, std::memory_order_acq_rel);
    std::move(done)(std::move(status));
  };
  job.request.host_calls = host_calls_;
  if (here) return RunLaunch(*runtime_, std::move(job));
  queue.thread.Run([runtime = runtime_, job = std::move(job)]() mutable {
    RunLaunch(*runtime, std::move(job));
  });
}

}  // namespace fairway
