// SPDX-License-Identifier: Apache-2.0
// How a running program calls functions of its client (docs/design/0046-callbacks.md): from XLA's
// handler of `fairway_callback` to whoever carries calls to clients.
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

// Carries calls to the client that launched what makes them. Thread-safe.
class HostCalls {
 public:
  virtual ~HostCalls() = default;
  // Waits until the results are in call.rets. An error: they hold anything. On a thread that
  // serves no other device.
  virtual absl::Status Run(uint64_t launch_id, const Call& call) = 0;
};

// A launch under way whose program makes calls: how the handler finds it, and how its first failed
// call becomes the failure of the launch. Exists from before the launch until after its end.
// Thread-safe.
class CallingLaunch {
 public:
  // `run`: what the plugin was given as the launch's id; no two launches under way share one.
  // `alone`: on one device.
  CallingLaunch(int64_t run, uint64_t launch_id, std::shared_ptr<HostCalls> calls, bool alone);
  ~CallingLaunch();
  CallingLaunch(const CallingLaunch&) = delete;
  CallingLaunch& operator=(const CallingLaunch&) = delete;

  // Fills the results, with zeros when the call fails. After a failed call nothing is called any
  // more.
  void Run(const Call& call);
  // Whether `device` is to go through `loop` once more: true until a call has failed. Asked before
  // each round. All devices of the launch leave a loop before the same round, since those that stay
  // in it may wait for the others in a collective; so it ends before the first round that no device
  // had asked for when the call failed.
  bool GoesOn(int64_t loop, int64_t device);
  // Of the first call that failed.
  absl::Status failure() const;
  // The program goes on calling after a failure, and may be ended without harm to other devices. It
  // may be a loop that waits for what zeros will never tell.
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
    std::map<int64_t, int64_t> rounds;  // that a device has asked for; of all its runs together
    int64_t most = 0;                   // of `rounds`
    std::optional<int64_t> end;         // the first round that is not gone through
  };
  std::map<int64_t, Loop> loops_;
};

// In this process, ever.
bool AnyCallHasFailed();

// nullptr: there is none of that number.
std::shared_ptr<CallingLaunch> FindCallingLaunch(int64_t run);
// Makes it findable until the last other reference has gone.
std::shared_ptr<CallingLaunch> BeginCalling(int64_t run, uint64_t launch_id,
                                            std::shared_ptr<HostCalls> calls, bool alone);

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_HOST_CALLS_H_
