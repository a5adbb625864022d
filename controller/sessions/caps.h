// SPDX-License-Identifier: Apache-2.0
// How far one session may run ahead of its devices and of the compilers (rule B3).
#ifndef FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_

#include <algorithm>
#include <cstddef>
#include <memory>

#include "controller/cluster/cluster.h"
#include "controller/cluster/sessions.h"

namespace fairway {

// Programs of a session that were not answered yet. In the loop.
class PendingCompilations {
 public:
  // One of so many bytes; until the last copy of what is returned has gone.
  std::shared_ptr<void> Add(size_t bytes) {
    ++counts_->number;
    counts_->bytes += bytes;
    return {nullptr, [counts = counts_, bytes](void*) {
              --counts->number;
              counts->bytes -= bytes;
            }};
  }
  size_t number() const { return counts_->number; }
  size_t bytes() const { return counts_->bytes; }

 private:
  struct Counts {
    size_t number = 0, bytes = 0;
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

struct SessionCaps {
  // Of those that wait for memory or for the client's bytes so much more is read. Above it the
  // first one that waits for memory fails after a while (ClusterOptions::admission_grace_ms).
  static constexpr size_t kTimesWaiting = 4;

  // So many bytes of records a session may have when others hold all there is room for.
  static constexpr size_t kLeastBytes = size_t{256} << 10;

  // Above so many unfinished executions, or so many bytes of their records, reading stops.
  size_t max_queued_nodes = 100000;
  size_t max_queued_bytes = size_t{256} << 20;
  // And from so many programs on that are being compiled, or bytes of them.
  size_t max_compilations = 256;
  size_t max_compiled_bytes = size_t{1} << 30;

  // Reading also stops from so many bytes on that come from executors for fetches. Each becomes an
  // answer, which the controller holds until the client reads it.
  int64_t max_fetching = int64_t{256} << 20;

  // Not yet while the session waits for what may be among the next requests: what frees memory, or
  // bytes.
  bool MayRead(const Cluster::Sessions::Backlog& backlog,
               const PendingCompilations& compiling) const {
    if (compiling.number() >= max_compilations || compiling.bytes() >= max_compiled_bytes)
      return false;
    if (backlog.fetching >= max_fetching) return false;
    const size_t times = backlog.waits_for_memory || backlog.waits_for_bytes ? kTimesWaiting : 1;
    const size_t bytes = std::min(max_queued_bytes, std::max(backlog.record_room, kLeastBytes));
    return backlog.nodes <= times * max_queued_nodes && backlog.record_bytes <= times * bytes;
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_
