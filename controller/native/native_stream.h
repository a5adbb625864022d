// SPDX-License-Identifier: Apache-2.0
// One session's stream, between the call's callbacks and the session in the loop. The call sees a
// message as bytes; it is parsed here, so that a message that does not parse can be told from the
// end of the client's side. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_NATIVE_NATIVE_STREAM_H_
#define FAIRWAY_CONTROLLER_NATIVE_NATIVE_STREAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "controller/native/door.h"
#include "controller/native/outbox.h"
#include "controller/native/uploads.h"
#include "controller/rpc/rpc_call.h"
#include "controller/sessions/stream.h"

namespace fairway {

// About the memory that a parsed message takes of which `came` bytes came. To ask protobuf takes
// longer than to parse the message, so a short message counts as much as it may take at most.
inline constexpr size_t kShortMessage = 4096, kMostOfByte = 96;
size_t MemoryOf(const v1::ClientMessage& message, size_t came);

// A parsed message of the client, and the uploads that it completed.
struct ClientBatch {
  std::unique_ptr<v1::ClientMessage> message;
  size_t bytes = 0;    // MemoryOf
  bool brief = false;  // destroying it takes little once its requests were handled
  std::vector<Uploaded> uploaded;
};

// Thread-safe. The session is open from Hello on.
class NativeStream final : public RpcCall,
                           public SessionStream<grpc::ByteBuffer, ClientBatch, grpc::ByteBuffer>,
                           public NativeShell {
 public:
  // `disk` writes uploads to files, on behalf of the stream. `tenant`: the client's, as its token
  // says; empty: what its Hello says.
  NativeStream(NativeDoor* door, Spool spool, std::shared_ptr<BlockingPool> disk, Context context,
               std::string tenant = {})
      : SessionStream(std::move(context)),
        door_(door),
        disk_(std::move(disk)),
        tenant_(std::move(tenant)),
        uploads_(std::move(spool)) {}

  // NativeShell; in the loop.
  void Send(v1::Answer answer) override;
  void SendSerialized(std::string message) override;
  void SendBytes(uint64_t id, int32_t index, BytesRef bytes) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override {
    WorkThen(std::move(work), std::move(then));
  }
  void Discard(std::shared_ptr<void> garbage) override { GiveAway(std::move(garbage)); }

  // RpcCall
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { TransportDone(); }

 private:
  // SessionStream
  void StartReading(grpc::ByteBuffer* into) override {
    coming_ = into;
    StartRead(into);
  }
  void StartWriting(const grpc::ByteBuffer* message, bool more) override {
    StartWrite(*message, more);
  }
  void FinishStream(const absl::Status& status) override { Finish(status); }
  Outgoing Next() override;
  void DropUnsent() override { outbox_.Clear(); }
  absl::StatusOr<Decoded> Decode(std::unique_ptr<grpc::ByteBuffer> message) override;
  absl::Status OpenSession() override { return absl::OkStatus(); }
  Going HandleAll(std::vector<ClientBatch> items) override;
  void FailSession(const absl::Status& status) override;
  void CloseSession() override;

  absl::Status Begin(const v1::Request& hello);
  // Drops the first of batches_. `handled`: all its requests were.
  void DropBatch(bool handled);

  NativeDoor* const door_;
  const std::string tenant_;
  const std::shared_ptr<BlockingPool> disk_;
  // Used by one thread at a time: that which has the message.
  Uploads uploads_;
  grpc::ByteBuffer* coming_ = nullptr;         // SessionStream's, while it is read
  std::unique_ptr<v1::ClientMessage> parsed_;  // the same; nullptr: it is none
  Outbox outbox_;                              // guarded by SessionStream's lock

  // In the loop.
  NativeSession* session_ = nullptr;
  bool closed_ = false;
  std::deque<ClientBatch> batches_;  // not handled yet, because the session may not go on
  int next_request_ = 0;             // index within the first batch
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_NATIVE_STREAM_H_
