// SPDX-License-Identifier: Apache-2.0
// Decides which thread calls Runtime::Launch. One thread launches gangs, in the order given. One
// thread per device launches single-device programs, because a cheap program runs inside the call.
// A brief program is launched by the caller if nothing waits on that thread (docs/architecture.md,
// "Threads and processes").
#ifndef FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
#define FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "async/blocking_pool.h"
#include "worker/executor/gang_ends.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// The outputs of a launch. The launching thread sets them. It reads them, too, for later launches
// of the same queue; so does the receiver of LaunchJob::done, after that call.
struct LaunchOutputs {
  std::vector<std::vector<std::shared_ptr<DeviceBuffer>>> buffers;  // [device][output]
  absl::Status status;                                              // why there are no buffers
  // The bytes of LaunchJob::reads once the job has ended; nullptr: that output could not be read.
  std::vector<std::shared_ptr<Blob>> bytes;
};

// One launch, from LaunchGang or LaunchSingle to `done`.
struct LaunchJob {
  // A buffer whose bytes are there, or an output of an earlier job of the same queue.
  struct Input {
    std::shared_ptr<DeviceBuffer> buffer;
    std::shared_ptr<LaunchOutputs> from;  // set: the input is from->buffers[device][output]
    size_t device = 0, output = 0;
  };
  // What the runtime gets. LaunchQueues fills in `executable`, `inputs` and `host_calls`.
  LaunchRequest request;
  std::shared_ptr<LoadedExecutable> executable;
  std::vector<std::vector<Input>> inputs;  // [device][argument]
  // Outputs that are read with the launch, so that their bytes come with its end.
  struct Output {
    size_t device = 0, output = 0;
  };
  std::vector<Output> reads;
  std::shared_ptr<LaunchOutputs> outputs = std::make_shared<LaunchOutputs>();
  // Called once, on any thread, perhaps within LaunchGang or LaunchSingle, when the execution has
  // ended. OK: `outputs` are computed and `reads` are read.
  absl::AnyInvocable<void(absl::Status)> done;
};

// Owns only threads. One thread passes jobs to it, and is never held up.
class LaunchQueues {
 public:
  LaunchQueues(Runtime* runtime, int num_devices);
  // Launches the queued jobs before it returns.
  ~LaunchQueues();

  // Launches gangs one after another in the order of these calls.
  void LaunchGang(LaunchJob job);
  void LaunchSingle(LaunchJob job);
  // The ends of gangs that have not been passed to their `done`.
  std::shared_ptr<GangEnds> gang_ends() const { return gangs_.ends; }
  // `calls` carries the client calls of jobs that are passed from now on.
  void set_host_calls(std::shared_ptr<ffi::HostCalls> calls) { host_calls_ = std::move(calls); }

 private:
  struct Queue {
    explicit Queue(std::string name, std::shared_ptr<GangEnds> ends = nullptr)
        : ends(std::move(ends)), thread(std::move(name), 1) {}
    const std::shared_ptr<GangEnds> ends;  // nullptr: each end is told by itself
    // Jobs that have not ended. An end may come after the queue is destroyed.
    const std::shared_ptr<std::atomic<int>> under_way = std::make_shared<std::atomic<int>>(0);
    BlockingPool thread;
  };
  void Launch(Queue& queue, LaunchJob job);

  Runtime* const runtime_;
  std::shared_ptr<ffi::HostCalls> host_calls_;
  Queue gangs_{"fairway-gangs", std::make_shared<GangEnds>()};
  std::vector<std::unique_ptr<Queue>> singles_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
