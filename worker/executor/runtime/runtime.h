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

// Facts about a runtime; fixed while it lives.
struct RuntimeInfo {
  std::string name;                       // "pjrt", "host", "sim" or "fake"
  std::string platform_name;              // "cpu", "cuda": decides JAX's lowering rules
  std::string platform_version;           // the plugin's own text
  int num_devices = 0;                    // exposed to sessions; local ordinals 0 .. num_devices-1
  std::string device_kind;                // "cpu"
  std::vector<std::string> memory_kinds;  // the first is the default
  int64_t device_memory = 0;              // bytes per device if the user gives none; 0: no limit
  ArrivalRule gang_inputs = ArrivalRule::kReady;
  // FromHost and CopyToDevice may wait for device memory, for seconds.
  bool memory_waits = false;
  bool has_compiler = false;
  // The target to compile for without a client: the text of XLA's GpuTargetConfigProto and of its
  // HostTargetMachineOptionsProto. Empty: compiling needs a client.
  std::string target_config, host_machine;
  std::string stablehlo_current;  // e.g. "1.13.3"; empty when there is no compiler
  std::string stablehlo_minimum;
};

// The bytes of one shard on one device; they may still be being computed. Owned by the caller, who
// may destroy it while work that reads it is in flight. Thread-safe.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  // Calls `done` once, on any thread, perhaps before it returns: with OK when the bytes are there,
  // else with the error of the work that should have made them. `done` must not block and must not
  // call the runtime.
  virtual void OnReady(absl::AnyInvocable<void(absl::Status)> done) = 0;
};

// Compiled code, loaded for the runtime's devices. It may be destroyed while launches are in
// flight. Thread-safe.
class LoadedExecutable {
 public:
  virtual ~LoadedExecutable() = default;
  // True if its devices never wait for each other. Then a gang may be launched with inputs that are
  // still being computed, and may run on some devices alone if inputs of the others have failed.
  virtual bool separable() const { return false; }
  // True if a gang may be passed to Launch right behind the gangs that make its inputs, from the
  // same thread, before these have ended.
  virtual bool follows() const { return separable(); }
  // True if an execution whose inputs are computed takes a fraction of a millisecond at most, for
  // all values, and ends within Launch. Then a thread that must not be held up may launch it.
  virtual bool brief() const { return false; }
};

// One launch; see Runtime::Launch.
struct LaunchRequest {
  LoadedExecutable* executable = nullptr;  // must outlive the call, not the execution
  // Local ordinals, in the order of the executable's device assignment.
  std::vector<int> devices;
  // inputs[d][a]: argument `a` on devices[d]. A buffer may be listed for several arguments.
  std::vector<std::vector<DeviceBuffer*>> inputs;
  // Arguments that must survive, although the executable aliases them to outputs and would take
  // them over. All other aliased arguments are consumed: their DeviceBuffers stay valid objects,
  // but hold no bytes.
  std::vector<int> non_donatable;
  // The place in the island's order, >= 1. The pjrt runtime passes 1 + (launch_id mod (2^31 - 1)).
  uint64_t launch_id = 0;
  // Calls functions of the client for the program; nullptr: such calls fail. The execution fails
  // with the error of the first call that failed.
  std::shared_ptr<ffi::HostCalls> host_calls;
};

// Calls of loaded code that run one behind the other; see Runtime::Link. Their values: first the
// arguments, then the outputs of each call, in order.
struct LinkRequest {
  struct Call {
    std::shared_ptr<LoadedExecutable> executable;
    std::vector<int32_t> inputs;  // values
    int32_t outputs = 0;
    std::vector<int32_t> ends;  // values that calls make and that nothing reads after this one
  };
  int32_t arguments = 0;
  std::vector<Call> calls;
  std::vector<int32_t> results;  // values that calls make: the outputs of the whole
};

struct LaunchResult {
  std::vector<std::vector<std::unique_ptr<DeviceBuffer>>> outputs;  // [device][output]
};

