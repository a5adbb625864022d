// SPDX-License-Identifier: Apache-2.0
// The front door of fairway.v1.Client: the sessions of all native clients over one cluster. It
// knows no gRPC.
#ifndef FAIRWAY_CONTROLLER_NATIVE_DOOR_H_
#define FAIRWAY_CONTROLLER_NATIVE_DOOR_H_

#include <map>
#include <memory>
#include <string>

#include "controller/cluster/cluster.h"
#include "controller/compile/compile_service.h"
#include "controller/events/event_ring.h"
#include "controller/native/session.h"

namespace fairway {

// Loop-confined. The cluster and the compile service must outlive it.
class NativeDoor {
 public:
  NativeDoor(Cluster* cluster, CompileService* compiler, NativeSessionOptions options = {});
  ~NativeDoor();
  NativeDoor(const NativeDoor&) = delete;
  NativeDoor& operator=(const NativeDoor&) = delete;

  // UNAVAILABLE: no island is up.
  absl::StatusOr<NativeSession*> Open(const std::string& tenant, NativeShell* shell);
  // Frees all that the session owned. Unknown ids are ignored.
  void Close(SessionId id);

  // Hears of sessions that are opened and end; before the first one.
  void set_note(NoteEvent note) { note_ = std::move(note); }

  size_t num_sessions() const { return sessions_.size(); }

 private:
  void Note(SessionId session, std::string reason, std::string text) const;

  Cluster* const cluster_;
  CompileService* const compiler_;
  const NativeSessionOptions options_;
  std::map<SessionId, std::unique_ptr<NativeSession>> sessions_;
  NoteEvent note_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_DOOR_H_
