// SPDX-License-Identifier: Apache-2.0
// What the records of sessions may hold of the controller's memory. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_

#include <cstddef>
#include <string>

#include "base/status.h"

namespace fairway {

struct Session;

// One count for all sessions (docs/design/0059-shares.md): each may hold as much as is left to
// others. The sessions' own counts (RecordCount) add to it and take from it.
//
// Invariant: record_bytes is the sum of what the sessions' counts say, of those that are closing
// too.
struct Ledger {
  explicit Ledger(size_t memory) : record_memory(memory) {}

  const size_t record_memory;  // ClusterOptions::record_memory
  size_t record_bytes = 0;     // of all sessions' records

  // Bytes that are left.
  size_t Room() const;
  // RESOURCE_EXHAUSTED: there is no room for the records of so many more arrays of this session.
  absl::Status CheckRoom(const Session& session, size_t more) const;
  // The same of a program that takes so many bytes more.
  absl::Status CheckProgramRoom(const Session& session, const std::string& name,
                                size_t bytes) const;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_