// Owned by the executor process. Thread-safe unless a method says otherwise.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual const RuntimeInfo& info() const = 0;

  // Loads serialized code: the `executable` of a compiler's answer, whose checksum was verified.
  // `devices`: local ordinals that replace the compiled assignment; empty keeps it. Blocks (0.1 to
  // 100 ms). INVALID_ARGUMENT: not code for this runtime, or a device that it lacks.
  virtual absl::StatusOr<std::shared_ptr<LoadedExecutable>> Load(
      std::string_view code, const std::vector<int>& devices) = 0;

  // Loads code that several executors run together. `devices` are those of this executor;
  // `exchange` talks to the others. UNIMPLEMENTED: this runtime cannot span executors.
  virtual absl::StatusOr<std::shared_ptr<LoadedExecutable>> LoadShare(
      std::string_view code, const std::vector<int>& devices, std::shared_ptr<Exchange> exchange) {
    return Error(absl::StatusCode::kUnimplemented,
                 "a computation of the {} runtime cannot span executors", info().name);
  }

  // Makes one executable of calls of code for the same devices. A launch of it takes launch ids
  // from the request's on, one for each call, and consumes no argument. A call that fails, or whose
  // input has failed, fails the calls that read its outputs, and no others. So each output has a
  // result of its own, known when `done` is called. `done` gets the error of the first call that
  // failed. UNIMPLEMENTED: this runtime gains nothing. INVALID_ARGUMENT: they do not fit together.
  virtual absl::StatusOr<std::shared_ptr<LoadedExecutable>> Link(const LinkRequest& request) {
    return Error(absl::StatusCode::kUnimplemented, "the {} runtime links nothing", info().name);
  }

  // Makes a buffer of `bytes` on local device `device`. Takes the block over: on CPU the buffer
  // aliases it (blocks are 64-byte aligned), and a program that it is donated to may write into it;
  // elsewhere the bytes are copied. INVALID_ARGUMENT: no such device or memory, or the size is not
  // that of dtype[shape].
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> FromHost(std::shared_ptr<Blob> bytes,
                                                                 DType dtype, const Shape& shape,
                                                                 int device,
                                                                 std::string_view memory_kind) = 0;

  // Passes the bytes of `buffer` to `done` once they are computed: on any thread, perhaps before it
  // returns. On CPU it copies nothing if the device layout is dense. FAILED_PRECONDITION: the
  // buffer was donated; else the producer's error.
  virtual void Read(DeviceBuffer& buffer,
                    absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) = 0;

  // Makes a new buffer with the bytes of `buffer` on `device`. It is always a real copy, also on
  // the same device.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> CopyToDevice(
      DeviceBuffer& buffer, int device, std::string_view memory_kind) = 0;

  // Calls `lost` at most once, on any thread, with the cause, when the devices cannot be used any
  // more; then this process must end. Set it before the first launch.
  virtual void WhenLost(absl::AnyInvocable<void(absl::Status)> lost) {}

  // Says that the executor has got this launch; Launch follows when the inputs and the turn have
  // come. Ids rise. Runtimes that simulate time use it.
  virtual void NoteLaunch(uint64_t launch_id) {}

  // Starts one execution on all of request.devices and returns its outputs, not yet computed.
  //
  // Calls `done` once, on any thread, perhaps before Launch returns: with OK when every device has
  // finished, else with the error of the lowest device in request order. On a non-OK return nothing
  // ran and `done` is not called.
  //
  // Several devices (a gang): calls for gangs that share a device come one after another, in the
  // order of their launch ids; so do calls of code that was loaded by LoadShare. Others may
  // overlap. All inputs are ready, unless the executable is separable. One device: calls for
  // different devices may overlap; a cheap program runs inside the call.
  //
  // INVALID_ARGUMENT: argument count, a missing or donated buffer, dtype or shape unlike the
  // executable's.
  virtual absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                              absl::AnyInvocable<void(absl::Status)> done) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_RUNTIME_H_
