// SPDX-License-Identifier: Apache-2.0
// How much of the controller's memory the records of sessions may hold. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_

#include <cstddef>
#include <string>

#include "base/status.h"

namespace fairway {

struct Session;

// One count for all sessions (docs/design/0059-shares.md): each session may hold as much as it
// leaves to others. The sessions' own counts (RecordCount) add to it and take from it.
//
// Invariant: record_bytes is the sum of the counts of all sessions, including sessions that are
// closing.
struct Ledger {
  explicit Ledger(size_t memory) : record_memory(memory) {}

  const size_t record_memory;  // ClusterOptions::record_memory
  size_t record_bytes = 0;     // of all sessions' records

  // The bytes that are left.
  size_t Room() const;
  // RESOURCE_EXHAUSTED: there is no room for the records of `more` further arrays of this session.
  absl::Status CheckRoom(const Session& session, size_t more) const;
  // RESOURCE_EXHAUSTED: there is no room for a program that takes `bytes` more.
  absl::Status CheckProgramRoom(const Session& session, const std::string& name,
                                size_t bytes) const;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_
