// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/launch_queues.h"

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

}  // namespace

LaunchQueues::LaunchQueues(Runtime* runtime, int num_devices) : runtime_(runtime) {
  for (int i = 0; i < num_devices; ++i) {
    singles_.push_back(std::make_unique<Queue>("fairway-dev" + std::to_string(i)));
  }
}

LaunchQueues::~LaunchQueues() = default;

void LaunchQueues::LaunchGang(LaunchJob job) { Launch(gangs_, std::move(job)); }

void LaunchQueues::LaunchSingle(LaunchJob job) {
  const size_t device = job.request.devices.empty() ? 0 : job.request.devices[0];
  if (device >= singles_.size()) {
    return job.done(
        InvalidArgument("no local device {}: this executor has {}", device, singles_.size()));
  }
  Launch(*singles_[device], std::move(job));
}

void LaunchQueues::Launch(Queue& queue, LaunchJob job) {
  // If nothing is under way, all inputs are computed and the runtime has a free slot.
  const bool here =
      job.executable->brief() && queue.under_way->load(std::memory_order_acquire) == 0;
  queue.under_way->fetch_add(1, std::memory_order_relaxed);
  job.done = [under_way = queue.under_way, ends = queue.ends,
              done = std::move(job.done)](absl::Status status) mutable {
    under_way->fetch_sub(1, std::memory_order_acq_rel);
    if (ends == nullptr) return std::move(done)(std::move(status));
    ends->Add([done = std::move(done), status = std::move(status)]() mutable {
      std::move(done)(std::move(status));
    });
  };
  job.request.host_calls = host_calls_;
  if (here) return RunLaunch(*runtime_, std::move(job));
  queue.thread.Run([runtime = runtime_, &queue, job = std::move(job)]() mutable {
    if (queue.ends == nullptr) return RunLaunch(*runtime, std::move(job));
    const void* code = job.executable.get();
    queue.ends->Run(
        code, [&queue] { return queue.thread.pending() > 1; },
        [&] { RunLaunch(*runtime, std::move(job)); });
  });
}

}  // namespace fairway
