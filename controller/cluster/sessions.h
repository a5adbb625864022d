// SPDX-License-Identifier: Apache-2.0
// The sessions of the core: who may ask for arrays and computations, and on which devices.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_SESSIONS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/shared_vector.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {

// A session is one client connection, and owns all that its client makes (rule T1). Front doors
// open one for each client and close it when the client is gone. A session's devices are fixed when
// it is opened.
//
// Loop-confined. Nothing blocks. For a session that has ended, or never was, a call returns
// NOT_FOUND or, without a status, an empty answer.
class Cluster::Sessions {
 public:
  // It sees the islands that are up and not cordoned. UNAVAILABLE: there are none.
  absl::StatusOr<SessionId> Open(const std::string& tenant);
  // The same, without opening one.
  absl::Status MayOpen() const;
  // Who gets the session's answers from now on, until it is closed; at first nobody does.
  void SetSink(SessionId session, SessionSink* sink);
  // Frees all that the session owned. Its launched work runs to its end.
  void Close(SessionId session);
  // Fixed for the session's life.
  const std::vector<VirtualDevice>& Devices(SessionId session) const;
  // The same list, for other threads.
  SharedVector<VirtualDevice> SharedDevices(SessionId session) const;

  // The island of these virtual devices. INVALID_ARGUMENT: unknown ids, none, or devices of several
  // islands; the text names them and says what to do.
  absl::StatusOr<IslandId> IslandOf(SessionId session, const std::vector<int32_t>& devices) const;

  // As it was given to Open; empty: there is no such session.
  std::string TenantOf(SessionId session) const;

  // The session of a node; nullopt: there is no such node.
  std::optional<SessionId> SessionOf(NodeId node) const;

  // The session's front door holds this many bytes of records for its client beside the core's:
  // they count with these. RESOURCE_EXHAUSTED: it should hold no more, because the session has more
  // than it leaves to others.
  absl::Status CountDoor(SessionId session, size_t bytes);

  // Whether an operation of the session is not over. Another operation would first complete it, in
  // one turn, however long. So front doors take the next request only when the session is not busy.
  bool Busy(SessionId session) const;

  // Queued and running work of a session, for the caps of rule B3.
  struct Backlog {
    size_t nodes = 0;
    size_t record_bytes = 0;  // of its unfinished work
    size_t record_room = 0;   // bytes left for the records of all sessions
    int64_t fetching = 0;     // bytes of fetches under way from executors; they end by themselves
    bool commands_wait = false;  // it has more bytes of commands that executors have not taken
                                 // than it leaves to others
    // Whether its oldest node that was not launched waits for memory, or for bytes from the client,
    // rather than for device time.
    bool waits_for_memory = false;
    bool waits_for_bytes = false;
  };
  Backlog BacklogOf(SessionId session) const;
  size_t RecordRoom() const;  // as Backlog::record_room

 private:
  friend class Cluster;
  explicit Sessions(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_SESSIONS_H_
