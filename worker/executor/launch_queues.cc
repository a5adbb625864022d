// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/launch_queues.h"

#include <algorithm>
#include <utility>

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
      last_(static_cast<size_t>(num_devices) + 1),
      gangs_(static_cast<size_t>(num_devices)) {
  for (int i = 0; i < num_devices; ++i)
    singles_.push_back(std::make_unique<Queue>("fairway-dev" + std::to_string(i)));
  for (int i = 0; i <= num_devices; ++i)
    gangs_under_way_.push_back(std::make_shared<std::atomic<int>>(0));
}

LaunchQueues::~LaunchQueues() {
  // A thread that has gone could not take the gangs that wait for those of another one.
  std::unique_lock lock(mutex_);
  none_left_.wait(lock, [this] { return turns_ == 0; });
}

std::function<void()> LaunchQueues::FlushGangEnds() const {
  std::vector<std::shared_ptr<GangEnds>> all;
  for (const GangQueue& queue : gangs_) all.push_back(queue.ends);
  return [all = std::move(all)] {
    for (const auto& ends : all) ends->Flush();
  };
}

void LaunchQueues::LaunchGang(LaunchJob job) {
  std::vector<int> lines = job.request.devices;
  for (const int device : lines) {
    if (device < 0 || static_cast<size_t>(device) >= gangs_.size())
      return job.done(NoDevice(device, gangs_.size()));
  }
  const size_t queue =
      lines.empty() ? 0 : static_cast<size_t>(*std::min_element(lines.begin(), lines.end()));
  if (job.shared || lines.empty()) lines.push_back(static_cast<int>(gangs_.size()));
  std::vector<UnderWay> under_way;
  for (const int line : lines) under_way.push_back(gangs_under_way_[line]);
  // If nothing is under way, all inputs are computed and the runtime has a free slot.
  const bool here =
      job.executable->brief() && std::all_of(under_way.begin(), under_way.end(), [](const auto& n) {
        return n->load(std::memory_order_acquire) == 0;
      });
  for (const UnderWay& n : under_way) n->fetch_add(1, std::memory_order_relaxed);
  const std::shared_ptr<GangEnds> ends = gangs_[queue].ends;
  job.done = [under_way = std::move(under_way), ends,
              done = std::move(job.done)](absl::Status status) mutable {
    for (const UnderWay& n : under_way) n->fetch_sub(1, std::memory_order_acq_rel);
    ends->Add([done = std::move(done), status = std::move(status)]() mutable {
      std::move(done)(std::move(status));
    });
  };
  job.request.host_calls = host_calls_;
  if (here) return RunLaunch(*runtime_, std::move(job));
  if (gangs_[queue].thread == nullptr) {
    gangs_[queue].thread = std::make_unique<BlockingPool>("fairway-g" + std::to_string(queue), 1);
  }
  auto turn = std::make_shared<Turn>();
  turn->queue = queue;
  turn->launch = [runtime = runtime_, ends, thread = gangs_[queue].thread.get(),
                  job = std::move(job)]() mutable {
    const void* code = job.executable.get();
    ends->Run(
        code, [thread] { return thread->pending() > 1; },
        [&] { RunLaunch(*runtime, std::move(job)); });
  };
  Enqueue(turn, lines);
}

void LaunchQueues::Enqueue(const TurnPtr& turn, const std::vector<int>& lines) {
  std::lock_guard lock(mutex_);
  ++turns_;
  for (const int line : lines) {
    const TurnPtr before = std::exchange(last_[line], turn);
    if (before == nullptr || before->launched) continue;
    // A thread keeps the order of what it has got.
    if (before->queued && before->queue == turn->queue) continue;
    before->next.push_back(turn);
    ++turn->waits_for;
  }
  if (turn->waits_for == 0) PutOnThread(turn);
}

void LaunchQueues::PutOnThread(const TurnPtr& turn) {
  turn->queued = true;
  gangs_[turn->queue].thread->Run([this, turn] {
    std::exchange(turn->launch, nullptr)();
    HasLaunched(turn);
  });
}

void LaunchQueues::HasLaunched(const TurnPtr& turn) {
  std::lock_guard lock(mutex_);
  turn->launched = true;
  for (const TurnPtr& next : std::exchange(turn->next, {})) {
    if (--next->waits_for == 0) PutOnThread(next);
  }
  for (TurnPtr& last : last_) {
    if (last == turn) last = nullptr;
  }
  if (--turns_ == 0) none_left_.notify_all();
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
