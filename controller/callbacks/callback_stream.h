// SPDX-License-Identifier: Apache-2.0
// One Serve stream, between a transport's callbacks and the router in the loop. It knows no gRPC,
// so that tests can play the transport.
#ifndef FAIRWAY_CONTROLLER_CALLBACKS_CALLBACK_STREAM_H_
#define FAIRWAY_CONTROLLER_CALLBACKS_CALLBACK_STREAM_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/callbacks/router.h"
#include "controller/sessions/stream.h"
#include "fairway/v1/callbacks.pb.h"

namespace fairway {

// Thread-safe. The transport derives from it.
class CallbackStream
    : public SessionStream<v1::CallbackClientMessage, std::unique_ptr<v1::CallbackClientMessage>,
                           v1::CallbackServerMessage> {
 public:
  using In = v1::CallbackClientMessage;
  using Out = v1::CallbackServerMessage;

  // `tenant`: the client's, as its token says; empty: nobody asked for one.
  CallbackStream(uint64_t id, CallbackRouter* router, Context context, std::string tenant = {})
      : SessionStream(std::move(context)), id_(id), router_(router), tenant_(std::move(tenant)) {}

  // Called in the loop. RESOURCE_EXHAUSTED: the client has left too many calls unread.
  absl::Status Call(uint64_t number, const CallbackCall& call, const CallbackCaller& caller);
  void Cancel(uint64_t number, const std::string& reason);
  // The calls whose results are still coming. Called in the loop.
  size_t num_returning() const { return returning_.size(); }

 private:
  struct Unsent {
    std::unique_ptr<Out> message;  // nullptr: `chunks` are sent instead
    uint64_t call = 0;             // the call whose bytes `chunks` are
    std::shared_ptr<const Blob> chunks;
    size_t next = 0;   // the offset in `chunks` of the next byte to send
    size_t bytes = 0;  // of the message
  };
  // A Return whose bytes are still coming in chunks.
  struct Returning {
    std::vector<CallbackArray> results;
    std::vector<std::shared_ptr<Blob>> filled;  // by result; nullptr: it came at once
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

  // Called in the loop.
  absl::Status Handle(const In& message);
  absl::Status OnReturn(const v1::CallbackReturn& message);
  absl::Status OnChunk(const v1::CallbackChunk& message);
  // Takes the bytes that came, and makes room for those that come in chunks. INVALID_ARGUMENT: the
  // results are not those that are wanted; then nothing is copied.
  static absl::StatusOr<Returning> Expect(const v1::CallbackReturn& message,
                                          const std::vector<CallbackArray>& wanted);
  absl::Status FinishIfAllCame(uint64_t call);
  // Tells the router the end of a call that waits, and forgets the call.
  absl::Status EndCall(uint64_t call, absl::Status status, std::vector<CallbackArray> results);
  // Forgets a call that has ended: what came for it, and what was still to be sent. Called once.
  void Forget(uint64_t call);
  void CloseWith(const absl::Status& status);
  void Queue(std::unique_ptr<Out> message);

  const uint64_t id_;
  CallbackRouter* const router_;
  const std::string tenant_;
  bool open_ = false;                          // in the loop: Open came
  bool closed_ = false;                        // in the loop
  std::deque<std::unique_ptr<In>> unhandled_;  // in the loop: left over when a turn was used up
  std::map<uint64_t, Returning> returning_;    // in the loop, by call
  std::deque<Unsent> outbox_;                  // guarded by SessionStream's lock
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CALLBACKS_CALLBACK_STREAM_H_
