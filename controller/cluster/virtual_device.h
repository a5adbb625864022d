// SPDX-License-Identifier: Apache-2.0
// The devices of a session, as it sees them. A plain value: any thread may hold one.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_VIRTUAL_DEVICE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_VIRTUAL_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace fairway {

// A device as a session sees it. Ids are dense from 0; `slice_index` numbers the islands in the
// same way.
struct VirtualDevice {
  int32_t id = 0;
  int32_t slice_index = 0;
  int32_t local_ordinal = 0;  // within its executor
  std::string island;
  std::string worker;
  std::string runtime;  // "pjrt", "host", ...: the kind of programs that it runs
  std::string platform_name;
  std::string platform_version;
  std::string device_kind;
  std::vector<std::string> memory_kinds;  // the first is the default
  int64_t memory_bytes = 0;               // the device memory that admission manages
  DeviceId device;                        // never shown to clients
  IslandId island_id;
  ExecutorId executor;

  friend bool operator==(const VirtualDevice&, const VirtualDevice&) = default;
};

// The island of the devices with these ids. INVALID_ARGUMENT: they are of several.
absl::StatusOr<IslandId> IslandOf(const std::vector<VirtualDevice>& all,
                                  const std::vector<int32_t>& devices);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_VIRTUAL_DEVICE_H_
