// SPDX-License-Identifier: Apache-2.0
// Watches: the client's questions whether arrays and nodes have ended.
#include "controller/cluster/watches.h"

#include <utility>

#include "controller/cluster/state.h"

namespace fairway {

uint64_t Cluster::Watches::Add(Session& session, uint64_t token) {
  const uint64_t id = next_++;
  PendingWatch& watch = session.watches[id];
  watch.token = token;
  watch.open = 1;
  session.watch_records.Add(watch.bytes);
  return id;
}

void Cluster::Watches::AddNodes(Session& session, NodeId first, uint64_t watch) {
  for (auto it = s.all_nodes.lower_bound(first); it != s.all_nodes.end(); ++it) {
    it->second->watch = watch;
    ++session.watches[watch].open;
  }
}

void Cluster::Watches::Ended(SessionId session_id, uint64_t id, size_t position,
                             const absl::Status& status, NodeId cause) {
  const auto session = s.sessions.find(session_id);
  if (session == s.sessions.end()) return;
  auto& watches = session->second.watches;
  const auto it = watches.find(id);
  if (it == watches.end()) return;
  PendingWatch& watch = it->second;
  if (!status.ok() && std::pair(position, cause) < std::pair(watch.failed_at, watch.failed_by)) {
    watch.failed_at = position;
    watch.failed_by = cause;
    watch.failure = status;
  }
  if (--watch.open > 0) return;
  const PendingWatch ended = std::move(watch);
  watches.erase(it);
  session->second.watch_records.Remove(ended.bytes);
  s.Answered(session_id, ended.token, ended.failure);
}

}  // namespace fairway
