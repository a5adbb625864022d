// SPDX-License-Identifier: Apache-2.0
// How gRPC's services ask the gate (identity/gate.h). Each method does so before anything else.
#ifndef FAIRWAY_CONTROLLER_ACCESS_CALL_ACCESS_H_
#define FAIRWAY_CONTROLLER_ACCESS_CALL_ACCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "async/event_loop.h"
#include "controller/rpc/rpc_call.h"
#include "controller/sessions/open_streams.h"
#include "identity/gate.h"
#include "transport/inflow.h"

namespace fairway {

// A call that goes on after its method has returned. It ends when its token counts no longer, and
// when its connection brings too much (transport/inflow.h). Thread-safe.
class HeldCall {
 public:
  virtual ~HeldCall() = default;
  // From now on it may be ended. `stream` is told the reason first, if there is one: its waiting
  // requests fail, it ends a second later, and the call is cancelled after two more, if the client
  // has not taken its end. Without a stream the call is cancelled at once.
  virtual void Watch(std::weak_ptr<OpenStream> stream = {}) = 0;
  // The call's handler has a message of the client of so many bytes.
  virtual void Took(size_t bytes) = 0;
  // The transport has no more of the call. Called by RpcCall::OnDone.
  virtual void Done() = 0;
};

// Thread-safe. Without a gate the cluster has no identity, and whoever reaches the port may do all.
class CallAccess {
 public:
  // Hears that a call was let in, by which connection it came, as gRPC names the peer, and by which
  // token. Returns what comes by that connection, or nullptr. An error: the call is refused, since
  // there is no room for its connection.
  using LetIn = std::function<absl::StatusOr<std::shared_ptr<Inflow>>(const std::string& peer,
                                                                      int64_t token)>;

  CallAccess() = default;
  // Both outlive all calls. `let_in` is thread-safe.
  CallAccess(EventLoop* loop, Gate* gate, LetIn let_in = {})
      : loop_(loop), gate_(gate), let_in_(std::move(let_in)) {}

  // Whether the caller may do what `rpc` asks for; `rpc` is as descriptors name it,
  // "fairway.v1.Admin.GetStatus". A method that works on a session asks as its owner, and then
  // looks whether the session is of OwnerOf.
  Verdict Judge(const grpc::ServerContextBase& context, std::string_view rpc) const;
  // Writes what came of an admin's verb into the audit log, if there is one.
  void Record(const Caller& caller, Verb verb, const std::string& object,
              const absl::Status& status) const;
  // Who owns what this call makes, or comes back to: the token's tenant, and the host.
  std::string OwnerOf(const Caller& caller, const grpc::ServerContextBase& context) const;

  // For what was judged, and then waited. UNAUTHENTICATED: the token counts no longer.
  absl::Status Check(const Caller& caller) const;

  // The end of a call that was refused. It comes later when wrong tokens came often.
  RpcCall* Refuse(const Verdict& refused) const;

  // The same call, once the caller may make it.
  std::shared_ptr<HeldCall> Hold(const Caller& caller, grpc::ServerContextBase* context) const;

 private:
  Verdict AskGate(const grpc::ServerContextBase& context, std::string_view rpc) const;

  EventLoop* loop_ = nullptr;
  Gate* gate_ = nullptr;
  LetIn let_in_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ACCESS_CALL_ACCESS_H_
