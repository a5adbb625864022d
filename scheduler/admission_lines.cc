// SPDX-License-Identifier: Apache-2.0
// Admission: the lines in which nodes wait.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "scheduler/admission.h"

namespace fairway {
namespace {

// `a` and `b` ascend.
bool Overlap(const std::vector<DeviceId>& a, const std::vector<DeviceId>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) return true;
    a[i] < b[j] ? ++i : ++j;
  }
  return false;
}

}  // namespace

bool Admission::Leads(const Island& island, NodeId node, const Waiting& waiting) const {
  if (Planted(Bug::kAdmitOutOfOrder)) return true;
  const auto found = island.by_session.find(waiting.session);
  if (found == island.by_session.end()) return true;
  const Lines& of = found->second;
  const auto line = of.lines.find(waiting.set);
  if (line != of.lines.end() && *line->second.begin() < node) return false;
  const std::vector<DeviceId>& devices = sets_[waiting.set].key->first;
  if (of.indexed) {
    return std::all_of(devices.begin(), devices.end(), [&](DeviceId device) {
      steps_ += kMapSteps;
      const auto firsts = of.firsts.find(device);
      return firsts == of.firsts.end() || *firsts->second.begin() >= node;
    });
  }
  if (line != of.lines.end()) return true;
  const auto& [set, nodes] = *of.lines.begin();  // there is no other
  steps_ += devices.size();
  return *nodes.begin() >= node || !Overlap(devices, sets_[set].key->first);
}

void Admission::SetFirst(Island& island, const Waiting& waiting, NodeId was, NodeId is) {
  if (was == is) return;
  if (was) island.firsts.erase({was, waiting.session});
  if (!is) return;
  island.firsts.insert({is, waiting.session});
  island.untold.insert(waiting.session);
}

void Admission::MoveHead(Lines& of, SetId set, NodeId was, NodeId is) {
  if (!of.indexed) return;
  const std::vector<DeviceId>& devices = sets_[set].key->first;
  steps_ += kMapSteps * devices.size();
  for (const DeviceId device : devices) {
    const auto firsts = of.firsts.try_emplace(device).first;
    if (was) firsts->second.erase(was);
    if (is) firsts->second.insert(is);
    if (firsts->second.empty()) of.firsts.erase(firsts);
  }
}

void Admission::Index(Lines& of) {
  if (std::exchange(of.indexed, true)) return;
  for (const auto& [set, line] : of.lines) {
    if (!line.empty()) MoveHead(of, set, NodeId(), *line.begin());
  }
}

void Admission::JoinLines(Island& island, NodeId node, Waiting& waiting) {
  if (std::exchange(waiting.in_lines, true)) return;
  steps_ += kMapSteps;
  Lines& of = island.by_session[waiting.session];
  std::set<NodeId>& line = of.lines[waiting.set];
  if (of.lines.size() > 1) Index(of);
  const NodeId head = line.empty() ? NodeId() : *line.begin();
  if (!head || node < head) {
    Set& set = sets_[waiting.set];
    if (head) {
      set.firsts.erase({island.waiting.at(head).least, waiting.session});
      set.heads.erase(head);
    }
    set.firsts.insert({waiting.least, waiting.session});
    set.heads.insert(node);
    MoveHead(of, waiting.set, head, node);
  }
  line.insert(node);
  const NodeId was = of.all.empty() ? NodeId() : *of.all.begin();
  of.all.insert(node);
  SetFirst(island, waiting, was, *of.all.begin());
}

void Admission::LeaveLines(Island& island, NodeId node, const Waiting& waiting) {
  const SessionId session = waiting.session;
  const auto found = island.by_session.find(session);
  Lines& of = found->second;
  const auto line = of.lines.find(waiting.set);
  const bool led = *line->second.begin() == node;
  line->second.erase(node);
  const NodeId next = line->second.empty() ? NodeId() : *line->second.begin();
  if (next) {
    island.candidates[session].insert(next);
  } else {
    of.lines.erase(line);
  }
  if (led) {
    Set& set = sets_[waiting.set];
    set.firsts.erase({waiting.least, session});
    set.heads.erase(node);
    if (next) {
      set.firsts.insert({island.waiting.at(next).least, session});
      set.heads.insert(next);
    }
    MoveHead(of, waiting.set, node, next);
  }
  if (of.indexed) {
    // Whoever leads now is first on a device where the node was.
    NodeId last;
    for (const DeviceId device : sets_[waiting.set].key->first) {
      steps_ += kMapSteps;
      const auto firsts = of.firsts.find(device);
      if (firsts == of.firsts.end() || *firsts->second.begin() == last) continue;
      last = *firsts->second.begin();
      island.candidates[session].insert(last);
    }
  }
  const NodeId was = *of.all.begin();
  of.all.erase(node);
  SetFirst(island, waiting, was, of.all.empty() ? NodeId() : *of.all.begin());
  island.held.erase(node);
  if (const auto told = island.told.find(session);
      told != island.told.end() && told->second == node)
    island.told.erase(told);
  if (!of.all.empty()) {
    // Room is kept for the new first, which may be in none of these lines.
    island.candidates[session].insert(*of.all.begin());
    return;
  }
  island.untold.erase(session);
  island.by_session.erase(found);
}

}  // namespace fairway
