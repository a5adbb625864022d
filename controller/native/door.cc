// SPDX-License-Identifier: Apache-2.0
#include "controller/native/door.h"

#include <utility>

#include "controller/cluster/sessions.h"

namespace fairway {

NativeDoor::NativeDoor(Cluster* cluster, CompileService* compiler, NativeSessionOptions options)
    : cluster_(cluster), compiler_(compiler), options_(std::move(options)) {}

NativeDoor::~NativeDoor() = default;

absl::StatusOr<NativeSession*> NativeDoor::Open(const std::string& tenant, NativeShell* shell) {
  FAIRWAY_ASSIGN_OR_RETURN(const SessionId id, cluster_->sessions().Open(tenant));
  auto& session = sessions_[id];
  session = std::make_unique<NativeSession>(id, cluster_, compiler_, shell, options_);
  Note(id, "SessionOpened", "it was opened by a native client");
  return session.get();
}

void NativeDoor::Close(SessionId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  Note(id, "SessionEnded", "it has ended");
  it->second->Closes();
  sessions_.erase(it);
  cluster_->sessions().Close(id);
}

void NativeDoor::Note(SessionId session, std::string reason, std::string text) const {
  if (!note_) return;
  note_(SessionEvent(session.value, cluster_->sessions().TenantOf(session), std::move(reason),
                     std::move(text)));
}

}  // namespace fairway
