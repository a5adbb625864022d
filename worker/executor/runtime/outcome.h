// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_OUTCOME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_OUTCOME_H_

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "base/status.h"

namespace fairway {

// The result of the work that makes a buffer: OK or an error, set once. Shared by the buffer and
// the launches that read or make it. Thread-safe. The pjrt runtime keeps it beside the plugin's own
// result, because the plugin loses the code of an error that passes through a program.
class Outcome {
 public:
  static std::shared_ptr<Outcome> Of(absl::Status status) {
    auto outcome = std::make_shared<Outcome>();
    outcome->result_ = std::move(status);
    return outcome;
  }

  // Sets the result and runs the waiting callbacks on this thread. Ignores a second call.
  void Set(absl::Status status) {
    std::vector<absl::AnyInvocable<void(absl::Status)>> waiters;
    {
      std::lock_guard lock(mutex_);
      if (result_.has_value()) return;
      result_ = status;
      waiters.swap(waiters_);
    }
    for (auto& waiter : waiters) std::move(waiter)(status);
  }

  // nullopt: the work has not ended.
  std::optional<absl::Status> Peek() const {
    std::lock_guard lock(mutex_);
    return result_;
  }

  // Runs `done` once: at once if the work has ended, else on the thread that calls Set.
  void OnDone(absl::AnyInvocable<void(absl::Status)> done) {
    absl::Status status;
    {
      std::lock_guard lock(mutex_);
      if (!result_.has_value()) {
        waiters_.push_back(std::move(done));
        return;
      }
      status = *result_;
    }
    std::move(done)(std::move(status));
  }

 private:
  mutable std::mutex mutex_;
  std::optional<absl::Status> result_;
  std::vector<absl::AnyInvocable<void(absl::Status)>> waiters_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_OUTCOME_H_
