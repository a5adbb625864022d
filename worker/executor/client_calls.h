// SPDX-License-Identifier: Apache-2.0
// Carries calls from running programs to functions of their clients, through the controller
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

// Belongs to one registration at a controller. Thread-safe: a thread that runs a device waits in
// Run until the event loop passes the answer, or the reason why none comes.
class ClientCalls final : public ffi::HostCalls {
 public:
  // Any thread may call both; they must not block.
  struct Handler {
    std::function<void(CallbackCall)> send;
    std::function<void(uint64_t call)> give_up;  // nobody waits for the answer any more
  };
  explicit ClientCalls(Handler handler) : handler_(std::move(handler)) {}

  absl::Status Run(uint64_t launch_id, const ffi::Call& call) override;

  // Returns the bytes of an argument that did not go with its call; nullptr: there is no such
  // argument, or nobody waits for the call any more.
  std::shared_ptr<const Blob> Argument(uint64_t call, int32_t index) const;
  // Returns the sizes of the results that a call waits for; nullopt: it does not wait.
  std::optional<std::vector<int64_t>> Wanted(uint64_t call) const;
  // Passes an answer to its call. Ignores answers of unknown calls: those were given up.
  void Answered(CallbackAnswer answer);
  // Fails the calls under way of these launches with `cause`. Their later calls are not affected.
  void Abandon(LaunchId first, LaunchId last, const absl::Status& cause);
  // Fails all calls with `cause`: those under way at once, later ones when they come. Sends nothing
  // any more.
  void Close(const absl::Status& cause);

  size_t num_waiting() const;

  // Bounds the arguments and results of calls under way; a call beyond that fails.
  static constexpr int64_t kMaxWaitingBytes = 4 * kMaxCallbackBytes;

 private:
  struct Waiting {
    LaunchId launch;
    std::condition_variable ended;
    std::optional<CallbackAnswer> answer;
    std::vector<CallbackArray> arguments;  // those that are to be pulled
    std::vector<int64_t> wanted;
  };

  // RESOURCE_EXHAUSTED: the call would pass kMaxWaitingBytes.
  absl::Status Reserve(int64_t bytes);
  // Sends the call and waits for its answer. Moves arguments that are to be pulled out of `asked`.
  absl::StatusOr<CallbackAnswer> Ask(CallbackCall& asked);

  const Handler handler_;
  mutable std::mutex mutex_;
  uint64_t next_call_ = 1;
  std::map<uint64_t, Waiting> waiting_;
  int64_t bytes_ = 0;  // of calls under way; at most kMaxWaitingBytes
  absl::Status closed_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_CLIENT_CALLS_H_
