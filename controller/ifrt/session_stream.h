// SPDX-License-Identifier: Apache-2.0
// One IfrtSession stream: between gRPC's callbacks and the session in the loop. Private to this
// folder.
#ifndef FAIRWAY_CONTROLLER_IFRT_SESSION_STREAM_H_
#define FAIRWAY_CONTROLLER_IFRT_SESSION_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "controller/ifrt/door.h"
#include "controller/ifrt/session.h"

namespace fairway {

grpc::Status ToGrpc(const absl::Status& status);

// Thread-safe. Lives until gRPC's OnDone and as long as posted work refers to it.
//
// Requests gather in an inbox that the loop empties in batches; reading stops while the inbox is
// full, while the client leaves too many answers unread, or while the session may not read.
class SessionStream
    : public grpc::ServerBidiReactor<xla::ifrt::proxy::IfrtRequest, xla::ifrt::proxy::IfrtResponse>,
      public IfrtShell,
      public std::enable_shared_from_this<SessionStream> {
 public:
  struct Context {
    EventLoop* loop = nullptr;
    IfrtDoor* door = nullptr;
    std::shared_ptr<BlockingPool> pool;
    std::function<void(uint64_t id)> on_end;  // on any thread, once
  };

  SessionStream(uint64_t id, std::string tenant, Context context)
      : id_(id), tenant_(std::move(tenant)), context_(std::move(context)) {}

  // Opens the session and reads. Keeps itself alive until OnDone.
  void Start();
  // Instead of Start: ends it at once.
  void Refuse(grpc::Status status);
  // Everything that waits or still comes is answered with `status`.
  void Fail(absl::Status status);
  // Ends the stream with `status`, as soon as no write is at work. Later calls do nothing.
  void End(grpc::Status status);

  // IfrtShell; in the loop.
  void Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override;

  // gRPC's callbacks.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  using Request = xla::ifrt::proxy::IfrtRequest;

  void Drain();
  void CloseSession();
  // With mu_ held: starts the next read, if there is room and none is at work.
  void MaybeRead();

  static constexpr size_t kInboxRequests = 4096;
  static constexpr size_t kInboxBytes = size_t{64} << 20;
  static constexpr size_t kOutboxBytes = size_t{64} << 20;
  static constexpr size_t kAnswerBytes = 512;  // what a small answer holds in memory, about

  const uint64_t id_;
  const std::string tenant_;
  const Context context_;
  std::shared_ptr<SessionStream> self_;  // until OnDone
  std::unique_ptr<Request> reading_;     // being filled by gRPC

  // Guards what follows, and every StartRead, StartWrite and Finish: none may come after Finish.
  std::mutex mu_;
  std::vector<std::unique_ptr<Request>> inbox_;
  size_t inbox_bytes_ = 0;
  bool drain_posted_ = false;
  bool read_at_work_ = false;
  bool paused_ = true;  // until the session is open, and while it may not read
  std::deque<std::unique_ptr<xla::ifrt::proxy::IfrtResponse>>
      outbox_;  // the first is being written
  size_t outbox_bytes_ = 0;
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status end_status_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_SESSION_STREAM_H_
