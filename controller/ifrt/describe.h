// SPDX-License-Identifier: Apache-2.0
// Descriptions of devices and compiled programs for the client: the answers to Init,
// GetDefaultLayout, GetDefaultDeviceAssignment, LoadedExecutableMetadata.
#ifndef FAIRWAY_CONTROLLER_IFRT_DESCRIBE_H_
#define FAIRWAY_CONTROLLER_IFRT_DESCRIBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/virtual_device.h"
#include "fairway/v1/executable.pb.h"
#include "ifrt/messages.pb.h"

namespace fairway {

void DescribeDevices(uint64_t session_id, const std::vector<VirtualDevice>& devices,
                     xla::ifrt::proxy::InitResponse* response);

// INVALID_ARGUMENT: unknown device, memory kind or element type, or a shape out of bounds.
absl::Status DefaultLayout(const xla::ifrt::proxy::GetDefaultLayoutRequest& request,
                           const std::vector<VirtualDevice>& devices,
                           xla::ifrt::proxy::GetDefaultLayoutResponse* response);

// Assigns the first devices, replica-major. INVALID_ARGUMENT: more than there are.
absl::Status DefaultDeviceAssignment(
    const xla::ifrt::proxy::GetDefaultDeviceAssignmentRequest& request, int num_devices,
    xla::ifrt::proxy::GetDefaultDeviceAssignmentResponse* response);

// The shardings in `metadata` must parse. `memory_kinds` are those of the first of its
// `num_devices` devices, the default first.
void DescribeExecutable(const v1::ExecutableMetadata& metadata, size_t num_devices,
                        const std::vector<std::string>& memory_kinds,
                        xla::ifrt::proxy::LoadedExecutableMetadataResponse* response);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_DESCRIBE_H_
