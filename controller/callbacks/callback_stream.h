// SPDX-License-Identifier: Apache-2.0
// One Serve stream: between a transport's callbacks and the router in the loop. It knows no gRPC,
// so that tests can play the transport.
#ifndef FAIRWAY_CONTROLLER_CALLBACKS_CALLBACK_STREAM_H_
#define FAIRWAY_CONTROLLER_CALLBACKS_CALLBACK_STREAM_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/callbacks/router.h"
#include "controller/sessions/stream.h"
#include "fairway/v1/callbacks.pb.h"

namespace fairway {

// Thread-safe. Who derives from it is the transport.
class CallbackStream
    : public SessionStream<v1::CallbackClientMessage, std::unique_ptr<v1::CallbackClientMessage>,
                           v1::CallbackServerMessage> {
 public:
  using In = v1::CallbackClientMessage;
  using Out = v1::CallbackServerMessage;

  CallbackStream(uint64_t id, CallbackRouter* router, Context context)
      : SessionStream(std::move(context)), id_(id), router_(router) {}

  // In the loop. RESOURCE_EXHAUSTED: the client has left too many calls unread.
  absl::Status Call(uint64_t number, const CallbackCall& call, const CallbackCaller& caller);
  void Cancel(uint64_t number, const std::string& reason);
  // Calls whose results are still coming; in the loop.
  size_t num_returning() const { return returning_.size(); }

 private:
  struct Unsent {
    std::unique_ptr<Out> message;  // or
    uint64_t call = 0;             // the call whose bytes these are, in chunks
    std::shared_ptr<const Blob> chunks;
    size_t next = 0;   // of those bytes
    size_t bytes = 0;  // of the message
  };
  // A Return whose bytes are still coming.
  struct Returning {
    std::vector<CallbackArray> results;
    std::vector<std::shared_ptr<Blob>> filled;  // by result; nullptr: it came with the Return
    size_t at = 0;                              // the result that the next byte is for
    size_t offset = 0;
  };

  // SessionStream
  Outgoing Next() override;
  void DropUnsent() override { outbox_.clear(); }
  absl::StatusOr<Decoded> Decode(std::unique_ptr<In> message) override;
  absl::Status OpenSession() override { return absl::OkStatus(); }
  Going HandleAll(std::vector<std::unique_ptr<In>> items) override;
  void FailSession(const absl::Status& status) override { CloseWith(status); }
  void CloseSession() override;

  // In the loop.
  absl::Status Handle(const In& message);
  absl::Status OnReturn(const v1::CallbackReturn& message);
  absl::Status OnChunk(const v1::CallbackChunk& message);
  // The bytes that came, and room for those that come in chunks. INVALID_ARGUMENT: others than are
  // wanted; nothing of them is copied.
  static absl::StatusOr<Returning> Expect(const v1::CallbackReturn& message,
                                          const std::vector<CallbackArray>& wanted);
  absl::Status FinishIfAllCame(uint64_t call);
  // Tells the router of a call that waits, and forgets it.
  absl::Status EndCall(uint64_t call, absl::Status status, std::vector<CallbackArray> results);
  // Of a call that is over, once: what came for it and what was to be sent of it.
  void Forget(uint64_t call);
  void CloseWith(const absl::Status& status);
  void Queue(std::unique_ptr<Out> message);

  const uint64_t id_;
  CallbackRouter* const router_;
  bool open_ = false;                          // in the loop: Open came
  bool closed_ = false;                        // in the loop
  std::deque<std::unique_ptr<In>> unhandled_;  // in the loop: others had to wait long enough
  std::map<uint64_t, Returning> returning_;    // in the loop, by call
  std::deque<Unsent> outbox_;                  // guarded by SessionStream's lock
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CALLBACKS_CALLBACK_STREAM_H_
