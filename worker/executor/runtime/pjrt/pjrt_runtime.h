// SPDX-License-Identifier: Apache-2.0
// Runtime over any PJRT plugin (docs/architecture.md, "Device runtimes").
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_PJRT_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_PJRT_RUNTIME_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "worker/executor/runtime/pjrt/config.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

namespace pjrt {
class Buffer;
class Client;
class Completions;
class DeviceThreads;
class Health;
class Slots;
}  // namespace pjrt

// In addition to the Runtime interface:
// - Launch waits for a free slot if 24 programs of one device, or 24 gangs, are under way: XLA
//   itself blocks at 32. On CPU it waits at 2 gangs, because more hold all threads of XLA's pool.
// - If info().gang_inputs is kReady, Launch refuses a gang with an input that is not ready or has
//   failed (FAILED_PRECONDITION): XLA would stall every later gang, or abort the process.
// - A program of one device with an input known to have failed does not run; its outputs get that
//   error.
// - An input that is being read, or is listed for two arguments, is not written into: it is
//   passed as non-donatable, and still counts as consumed.
// - `done` may be called before Launch returns.
// - A block given to FromHost may be released on a thread of the plugin: its release must not
//   call PJRT.
class PjrtRuntime final : public Runtime {
 public:
  // Waits up to 20 s for callbacks under way. Buffers and executables may outlive it; they keep the
  // client.
  ~PjrtRuntime() override;

  const RuntimeInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<LoadedExecutable>> Load(std::string_view code,
                                                         const std::vector<int>& devices) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> FromHost(std::shared_ptr<Blob> bytes, DType dtype,
                                                         const Shape& shape, int device,
                                                         std::string_view memory_kind) override;
  void Read(DeviceBuffer& buffer, absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> CopyToDevice(DeviceBuffer& buffer, int device,
                                                             std::string_view memory_kind) override;
  void WhenLost(absl::AnyInvocable<void(absl::Status)> lost) override;
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override;

  // A buffer whose bytes come later; programs of one device may be launched on it before that. Call
  // `fulfil` once, on any thread: with a block of the right size, or with the error that takes its
  // place. Dropping it uncalled means CANCELLED. UNIMPLEMENTED: sub-byte elements.
  struct Incoming {
    std::unique_ptr<DeviceBuffer> buffer;
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Blob>>)> fulfil;
  };
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device,
                                  std::string_view memory_kind);

  // Counts blocks of FromHost that the plugin copied although it could have used them in place.
  int64_t forced_copies() const { return forced_copies_.load(); }

 private:
  friend std::unique_ptr<PjrtRuntime> MakePjrtRuntime(std::shared_ptr<pjrt::Client> client);
  explicit PjrtRuntime(std::shared_ptr<pjrt::Client> client);

  struct IncomingView {
    std::unique_ptr<DeviceBuffer> buffer;
    absl::AnyInvocable<void(absl::StatusOr<HostView>)> fulfil;
  };

  absl::Status CheckPlace(int device) const;
  // Returns `status`, the result of a call for `device`, unchanged. If the call failed, tests
  // whether the device still works.
  absl::Status Watched(int device, absl::Status status) const;
  absl::StatusOr<IncomingView> ExpectView(DType dtype, const Shape& shape, int device,
                                          std::string_view memory_kind);
  // Copies within the buffer's own device and memory; PJRT has no call for that.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Duplicate(DeviceBuffer& buffer);
  // Copies through another memory of the device.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> DuplicateByBounce(DeviceBuffer& buffer);

  RuntimeInfo info_;
  const std::shared_ptr<pjrt::Client> client_;
  const std::shared_ptr<pjrt::Completions> completions_;
  // Reorders large values for readers, so that no launch waits for that.
  const std::shared_ptr<pjrt::Completions> copies_;
  const std::shared_ptr<pjrt::Slots> slots_;
  const std::unique_ptr<pjrt::DeviceThreads> threads_;
  std::mutex gang_calls_;  // held for a call that launches a gang with collectives on CPUs
  const std::shared_ptr<pjrt::Health> health_;
  std::atomic<int64_t> forced_copies_{0};
};

// Loads the plugin and creates the one client of this process. Blocks 25 ms or more.
// Errors: those of pjrt::Client::Create.
absl::StatusOr<std::unique_ptr<Runtime>> MakePjrtRuntime(const PjrtConfig& config);

// The same, over a client that the process already has.
std::unique_ptr<PjrtRuntime> MakePjrtRuntime(std::shared_ptr<pjrt::Client> client);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_PJRT_RUNTIME_H_
