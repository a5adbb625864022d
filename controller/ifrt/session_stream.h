// SPDX-License-Identifier: Apache-2.0
// One IfrtSession stream, between the call's callbacks and the session in the loop. Private to this
// folder.
#ifndef FAIRWAY_CONTROLLER_IFRT_SESSION_STREAM_H_
#define FAIRWAY_CONTROLLER_IFRT_SESSION_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/ifrt/door.h"
#include "controller/ifrt/session.h"
#include "controller/rpc/rpc_call.h"
#include "controller/sessions/stream.h"

namespace fairway {

// Thread-safe.
class IfrtStream final : public RpcCall,
                         public SessionStream<xla::ifrt::proxy::IfrtRequest,
                                              std::unique_ptr<xla::ifrt::proxy::IfrtRequest>,
                                              xla::ifrt::proxy::IfrtResponse>,
                         public IfrtShell {
 public:
  // `channel` serves its callbacks; empty: there is none.
  IfrtStream(uint64_t id, std::string tenant, CallbackChannel channel, IfrtDoor* door,
             Context context)
      : SessionStream(std::move(context)),
        id_(id),
        tenant_(std::move(tenant)),
        channel_(std::move(channel)),
        door_(door) {}

  // IfrtShell; in the loop.
  void Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response, bool may_wait) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override {
    WorkThen(std::move(work), std::move(then));
  }
  void Discard(std::shared_ptr<void> garbage) override { GiveAway(std::move(garbage)); }

  // RpcCall
  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { TransportDone(); }

 private:
  using Request = xla::ifrt::proxy::IfrtRequest;
  using Response = xla::ifrt::proxy::IfrtResponse;

  // SessionStream
  void StartReading(Request* into) override { StartRead(into); }
  void StartWriting(const Response* message, bool more) override { StartWrite(*message, more); }
  void FinishStream(const absl::Status& status) override { Finish(status); }
  Outgoing Next() override;
  void DropUnsent() override { outbox_.clear(); }
  absl::StatusOr<Decoded> Decode(std::unique_ptr<Request> message) override;
  absl::Status OpenSession() override { return door_->Open(id_, tenant_, this, channel_).status(); }
  Going HandleAll(std::vector<std::unique_ptr<Request>> items) override;
  void FailSession(const absl::Status& status) override;
  void CloseSession() override { door_->Close(id_); }

  const uint64_t id_;
  const std::string tenant_;
  const CallbackChannel channel_;
  IfrtDoor* const door_;
  std::deque<std::unique_ptr<Request>> unhandled_;  // in the loop: waits while too much is unread
  std::deque<std::unique_ptr<Response>> outbox_;    // guarded by SessionStream's lock
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_SESSION_STREAM_H_
