// SPDX-License-Identifier: Apache-2.0
// Knows whether the devices of a client can still be used. A fault on a GPU ends its context: from
// then on every call fails, and only a new process helps.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_HEALTH_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_HEALTH_H_

#include <memory>
#include <mutex>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "base/status.h"

namespace fairway::pjrt {

class Client;
class Completions;
class RawBuffer;

// Shared by the runtime and its callbacks. Thread-safe.
class Health : public std::enable_shared_from_this<Health> {
 public:
  // Copies from devices run on the thread of `copies`, which may block.
  Health(std::shared_ptr<Client> client, std::shared_ptr<Completions> copies);
  ~Health();

  // Sets `lost`. It is called at most once, on any thread, with the cause.
  void WhenLost(absl::AnyInvocable<void(absl::Status)> lost);

  // A program, a copy or a load on `device` ended with `why`. Tests whether the device still works:
  // copies four bytes back that are there since the start, because it may have no memory left now.
  // Does nothing for errors that a working device gives.
  void Suspect(int device, const absl::Status& why);
  // Reports the devices as lost without a test.
  void Lost(absl::Status why);

 private:
  absl::Status Probe(int device) const;

  std::vector<absl::StatusOr<std::unique_ptr<RawBuffer>>> probes_;  // by device; none on CPUs
  const std::shared_ptr<Client> client_;
  const std::shared_ptr<Completions> copies_;
  std::mutex mutex_;
  absl::AnyInvocable<void(absl::Status)> lost_;  // guarded by mutex_; null: called, or none
  bool looking_ = false;                         // guarded by mutex_: a probe is under way
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_HEALTH_H_
