// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/door.h"

#include <utility>

#include "controller/cluster/sessions.h"

namespace fairway {

IfrtDoor::IfrtDoor(Cluster* cluster, CompileService* compiler, IfrtSessionOptions options)
    : cluster_(cluster), compiler_(compiler), options_(options) {}

IfrtDoor::~IfrtDoor() = default;

absl::StatusOr<IfrtSession*> IfrtDoor::Open(uint64_t id, const std::string& tenant,
                                            IfrtShell* shell, const CallbackChannel& channel) {
  if (sessions_.contains(id))
    return Error(absl::StatusCode::kAlreadyExists, "session number {} is taken", id);
  FAIRWAY_ASSIGN_OR_RETURN(const SessionId session, cluster_->sessions().Open(tenant));
  auto made = std::make_unique<IfrtSession>(id, session, cluster_, compiler_, shell, options_);
  IfrtSession* raw = made.get();
  sessions_.emplace(id, std::move(made));
  Note(session, "SessionOpened", "it was opened by a JAX client");
  if (callbacks_ != nullptr && !channel.bytes.empty()) callbacks_->SessionOpened(session, channel);
  return raw;
}

absl::Status IfrtDoor::MayOpen() const { return cluster_->sessions().MayOpen(); }

void IfrtDoor::Close(uint64_t id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  const SessionId session = it->second->session();
  Note(session, "SessionEnded", "it has ended");
  it->second->Closes();
  sessions_.erase(it);
  cluster_->sessions().Close(session);
  if (callbacks_ != nullptr) callbacks_->SessionClosed(session);
}

IfrtSession* IfrtDoor::Find(uint64_t id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

void IfrtDoor::Note(SessionId session, std::string reason, std::string text) const {
  if (!note_) return;
  note_(SessionEvent(session.value, cluster_->sessions().TenantOf(session), std::move(reason),
                     std::move(text)));
}

}  // namespace fairway
