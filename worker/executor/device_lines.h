// SPDX-License-Identifier: Apache-2.0
// The gangs of an executor that wait for their turn, by device.
#ifndef FAIRWAY_WORKER_EXECUTOR_DEVICE_LINES_H_
#define FAIRWAY_WORKER_EXECUTOR_DEVICE_LINES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
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
  // Takes it out of its lines, wherever it is in them.
  void Remove(NodeId gang, const GangPlace& place);
  bool HasTurn(NodeId gang, const GangPlace& place) const;
  // Returns the first gangs of these lines, each once unless others are between.
  std::vector<NodeId> Firsts(const GangPlace& place) const;

  // Count the gangs at work in each line.
  void Begin(const GangPlace& place);
  void End(const GangPlace& place);
  // Returns whether fewer than `most` gangs are at work in each of these lines.
  bool HaveRoom(const GangPlace& place, int most) const;

  void Clear() { lines_.clear(); }

 private:
  static constexpr int32_t kShared = -1;  // the line of gangs that other executors run, too
  struct Line {
    std::deque<NodeId> gangs;
    int at_work = 0;
  };
  // Calls `with` with the number of each line of the gang.
  template <typename With>
  static void ForEach(const GangPlace& place, With with) {
    for (const int32_t device : place.devices) with(device);
    if (place.shared) with(kShared);
  }

  std::map<int32_t, Line> lines_;  // by device
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_DEVICE_LINES_H_
