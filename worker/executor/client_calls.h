// SPDX-License-Identifier: Apache-2.0
// Calls that running programs make of functions of their clients, by way of the controller
// (docs/design/0046-callbacks.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_CLIENT_CALLS_H_
#define FAIRWAY_WORKER_EXECUTOR_CLIENT_CALLS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "graph/callback.h"
#include "worker/ffi/host_calls.h"

namespace fairway {

// Of one registration at a controller. Thread-safe: threads that run devices wait in Run until the
// event loop tells the answer, or why none comes.
class ClientCalls final : public ffi::HostCalls {
 public:
  // Both may be called on any thread, and must not block.
  struct Handler {
    std::function<void(CallbackCall)> send;
    std::function<void(uint64_t call)> give_up;  // nobody waits for its answer any more
  };
  explicit ClientCalls(Handler handler) : handler_(std::move(handler)) {}

  absl::Status Run(uint64_t launch_id, const ffi::Call& call) override;

  // The bytes of an argument that was not sent with its call; nullptr: there is none of that
  // number, or nobody waits for the call any more.
  std::shared_ptr<const Blob> Argument(uint64_t call, int32_t index) const;
  // The sizes of the results that a call waits for; nothing: it does not wait.
  std::optional<std::vector<int64_t>> Wanted(uint64_t call) const;
  // Unknown calls are ignored: they were given up.
  void Answered(CallbackAnswer answer);
  // Calls of these launches that are under way fail with `cause`. Those that they make later do
  // not.
  void Abandon(LaunchId first, LaunchId last, const absl::Status& cause);
  // All calls fail with `cause`, those under way at once. Nothing is sent any more.
  void Close(const absl::Status& cause);

  size_t num_waiting() const;

  // Of arguments and results of calls under way; beyond it a call fails.
  static constexpr int64_t kMaxWaitingBytes = 4 * kMaxCallbackBytes;

 private:
  struct Waiting {
    LaunchId launch;
    std::condition_variable ended;
    std::optional<CallbackAnswer> answer;
    std::vector<CallbackArray> arguments;  // when they are to be pulled
    std::vector<int64_t> wanted;
  };

  // RESOURCE_EXHAUSTED: there is no room.
  absl::Status Reserve(int64_t bytes);
  // Sends it and waits for its answer. What is to be pulled is taken out of it.
  absl::StatusOr<CallbackAnswer> Ask(CallbackCall& asked);

  const Handler handler_;
  mutable std::mutex mutex_;
  uint64_t next_call_ = 1;
  std::map<uint64_t, Waiting> waiting_;
  int64_t bytes_ = 0;  // of calls under way
  absl::Status closed_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_CLIENT_CALLS_H_
