// SPDX-License-Identifier: Apache-2.0
#include "scheduler/transfer_waits.h"

namespace fairway {

bool TransferWaits::Begin(NodeId launch, SessionId session, DeviceId device) {
  Known& known = known_.try_emplace(launch, Known{session, device}).first->second;
  if (known.counts) return true;
  Line& line = lines_[device];
  if (!HasRoom(line, session)) {
    line.waiting.emplace(session, launch);
    return false;
  }
  known.counts = true;
  line.waiting.erase({session, launch});
  ++line.counted;
  ++line.by_session[session];
  return true;
}

void TransferWaits::End(NodeId launch) {
  const auto it = known_.find(launch);
  if (it == known_.end()) return;
  const Known known = it->second;
  known_.erase(it);
  const auto line = lines_.find(known.device);
  if (!known.counts) {
    line->second.waiting.erase({known.session, launch});
  } else {
    --line->second.counted;
    const auto count = line->second.by_session.find(known.session);
    if (--count->second == 0) line->second.by_session.erase(count);
    freed_.insert(known.device);
  }
  if (line->second.counted > 0 || !line->second.waiting.empty()) return;
  lines_.erase(line);
  freed_.erase(known.device);
}

NodeId TransferWaits::Next() {
  while (!freed_.empty()) {
    const DeviceId device = *freed_.begin();
    Line& line = lines_.at(device);
    if (const NodeId next = NextOf(line)) {
      const auto known = known_.find(next);
      line.served = known->second.session;
      line.waiting.erase({line.served, next});
      known_.erase(known);
      if (line.counted == 0 && line.waiting.empty()) {
        lines_.erase(device);
        freed_.erase(device);
      }
      return next;
    }
    freed_.erase(device);
  }
  return NodeId();
}

bool TransferWaits::HasRoom(const Line& line, SessionId session) const {
  const auto count = line.by_session.find(session);
  return line.counted < options_.per_device &&
         (count == line.by_session.end() || count->second < options_.per_session);
}

NodeId TransferWaits::NextOf(const Line& line) const {
  if (line.waiting.empty() || line.counted >= options_.per_device) return NodeId();
  // Few sessions have as many as they may, since there is room on the device.
  const auto after = [&](SessionId session) {
    const auto next = line.waiting.upper_bound({session, NodeId(UINT64_MAX)});
    return next == line.waiting.end() ? line.waiting.begin() : next;
  };
  const auto first = after(line.served);
  auto next = first;
  do {
    if (HasRoom(line, next->first)) return next->second;
    next = after(next->first);
  } while (next != first);
  return NodeId();
}

}  // namespace fairway
