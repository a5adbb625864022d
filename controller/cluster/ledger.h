// SPDX-License-Identifier: Apache-2.0
// How much of the controller's memory the records of sessions may hold. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"

namespace fairway {

struct Session;

// One count for all sessions (docs/design/0059-shares.md): each session may hold as much as it
// leaves to others. The sessions' own counts (RecordCount) add to it and take from it.
//
// Invariant: record_bytes is the sum of the counts of all sessions, including sessions that are
// closing.
struct Ledger {
  // `whole`: records are a part of it; nullptr: they are all there is.
  explicit Ledger(size_t memory, std::shared_ptr<MemoryBudget> whole = nullptr)
      : record_memory(memory), whole_(std::move(whole)) {}
  ~Ledger() {
    if (whole_ != nullptr) whole_->Release(static_cast<int64_t>(published_));
  }
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // What the watches of a session may hold even when others hold all the room.
  static constexpr size_t kLeastOfWatches = size_t{256} << 10;

  const size_t record_memory;  // ClusterOptions::record_memory
  size_t record_bytes = 0;     // of all sessions' records

  // The bytes that are left, also of the whole.
  size_t Room() const;
  // Counts the records in the whole, once an operation is over.
  void Publish() {
    if (whole_ == nullptr || published_ == record_bytes) return;
    whole_->Take(static_cast<int64_t>(record_bytes) - static_cast<int64_t>(published_));
    published_ = record_bytes;
  }
  // RESOURCE_EXHAUSTED: there is no room for the records of `more` further arrays of this session.
  absl::Status CheckRoom(const Session& session, size_t more) const;
  // RESOURCE_EXHAUSTED: a request has made `made` bytes of records that are in no table yet, and
  // with them the session has more than is left.
  absl::Status CheckMade(const Session& session, size_t made) const;
  // RESOURCE_EXHAUSTED: the session's watches hold more than is left.
  absl::Status CheckWatchRoom(const Session& session) const;
  // RESOURCE_EXHAUSTED: the session has more than is left, so its front door should hold no more.
  absl::Status CheckDoorRoom(const Session& session) const;
  // RESOURCE_EXHAUSTED: there is no room for a program that takes `bytes` more.
  absl::Status CheckProgramRoom(const Session& session, const std::string& name,
                                size_t bytes) const;

 private:
  const std::shared_ptr<MemoryBudget> whole_;
  size_t published_ = 0;  // what whole_ counts of record_bytes
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LEDGER_H_
