// SPDX-License-Identifier: Apache-2.0
// Looks results up before the client asks for their bytes, so that a fetch takes one round trip.
#ifndef FAIRWAY_CLIENT_CLI_FETCHES_AHEAD_H_
#define FAIRWAY_CLIENT_CLI_FETCHES_AHEAD_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

namespace fairway {

inline constexpr char kSessionMethod[] = "/xla.ifrt.proxy.GrpcIfrtService/IfrtSession";
inline constexpr char kLookupMethod[] = "/xla.ifrt.proxy.GrpcIfrtService/HostBufferLookup";
inline constexpr char kDeleteMethod[] = "/xla.ifrt.proxy.GrpcIfrtService/HostBufferDelete";
// Asks the controller to wait for the request that makes the buffer (proto/VERSION.md).
inline constexpr char kEarlyKey[] = "fairway-early";

using CallMetadata = std::vector<std::pair<std::string, std::string>>;

// The calls at the controller that the gateway has begun by itself. Its end cancels them and waits
// until they are over: the last user of a channel ends gRPC's threads, so it must not be one of
// these threads. Thread-safe.
class OpenCalls {
 public:
  OpenCalls() = default;
  ~OpenCalls();

 private:
  friend class OpenCall;
  std::mutex mu_;
  std::condition_variable none_;
  std::set<grpc::ClientContext*> open_;  // each until it is destroyed
};

// One of them: it is open until this is destroyed. Destroy it in OnDone or later.
class OpenCall {
 public:
  OpenCall(OpenCalls& calls, const CallMetadata& metadata);
  ~OpenCall();
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;
  grpc::ClientContext& context() { return *context_; }

 private:
  OpenCalls& calls_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
};

// One call of HostBufferLookup at the controller. At most kAhead of its messages are held until
// somebody wants them. Thread-safe. It lives until it has ended, whoever holds it.
class BufferLookup final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public std::enable_shared_from_this<BufferLookup> {
 public:
  // The next message, or the end.
  using Wanted = std::function<void(std::optional<grpc::ByteBuffer> message, grpc::Status end)>;

  // `early`: the request that makes the buffer may still be on its way. `calls` must live longer.
  static std::shared_ptr<BufferLookup> Start(grpc::GenericStub& controller, OpenCalls& calls,
                                             const CallMetadata& metadata, grpc::ByteBuffer request,
                                             bool early);
  BufferLookup(OpenCalls& calls, const CallMetadata& metadata) : call_(calls, metadata) {}
  // Calls `wanted` once: now, or in a thread of gRPC. One at a time.
  void Next(Wanted wanted);
  void Cancel();

 private:
  static constexpr size_t kAhead = 2;  // a message has 1 MiB at most

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // Reads on if there is room or somebody waits. Expects `mu_`.
  void ReadOn();

  OpenCall call_;
  grpc::ByteBuffer request_, coming_;
  std::shared_ptr<BufferLookup> self_;  // until it has ended

  mutable std::mutex mu_;
  std::deque<grpc::ByteBuffer> messages_;
  Wanted wanted_;         // set: `messages_` is empty
  bool reading_ = false;  // a read is under way
  bool drained_ = false;  // the last read told that there is nothing more
  bool cancelled_ = false;
  std::optional<grpc::Status> end_;
};

// The fetches of the sessions that a gateway passes on. jaxlib fetches by a request on its
// session's stream, then a call that looks the bytes up, then one that deletes them, each begun
// when the one before was answered. Here the look-up is sent right behind the request, and the
// deletion is answered at once, so that only the first of the three has to wait for the controller.
// Thread-safe.
//
// A look-up may overtake its request on the controller, which then waits for that. An older
// controller, or one for which too many wait, says that there is no such buffer; then the client's
// look-up is sent, too.
class FetchesAhead {
 public:
  FetchesAhead(grpc::GenericStub* controller, OpenCalls* calls)
      : controller_(controller), calls_(calls) {}

  // Looks `handle` up. `metadata` is that of the session's stream.
  void Begin(uint64_t session, uint64_t handle, const CallMetadata& metadata);
  // The look-up that was begun for this handle, if there is one; it is the caller's then.
  std::shared_ptr<BufferLookup> Take(uint64_t session, uint64_t handle);
  // The client deletes the buffer. Whether its look-up was taken; it is forgotten.
  bool Delete(uint64_t session, uint64_t handle);
  void EndSession(uint64_t session);

 private:
  // Look-ups of a session that nobody has taken. The oldest, which its client has dropped, is
  // given up for another one.
  static constexpr size_t kMost = 64;
  struct Fetches {
    std::map<uint64_t, std::shared_ptr<BufferLookup>> begun;  // by handle: clients count upwards
    std::set<uint64_t> taken;
  };

  grpc::GenericStub* const controller_;
  OpenCalls* const calls_;
  std::mutex mu_;
  std::map<uint64_t, Fetches> sessions_;
};

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_FETCHES_AHEAD_H_
