// SPDX-License-Identifier: Apache-2.0
// A PJRT client. The runtime executes with it; on CPUs the compiler compiles with one of its own.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CLIENT_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/executor/runtime/pjrt/config.h"
#include "worker/executor/runtime/pjrt/plugin.h"
#include "worker/executor/runtime/pjrt/target.h"

struct PJRT_Client;
struct PJRT_Device;
struct PJRT_LoadedExecutable;
struct PJRT_Memory;

namespace fairway::pjrt {

class Client;

// Returns a short text of the processor's features that native code may use. `cpuinfo`: the text of
// /proc/cpuinfo.
std::string CpuFeatures(std::string_view cpuinfo);

// Loaded code. It may be destroyed while executions are in flight. Thread-safe.
class Program {
 public:
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  PJRT_LoadedExecutable* raw() const { return raw_; }

 private:
  friend class Client;
  Program(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* raw)
      : client_(std::move(client)), raw_(raw) {}
  const std::shared_ptr<const Client> client_;
  PJRT_LoadedExecutable* const raw_;
};

// The one client of the process: in XLA two clients with equal launch ids in one process crash.
// Must not be destroyed on a thread of the plugin. Thread-safe.
class Client final : public Target, public std::enable_shared_from_this<Client> {
 public:
  // Creates the client. Blocks (25 ms on CPU). FAILED_PRECONDITION: the process has a client.
  // INVALID_ARGUMENT: fewer devices than config.num_devices. Else as LoadPlugin, or the plugin's
  // error.
  static absl::StatusOr<std::shared_ptr<Client>> Create(const PjrtConfig& config);
  ~Client() override;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const PJRT_Api* api() const { return plugin_.api; }
  const Plugin& plugin() const override { return plugin_; }
  PJRT_Client* raw() const { return raw_; }
  // True: host memory is device memory, so buffers can alias blocks and be read in place.
  bool is_cpu() const override { return is_cpu_; }
  const std::string& platform_name() const { return platform_name_; }
  // A text of the plugin, its interfaces and, on CPUs, the processor's features. If it differs
  // between two clients, one cannot safely load what the other serialized.
  const std::string& platform_version() const { return platform_version_; }
  const std::string& device_kind() const override { return device_kind_; }
  const std::vector<std::string>& memory_kinds() const { return memory_kinds_; }
  int num_devices() const override { return num_devices_; }
  // Platform and version.
  std::string identity() const override;

  // The target for compiling without this client. Not for kind cpu.
  const v1::CompileTarget& compile_target() const { return compile_target_; }

  // `device` < num_devices().
  PJRT_Device* device(int device) const { return devices_[device]; }
  // The id of the device in device assignments.
  int device_id(int device) const override { return device_ids_[device]; }
  // The bytes of the smallest device, without those that its pool loses between blocks. 0: the
  // plugin does not say.
  int64_t device_memory() const override { return device_memory_; }
  // Empty kind: the default memory. INVALID_ARGUMENT: no such kind.
  absl::StatusOr<PJRT_Memory*> memory(int device, std::string_view kind) const;

  absl::StatusOr<std::unique_ptr<Compiled>> CompileOnly(std::string_view code,
                                                        std::string_view format,
                                                        const std::string& options) const override;
  // `options` empty: the options compiled in.
  absl::StatusOr<std::unique_ptr<Program>> Load(std::string_view serialized,
                                                const std::string& options) const;

 private:
  Client() = default;
  absl::Status Open(const PjrtConfig& config);
  absl::Status ReadDescription(const PjrtConfig& config);
  absl::Status ReadMemory(PJRT_Device* device);
  absl::Status ReadTopology(const PjrtConfig& config);

  Plugin plugin_;
  PJRT_Client* raw_ = nullptr;
  bool holds_slot_ = false;
  bool is_cpu_ = false;
  int num_devices_ = 0;
  int64_t device_memory_ = 0;
  v1::CompileTarget compile_target_;
  std::string platform_name_, platform_version_, device_kind_;
  std::vector<std::string> memory_kinds_;
  std::vector<PJRT_Device*> devices_;
  std::vector<int> device_ids_;
  std::vector<std::vector<PJRT_Memory*>>
      memories_;  // [device][index into memory_kinds_]; an entry may be null
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CLIENT_H_
