// SPDX-License-Identifier: Apache-2.0
// The gangs of an executor that wait for their turn, by device.
#ifndef FAIRWAY_WORKER_EXECUTOR_DEVICE_LINES_H_
#define FAIRWAY_WORKER_EXECUTOR_DEVICE_LINES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace fairway {

// The lines that a gang waits in: one for each of its devices here, and one for all gangs that
// other executors run, too. The exchanges of an executor take those in one order
// (gang_exchanges.h).
struct GangPlace {
  const std::vector<int32_t>& devices;  // local ordinals
  bool shared = false;
};

// Rule G1: a gang has its turn when it is the first in all its lines. Gangs come in the order of
// their launch ids, so the lowest of those that wait has its turn, and no two can wait for each
// other. Gangs without a common line do not wait for each other at all.
//
// Owned by ExecutorCore. Not thread-safe.
class DeviceLines {
 public:
  // Puts the gang at the end of its lines.
  void Add(NodeId gang, const GangPlace& place);
  // Takes it out of its lines, wherever it is in them. Returns the gangs that are first there now,
  // each once unless others are between.
  std::vector<NodeId> Remove(NodeId gang, const GangPlace& place);
  bool HasTurn(NodeId gang, const GangPlace& place);

  // Count the gangs at work in each line. End returns the first gangs of these lines, as above.
  void Begin(const GangPlace& place);
  std::vector<NodeId> End(const GangPlace& place);
  // Returns whether fewer than `most` gangs are at work in each of these lines.
  bool HaveRoom(const GangPlace& place, int most);

  void Clear() { *this = DeviceLines(); }

 private:
  struct Line {
    std::vector<NodeId> gangs;  // few: the controller launches few ahead on a device
    int at_work = 0;
    void AddFirst(std::vector<NodeId>& firsts) const {
      if (!gangs.empty() && (firsts.empty() || firsts.back() != gangs[0]))
        firsts.push_back(gangs[0]);
    }
  };
  // Calls `with` with each line of the gang, and makes those that are missing.
  template <typename With>
  void ForEach(const GangPlace& place, With with) {
    for (const int32_t device : place.devices) with(At(device));
    if (place.shared) with(shared_);
  }
  Line& At(int32_t device) {
    const auto index = static_cast<size_t>(device);
    if (index >= lines_.size()) lines_.resize(index + 1);
    return lines_[index];
  }

  std::vector<Line> lines_;  // by device
  Line shared_;              // of gangs that other executors run, too
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_DEVICE_LINES_H_
