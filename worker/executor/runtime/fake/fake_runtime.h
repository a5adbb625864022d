// SPDX-License-Identifier: Apache-2.0
// A runtime without devices, for tests: deterministic, no threads of its own.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_FAKE_FAKE_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_FAKE_FAKE_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/executor/runtime/fake/fake_program.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// Runs FakePrograms. A launch ends when its inputs are computed and, in manual mode, when the test
// says so. Its callbacks run inside the call that ends it. Poison passes from inputs to outputs.
// Thread-safe.
class FakeRuntime : public Runtime {
 public:
  explicit FakeRuntime(int num_devices, bool manual = false,
                       ArrivalRule gang_inputs = ArrivalRule::kReady);
  ~FakeRuntime() override;

  const RuntimeInfo& info() const override;
  absl::StatusOr<std::shared_ptr<LoadedExecutable>> Load(std::string_view code,
                                                         const std::vector<int>& devices) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> FromHost(std::shared_ptr<Blob> bytes, DType dtype,
                                                         const Shape& shape, int device,
                                                         std::string_view memory_kind) override;
  void Read(DeviceBuffer& buffer, absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> CopyToDevice(DeviceBuffer& buffer, int device,
                                                             std::string_view memory_kind) override;
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override;

  // A buffer whose bytes come later, like PjrtRuntime::Expect.
  struct Incoming {
    std::unique_ptr<DeviceBuffer> buffer;
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Blob>>)> fulfil;
  };
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device);

  // Ends the oldest launch whose inputs are computed, blocked or not. False: there is none.
  bool EndNext();
  // Ends all launches that can end, blocked ones too.
  void EndAll();
  // Ends the next launch that would run with `error` instead.
  void FailNext(absl::Status error);

  struct LaunchRecord {
    uint64_t launch_id = 0;
    std::string name;
    std::vector<int> devices;
    friend bool operator==(const LaunchRecord&, const LaunchRecord&) = default;
  };
  std::vector<LaunchRecord> launches() const;  // in the order of the calls
  int under_way() const;                       // launches not ended
  // The rules that callers broke: a gang with an input that is not ready or has failed (unless its
  // program is separable, or gang_inputs is kExternal); a gang out of launch-id order.
  std::vector<std::string> violations() const;
  // Buffers that exist and are not donated, and their bytes.
  int live_buffers() const;
  int64_t live_bytes() const;

  struct State;  // shared with buffers, which may outlive the runtime

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_FAKE_FAKE_RUNTIME_H_
