// SPDX-License-Identifier: Apache-2.0
// Decides which thread calls Runtime::Launch. Each device has a thread for single-device programs,
// because a cheap program runs inside the call, and another for the gangs of which it is the lowest
// device. Gangs that share a device are launched one after another, in the order given. A brief
// program is launched by the caller if nothing is under way on its devices (docs/architecture.md,
// "Threads and processes").
#ifndef FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
#define FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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
  // Of a gang: how many of its launch ids, launched together, would end less than GangEnds::kBrief
  // after they began. 0: each of them takes GangEnds::kShort.
  size_t brief = 0;
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
  size_t launch_ids = 1;  // that it takes, from the request's on
  // A gang that other executors run, too. Such gangs are launched one after another as well.
  bool shared = false;
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

  // Launches gangs that share a device, or are shared, in the order of these calls.
  void LaunchGang(LaunchJob job);
  void LaunchSingle(LaunchJob job);
  // Passes on the ends of gangs that wait for the ends of others (gang_ends.h). Thread-safe, also
  // after this object is gone.
  std::function<void()> FlushGangEnds() const;
  // `calls` carries the client calls of jobs that are passed from now on.
  void set_host_calls(std::shared_ptr<ffi::HostCalls> calls) { host_calls_ = std::move(calls); }

 private:
  // Gangs that have not ended, by line: a device, or the last one: shared gangs. Side by side,
  // since each gang touches some. An end may come after this object is destroyed.
  using UnderWay = std::vector<std::atomic<int>>;
  struct Queue {
    explicit Queue(std::string name) : thread(std::move(name), 1) {}
    // Jobs that have not ended. An end may come after the queue is destroyed.
    const std::shared_ptr<std::atomic<int>> under_way = std::make_shared<std::atomic<int>>(0);
    BlockingPool thread;
  };
  // The gangs whose lowest device this is.
  struct GangQueue {
    const std::shared_ptr<GangEnds> ends = std::make_shared<GangEnds>();
    std::unique_ptr<BlockingPool> thread;  // made with the first gang
  };
  // One gang, until its end.
  struct Gang {
    size_t queue = 0;
    size_t launch_ids = 1;
    std::vector<int> lines;
    std::shared_ptr<UnderWay> under_way;
    std::shared_ptr<GangEnds> ends;
    absl::AnyInvocable<void(absl::Status)> done;
    std::optional<LaunchJob> job;  // until it is launched
    std::shared_ptr<LaunchOutputs> outputs;
    GangEnds::Clock::time_point begin;
    // Guarded by mutex_, on its way to its thread:
    int waits_for = 0;  // gangs on other threads that must be launched before it
    bool queued = false;
    std::vector<std::shared_ptr<Gang>> next;  // those that wait for it
  };
  using GangPtr = std::shared_ptr<Gang>;

  static void Ended(Gang& gang, absl::Status status);
  void Enqueue(GangPtr gang);
  void PutOnThread(GangPtr gang);
  void Launch(Gang& gang);  // on its thread

  Runtime* const runtime_;
  std::shared_ptr<ffi::HostCalls> host_calls_;
  std::vector<std::unique_ptr<Queue>> singles_;
  const std::shared_ptr<UnderWay> under_way_;

  std::mutex mutex_;
  std::condition_variable none_left_;
  // By line: the last gang that came, while it is not launched. Until then its thread has it, or a
  // gang before it. Guarded by mutex_.
  std::vector<Gang*> last_;
  size_t waiting_ = 0;            // gangs that are not launched. Guarded by mutex_
  std::vector<GangQueue> gangs_;  // by device; the threads go first
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
