// SPDX-License-Identifier: Apache-2.0
// A target of compilation: the devices of a client (client.h), or a description of devices that
// need not exist here (topology.h).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TARGET_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TARGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "worker/executor/runtime/pjrt/compiled.h"
#include "worker/executor/runtime/pjrt/plugin.h"

namespace fairway::pjrt {

// Shared by whoever compiles for it. Thread-safe.
class Target {
 public:
  virtual ~Target() = default;

  virtual const Plugin& plugin() const = 0;
  // True: host memory is device memory.
  virtual bool is_cpu() const = 0;
  // Code fits only targets with this identity: platform, plugin, interfaces, processor or GPU.
  virtual std::string identity() const = 0;
  virtual const std::string& device_kind() const = 0;
  virtual int num_devices() const = 0;
  // The id of the device in device assignments; `device` < num_devices().
  virtual int device_id(int device) const = 0;
  // The bytes of one device; 0: not known.
  virtual int64_t device_memory() const = 0;

  // Compiles without loading. Blocks. `format`: "mlir" or "hlo". `options`: a serialized
  // CompileOptionsProto that we built; empty or wrong bytes abort the process.
  virtual absl::StatusOr<std::unique_ptr<Compiled>> CompileOnly(
      std::string_view code, std::string_view format, const std::string& options) const = 0;
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TARGET_H_
