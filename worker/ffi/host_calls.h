// SPDX-License-Identifier: Apache-2.0
// The way from a running program to functions of its client (docs/design/0046-callbacks.md): XLA's
// handler of `fairway_callback` finds the launch, and the launch has a HostCalls.
#ifndef FAIRWAY_WORKER_FFI_HOST_CALLS_H_
#define FAIRWAY_WORKER_FFI_HOST_CALLS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "worker/ffi/call.h"

namespace fairway::ffi {

inline constexpr std::string_view kCallbackTarget = "fairway_callback";

// Carries calls to the client that launched the calling program. Implemented by ClientCalls.
// Thread-safe.
class HostCalls {
 public:
  virtual ~HostCalls() = default;
  // Calls the function and waits until the results are in call.rets. On an error they are
  // undefined. Runs on a thread that serves no other device.
  virtual absl::Status Run(uint64_t launch_id, const Call& call) = 0;
};

// A launch under way whose program makes calls. The handler finds it by `run`, and its first failed
// call becomes the failure of the launch. Exists from before the launch until after its end.
// Thread-safe.
class CallingLaunch {
 public:
  // `run`: the launch id that the plugin got; no two launches under way share one. `alone`: the
  // launch is on one device.
  CallingLaunch(int64_t run, uint64_t launch_id, std::shared_ptr<HostCalls> calls, bool alone);
  ~CallingLaunch();
  CallingLaunch(const CallingLaunch&) = delete;
  CallingLaunch& operator=(const CallingLaunch&) = delete;

  // Makes the call and fills the results: with zeros if it fails. After a failed call no function
  // is called any more.
  void Run(const Call& call);
  // Returns whether `device` goes through `loop` once more: true until a call has failed. Asked
  // before each round. All devices of the launch must leave a loop before the same round, because a
  // device that stays may wait for the others in a collective. So the loop ends before the first
  // round that no device had asked for when the call failed.
  bool GoesOn(int64_t loop, int64_t device);
  // Returns the error of the first call that failed.
  absl::Status failure() const;
  // Returns whether the program should be stopped: it keeps calling after a failure, and stopping
  // it does not harm other devices. It may loop until it gets a value that zeros never are.
  bool stop() const;

 private:
  const int64_t run_;
  const uint64_t launch_id_;
  const std::shared_ptr<HostCalls> calls_;
  const bool alone_;
  mutable std::mutex mutex_;
  absl::Status failure_;
  bool called_again_ = false;
  struct Loop {
    // rounds that a device has asked for, over all its runs of the loop
    std::map<int64_t, int64_t> rounds;
    int64_t most = 0;            // the largest of `rounds`
    std::optional<int64_t> end;  // the first round that no device goes through
  };
  std::map<int64_t, Loop> loops_;
};

// Returns whether any call of this process has ever failed.
bool AnyCallHasFailed();

// nullptr: there is none of that number.
std::shared_ptr<CallingLaunch> FindCallingLaunch(int64_t run);
// Makes a launch that FindCallingLaunch finds until the last other reference is gone.
std::shared_ptr<CallingLaunch> BeginCalling(int64_t run, uint64_t launch_id,
                                            std::shared_ptr<HostCalls> calls, bool alone);

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_HOST_CALLS_H_
