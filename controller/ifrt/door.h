// SPDX-License-Identifier: Apache-2.0
// The IFRT front door: the sessions of all JAX clients over one cluster. It knows no gRPC.
#ifndef FAIRWAY_CONTROLLER_IFRT_DOOR_H_
#define FAIRWAY_CONTROLLER_IFRT_DOOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "controller/callbacks/router.h"
#include "controller/cluster/cluster.h"
#include "controller/compile/compile_service.h"
#include "controller/events/event_ring.h"
#include "controller/ifrt/session.h"

namespace fairway {

// Loop-confined. The cluster and the compile service must outlive it.
class IfrtDoor {
 public:
  IfrtDoor(Cluster* cluster, CompileService* compiler, IfrtSessionOptions options = {});
  ~IfrtDoor();
  IfrtDoor(const IfrtDoor&) = delete;
  IfrtDoor& operator=(const IfrtDoor&) = delete;

  // The router is told of sessions and of the channels that serve their callbacks; or nullptr.
  void set_callbacks(CallbackRouter* callbacks) { callbacks_ = callbacks; }

  // `id` is random and made by the shell. `channel` is empty if the session has
  // none. UNAVAILABLE:
  // no island is up. ALREADY_EXISTS: the id is taken.
  absl::StatusOr<IfrtSession*> Open(uint64_t id, const std::string& tenant, IfrtShell* shell,
                                    const CallbackChannel& channel = {});
  // UNAVAILABLE: Open would fail now, and why.
  absl::Status MayOpen() const;
  // Frees all that the session owned. Unknown ids are ignored.
  void Close(uint64_t id);
  // nullptr: there is no such session.
  IfrtSession* Find(uint64_t id);

  // Hears of sessions that are opened and end; before the first one.
  void set_note(NoteEvent note) { note_ = std::move(note); }

  size_t num_sessions() const { return sessions_.size(); }

 private:
  void Note(SessionId session, std::string reason, std::string text) const;

  Cluster* const cluster_;
  CompileService* const compiler_;
  const IfrtSessionOptions options_;
  CallbackRouter* callbacks_ = nullptr;
  std::map<uint64_t, std::unique_ptr<IfrtSession>> sessions_;  // by the client's number
  NoteEvent note_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_DOOR_H_
