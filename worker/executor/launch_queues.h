// SPDX-License-Identifier: Apache-2.0
// Who calls Runtime::Launch: a thread for gangs, in the order given, and one per device for
// single-device programs, because a cheap program runs inside the call; but a brief one, behind
// which nothing waits, whoever gives it (docs/architecture.md, "Threads and processes").
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
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// What a launch makes: set by the thread that launches, and read by it (by later launches of the
// same queue) and by whoever was told of the end.
struct LaunchOutputs {
  std::vector<std::vector<std::shared_ptr<DeviceBuffer>>> buffers;  // [device][output]
  absl::Status status;                                              // why there are none
  // Of LaunchJob::reads, once the job has ended; nullptr: it could not be read.
  std::vector<std::shared_ptr<Blob>> bytes;
};

struct LaunchJob {
  // A buffer whose bytes are there, or an output of a job that was given to the same queue before.
  struct Input {
    std::shared_ptr<DeviceBuffer> buffer;
    std::shared_ptr<LaunchOutputs> from;  // set: buffers[device][output]
    size_t device = 0, output = 0;
  };
  std::shared_ptr<LoadedExecutable> executable;
  std::vector<int> devices;
  std::vector<std::vector<Input>> inputs;  // [device][argument]
  std::vector<int> non_donatable;
  // Outputs whose bytes are asked for with the launch, so that they come with its end.
  struct Output {
    size_t device = 0, output = 0;
  };
  std::vector<Output> reads;
  uint64_t launch_id = 0;
  std::shared_ptr<ffi::HostCalls> host_calls;  // filled in when it is given
  std::shared_ptr<LaunchOutputs> outputs = std::make_shared<LaunchOutputs>();
  // Called once, on any thread and perhaps within the call that gives the job, when the execution
  // has ended: `outputs` are computed and `reads` read, or the error.
  absl::AnyInvocable<void(absl::Status)> done;
};

// Owns threads and nothing else. Jobs are given by one thread, which is not held up.
class LaunchQueues {
 public:
  LaunchQueues(Runtime* runtime, int num_devices);
  // Launches what is queued first.
  ~LaunchQueues();

  // Gangs are launched one after another in the order of these calls.
  void LaunchGang(LaunchJob job);
  void LaunchSingle(LaunchJob job);
  // Who carries the calls that jobs given from now on make of functions of their clients.
  void set_host_calls(std::shared_ptr<ffi::HostCalls> calls) { host_calls_ = std::move(calls); }

 private:
  struct Queue {
    explicit Queue(std::string name) : thread(std::move(name), 1) {}
    // Jobs whose end has not come. It may come when the queue has gone.
    const std::shared_ptr<std::atomic<int>> under_way = std::make_shared<std::atomic<int>>(0);
    BlockingPool thread;
  };
  void Launch(Queue& queue, LaunchJob job);

  Runtime* const runtime_;
  std::shared_ptr<ffi::HostCalls> host_calls_;
  Queue gangs_{"fairway-gangs"};
  std::vector<std::unique_ptr<Queue>> singles_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
