// SPDX-License-Identifier: Apache-2.0
// A description of GPUs, to compile for them without one. A compile process of kind cuda has this
// and no client: it uses no memory of the GPU, has no context, and meets none of the GPU's faults.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TOPOLOGY_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TOPOLOGY_H_

#include <memory>
#include <string>
#include <vector>

#include "fairway/v1/compiler.pb.h"
#include "worker/executor/runtime/pjrt/target.h"

struct PJRT_TopologyDescription;

namespace fairway::pjrt {

// A target without a client. Thread-safe.
class Topology final : public Target, public std::enable_shared_from_this<Topology> {
 public:
  // Makes a topology of `config.num_devices` GPUs of one host, each as in `target`. Loads the
  // plugin, creates no client. INVALID_ARGUMENT: no target, or one that the plugin cannot read.
  // Else as LoadPlugin.
  static absl::StatusOr<std::shared_ptr<Topology>> Create(const PjrtConfig& config,
                                                          const v1::CompileTarget& target);
  ~Topology() override;
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  const Plugin& plugin() const override { return plugin_; }
  bool is_cpu() const override { return false; }
  std::string identity() const override { return platform_name_ + "; " + platform_version_; }
  const std::string& platform_version() const { return platform_version_; }
  const std::string& device_kind() const override { return device_kind_; }
  int num_devices() const override { return static_cast<int>(device_ids_.size()); }
  int device_id(int device) const override { return device_ids_[device]; }
  int64_t device_memory() const override { return device_memory_; }
  absl::StatusOr<std::unique_ptr<Compiled>> CompileOnly(std::string_view code,
                                                        std::string_view format,
                                                        const std::string& options) const override;

 private:
  Topology() = default;
  absl::Status ReadDescription();

  Plugin plugin_;
  PJRT_TopologyDescription* raw_ = nullptr;
  std::string platform_name_, platform_version_, device_kind_;
  std::vector<int> device_ids_;
  int64_t device_memory_ = 0;
};

// Returns the plugin's own description of the devices of a topology (that of a client, or one made
// above).
absl::StatusOr<v1::CompileTarget> DescriptionOf(const PJRT_Api* api,
                                                PJRT_TopologyDescription* topology);

// Returns the memory of a device according to the text of a GpuTargetConfigProto; 0: it does not
// say.
int64_t DeviceMemoryIn(std::string_view target_config);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TOPOLOGY_H_
