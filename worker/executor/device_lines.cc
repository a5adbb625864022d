// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/device_lines.h"

#include <algorithm>

#include "base/planted.h"

namespace fairway {

void DeviceLines::Add(NodeId gang, const GangPlace& place) {
  ForEach(place, [&](Line& line) { line.gangs.push_back(gang); });
}

std::vector<NodeId> DeviceLines::Remove(NodeId gang, const GangPlace& place) {
  std::vector<NodeId> firsts;
  ForEach(place, [&](Line& line) {
    const auto it = std::find(line.gangs.begin(), line.gangs.end(), gang);
    if (it != line.gangs.end()) line.gangs.erase(it);
    line.AddFirst(firsts);
  });
  return firsts;
}

bool DeviceLines::HasTurn(NodeId gang, const GangPlace& place) {
  bool first = true, anywhere = false;
  ForEach(place, [&](const Line& line) {
    const bool here = !line.gangs.empty() && line.gangs[0] == gang;
    first = first && here;
    anywhere = anywhere || here;
  });
  return Planted(Bug::kFirstOnOneDevice) ? anywhere : first;
}

void DeviceLines::Begin(const GangPlace& place) {
  ForEach(place, [](Line& line) { ++line.at_work; });
}

std::vector<NodeId> DeviceLines::End(const GangPlace& place) {
  std::vector<NodeId> firsts;
  ForEach(place, [&](Line& line) {
    --line.at_work;
    line.AddFirst(firsts);
  });
  return firsts;
}

bool DeviceLines::HaveRoom(const GangPlace& place, int most) {
  bool room = true;
  ForEach(place, [&](const Line& line) { room = room && line.at_work < most; });
  return room;
}

}  // namespace fairway
