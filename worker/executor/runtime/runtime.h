// SPDX-License-Identifier: Apache-2.0
// The seam between an executor and its devices (docs/architecture.md, "Device runtimes").
// Implementations: pjrt (any PJRT plugin), host (native kernels), sim (declared times), fake
// (tests). One conformance suite runs on each.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "base/blob.h"
#include "base/status.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "worker/executor/runtime/exchange.h"

namespace fairway {

namespace ffi {
class HostCalls;  // worker/ffi/host_calls.h
}

struct RuntimeInfo {
  std::string name;                       // "pjrt", "host", "sim" or "fake"
  std::string platform_name;              // "cpu", "cuda": decides JAX's lowering rules
  std::string platform_version;           // text of the plugin
  int num_devices = 0;                    // exposed to sessions; local ordinals 0 .. num_devices-1
  std::string device_kind;                // "cpu"
  std::vector<std::string> memory_kinds;  // the first is the default
  int64_t device_memory = 0;              // bytes per device where users give none; 0: no limit
  ArrivalRule gang_inputs = ArrivalRule::kReady;
  // FromHost and CopyToDevice may wait for memory of the device, for seconds.
  bool memory_waits = false;
  bool has_compiler = false;
  // What programs are compiled for where that takes no client: the text of XLA's
  // GpuTargetConfigProto, and of its HostTargetMachineOptionsProto. Empty: it takes one.
  std::string target_config, host_machine;
  std::string stablehlo_current;  // e.g. "1.13.3"; empty when there is no compiler
  std::string stablehlo_minimum;
};

// Bytes of one shard on one device; possibly still being computed. Destroying it while work that
// reads it is in flight is allowed. Thread-safe.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  // Calls `done` once, on any thread and perhaps before it returns: when the bytes are there, or
  // with the error of whatever should have made them. `done` must not block and must not call the
  // runtime.
  virtual void OnReady(absl::AnyInvocable<void(absl::Status)> done) = 0;
};

// Compiled code, loaded for the runtime's devices. Thread-safe. Destroying it with launches in
// flight is allowed.
class LoadedExecutable {
 public:
  virtual ~LoadedExecutable() = default;
  // Its devices never wait for each other: it may be launched on several with inputs that are
  // still being computed, and on some of them alone when an input of others has failed.
  virtual bool separable() const { return false; }
  // With its inputs computed an execution takes a fraction of a millisecond at most and ends within
  // Launch, whatever values they have: a thread that must not be held up may launch it.
  virtual bool brief() const { return false; }
};

struct LaunchRequest {
  LoadedExecutable* executable = nullptr;  // outlives the call, not the execution
  // Local ordinals, in the order of the executable's device assignment.
  std::vector<int> devices;
  // inputs[d][a]: argument `a` on devices[d]. A buffer may be listed for several arguments.
  std::vector<std::vector<DeviceBuffer*>> inputs;
  // Arguments that must survive although the executable would take them over (it aliases them to
  // outputs). All others that it aliases are consumed: their DeviceBuffers stay valid objects but
  // hold no bytes.
  std::vector<int> non_donatable;
  // Place in the island's order, >= 1. The pjrt runtime passes 1 + (launch_id mod (2^31 - 1)).
  uint64_t launch_id = 0;
  // Who calls the functions of its client that the program asks for; nullptr: such calls fail. The
  // execution fails with the error of the first call that did.
  std::shared_ptr<ffi::HostCalls> host_calls;
};

struct LaunchResult {
  std::vector<std::vector<std::unique_ptr<DeviceBuffer>>> outputs;  // [device][output]
};

// Thread-safe unless a method says otherwise.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual const RuntimeInfo& info() const = 0;

  // Loads serialized code (the `executable` of a compiler's answer, already verified against its
  // checksum). `devices`: local ordinals that replace the assignment compiled in; empty keeps it.
  // Blocks (0.1 to 100 ms). INVALID_ARGUMENT: not code for this runtime, or devices that it lacks.
  virtual absl::StatusOr<std::shared_ptr<LoadedExecutable>> Load(
      std::string_view code, const std::vector<int>& devices) = 0;

  // The same for code that executors run together: `devices` are those of this one, `exchange` is
  // how it talks to the others. UNIMPLEMENTED: this runtime keeps to one executor.
  virtual absl::StatusOr<std::shared_ptr<LoadedExecutable>> LoadShare(
      std::string_view code, const std::vector<int>& devices, std::shared_ptr<Exchange> exchange) {
    return Error(absl::StatusCode::kUnimplemented,
                 "a computation of the {} runtime cannot span executors", info().name);
  }

  // Makes a buffer of `bytes` on local device `device`. Takes the block over: on CPU the buffer
  // aliases it (blocks are 64-byte aligned) and a donating program may write into it; elsewhere it
  // is copied. INVALID_ARGUMENT: no such device or memory, or the size is not that of dtype[shape].
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> FromHost(std::shared_ptr<Blob> bytes,
                                                                 DType dtype, const Shape& shape,
                                                                 int device,
                                                                 std::string_view memory_kind) = 0;

  // Gives the bytes of `buffer`, once they are computed, to `done`: on any thread, perhaps before
  // it returns. No copy on CPU when the device layout is dense. FAILED_PRECONDITION: donated; else
  // the producer's error.
  virtual void Read(DeviceBuffer& buffer,
                    absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) = 0;

  // A new buffer with the bytes of `buffer` on `device` (may be the same device; always a real
  // copy).
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> CopyToDevice(
      DeviceBuffer& buffer, int device, std::string_view memory_kind) = 0;

  // `lost` is called at most once, on any thread, when the devices cannot be used any more, with
  // the cause: this process is to end. To be set before the first launch.
  virtual void WhenLost(absl::AnyInvocable<void(absl::Status)> lost) {}

  // The executor was told to launch this; Launch comes when its inputs and its turn have come. Ids
  // rise. For runtimes that simulate time.
  virtual void NoteLaunch(uint64_t launch_id) {}

  // Starts one execution on all of request.devices and returns its outputs, not yet computed.
  // `done` is called once, on any thread, perhaps before Launch returns: OK when every device has
  // finished, else the error of the lowest device in request order. Several devices (a gang): the
  // caller makes such calls one after another in launch-id order, with all inputs ready, unless
  // the executable is separable. One device: calls for different devices may overlap; a cheap
  // program runs inside the call. On a non-OK return `done` is not called and nothing ran.
  // INVALID_ARGUMENT: argument count, a missing or donated buffer, dtype or shape unlike the
  // executable's.
  virtual absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                              absl::AnyInvocable<void(absl::Status)> done) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_RUNTIME_H_
