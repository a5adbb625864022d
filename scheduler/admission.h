// SPDX-License-Identifier: Apache-2.0
// Device memory as the controller accounts for it (rule B2).
//
// A node reserves all it needs on its island at once, in submission order per island: one that does
// not fit keeps those behind it waiting, so that a large one is not starved. Because all nodes
// before the oldest waiting one hold their memory already and depend only on nodes before them,
// they end; so waiting is never for ever (or Stuck says so).
#ifndef FAIRWAY_SCHEDULER_ADMISSION_H_
#define FAIRWAY_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace fairway {

struct MemoryNeed {
  DeviceId device;
  int64_t bytes = 0;
};

// Not thread-safe. Bytes per device; limit 0: as much as kNoLimit.
class Admission {
 public:
  void SetDevice(DeviceId device, int64_t limit);

  // Puts `node` into its island's queue, at its place in submission order. At most one need per
  // device.
  void Enqueue(NodeId node, IslandId island, std::vector<MemoryNeed> needs);
  // Takes it out of its queue. Returns whether it was waiting.
  bool Remove(NodeId node, IslandId island);

  // Gives `bytes` back.
  void Release(DeviceId device, int64_t bytes);
  // The device came back empty.
  void Reset(DeviceId device);

  static constexpr int64_t kNoLimit = int64_t{1} << 60;

  // The nodes of the island that fit now, in order; their needs are reserved.
  std::vector<NodeId> Admit(IslandId island);

  struct Shortage {
    NodeId node;
    DeviceId device;
    int64_t need = 0;
    int64_t used = 0;
    int64_t limit = 0;
    bool hopeless = false;  // more than the device has altogether
  };
  // The island's first waiting node and where it does not fit; nothing when none waits.
  std::optional<Shortage> Head(IslandId island) const;

  // All that wait, in order.
  std::vector<NodeId> Queue(IslandId island) const;
  size_t waiting(IslandId island) const;
  int64_t used(DeviceId device) const;
  int64_t limit(DeviceId device) const;
  // What is not in use of its limit.
  int64_t room(DeviceId device) const;

 private:
  struct Device {
    int64_t used = 0;
    int64_t limit = 0;
  };
  // The first need that does not fit.
  std::optional<Shortage> FirstShortage(NodeId node, const std::vector<MemoryNeed>& needs) const;

  // By number, which is dense; a device that nobody has set has no limit.
  Device& At(DeviceId device);
  Device Of(DeviceId device) const;
  std::vector<Device> devices_;
  std::map<IslandId, std::map<NodeId, std::vector<MemoryNeed>>> queues_;
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_ADMISSION_H_
