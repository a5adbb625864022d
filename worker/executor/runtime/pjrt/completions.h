// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPLETIONS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPLETIONS_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "base/status.h"

struct PJRT_Api;
struct PJRT_Event;

namespace fairway::pjrt {

// The thread that completions run on. Callbacks of the plugin only hand over to it: they run on the
// plugin's own pool, where a PJRT call or a blocked lock can stop the very programs that it waits
// for. Also counts the callbacks under way, so that the runtime is not destroyed before they have
// come. Shared by the runtime and the callbacks. Thread-safe.
class Completions {
 public:
  Completions();
  // Runs the posted work, then ends the thread. Not on a thread of the plugin.
  ~Completions();

  // Runs `work` on the completion thread. Never blocks.
  void Post(absl::AnyInvocable<void()> work);

  // Counts a callback of the plugin that will come (Begin) or has come (End).
  void Begin();
  void End();
  // Waits until no callback will come and no work is posted. False: that took longer than `limit`.
  bool WaitIdle(std::chrono::milliseconds limit);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::vector<absl::AnyInvocable<void()>> queue_;
  int under_way_ = 0;
  bool running_ = false;  // work taken from queue_ is running
  bool stop_ = false;
  std::thread thread_;
};

// Takes `event` over. Runs `done` with its status: on this thread if it has happened, else on the
// completion thread.
void HandOver(const std::shared_ptr<Completions>& completions, const PJRT_Api* api,
              PJRT_Event* event, absl::AnyInvocable<void(absl::Status)> done);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPLETIONS_H_
