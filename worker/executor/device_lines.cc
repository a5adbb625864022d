// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/device_lines.h"

#include "base/planted.h"

namespace fairway {

void DeviceLines::Add(NodeId gang, const GangPlace& place) {
  ForEach(place, [&](int32_t line) { lines_[line].gangs.push_back(gang); });
}

void DeviceLines::Remove(NodeId gang, const GangPlace& place) {
  ForEach(place, [&](int32_t line) { std::erase(lines_[line].gangs, gang); });
}

bool DeviceLines::HasTurn(NodeId gang, const GangPlace& place) const {
  bool first = true, anywhere = false;
  ForEach(place, [&](int32_t line) {
    const auto it = lines_.find(line);
    const bool here =
        it != lines_.end() && !it->second.gangs.empty() && it->second.gangs[0] == gang;
    first = first && here;
    anywhere = anywhere || here;
  });
  return Planted(Bug::kFirstOnOneDevice) ? anywhere : first;
}

std::vector<NodeId> DeviceLines::Firsts(const GangPlace& place) const {
  std::vector<NodeId> firsts;
  ForEach(place, [&](int32_t line) {
    const auto it = lines_.find(line);
    if (it == lines_.end() || it->second.gangs.empty()) return;
    const NodeId first = it->second.gangs[0];
    if (firsts.empty() || firsts.back() != first) firsts.push_back(first);
  });
  return firsts;
}

void DeviceLines::Begin(const GangPlace& place) {
  ForEach(place, [&](int32_t line) { ++lines_[line].at_work; });
}

void DeviceLines::End(const GangPlace& place) {
  ForEach(place, [&](int32_t line) { --lines_[line].at_work; });
}

bool DeviceLines::HaveRoom(const GangPlace& place, int most) const {
  bool room = true;
  ForEach(place, [&](int32_t line) {
    const auto it = lines_.find(line);
    room = room && (it == lines_.end() || it->second.at_work < most);
  });
  return room;
}

}  // namespace fairway
