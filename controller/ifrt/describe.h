// SPDX-License-Identifier: Apache-2.0
// What a session tells its client about the devices: the answers to Init, GetDefaultLayout,
// GetDefaultDeviceAssignment.
#ifndef FAIRWAY_CONTROLLER_IFRT_DESCRIBE_H_
#define FAIRWAY_CONTROLLER_IFRT_DESCRIBE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "ifrt/messages.pb.h"

namespace fairway {

void DescribeDevices(uint64_t session_id, const std::vector<VirtualDevice>& devices,
                     xla::ifrt::proxy::InitResponse* response);

// INVALID_ARGUMENT: unknown device, memory kind or element type, or a shape out of bounds.
absl::Status DefaultLayout(const xla::ifrt::proxy::GetDefaultLayoutRequest& request,
                           const std::vector<VirtualDevice>& devices,
                           xla::ifrt::proxy::GetDefaultLayoutResponse* response);

// The first devices, replica-major. INVALID_ARGUMENT: more than there are.
absl::Status DefaultDeviceAssignment(
    const xla::ifrt::proxy::GetDefaultDeviceAssignmentRequest& request, int num_devices,
    xla::ifrt::proxy::GetDefaultDeviceAssignmentResponse* response);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_DESCRIBE_H_
