// SPDX-License-Identifier: Apache-2.0
// A call of a client, as the controller's services see it. It has the names of gRPC's own reactors,
// whose calls would come by a queue and threads of gRPC (docs/design/0072-who-polls-for-rpcs.md).
#ifndef FAIRWAY_CONTROLLER_RPC_RPC_CALL_H_
#define FAIRWAY_CONTROLLER_RPC_RPC_CALL_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

namespace google::protobuf {
class MessageLite;
}
namespace grpc {
class ByteBuffer;
class ServerContextBase;
}  // namespace grpc

namespace fairway {

struct RpcTransport;  // gRPC's part of a call

// Thread-safe. Lives until OnDone at least. At most one read and one write are at work at a time.
// The callbacks come on the server's thread, and OnReadDone of a long message on one of its pool;
// they must not wait.
class RpcCall {
 public:
  RpcCall();
  RpcCall(const RpcCall&) = delete;
  RpcCall& operator=(const RpcCall&) = delete;
  virtual ~RpcCall();

  // The read is over. False: there is no message any more, or it was no valid one, or too long.
  virtual void OnReadDone(bool /*ok*/) {}
  // The write is over. False: the client has gone.
  virtual void OnWriteDone(bool /*ok*/) {}
  // The client has cancelled the call, or its connection has ended. Reads and writes end, too. The
  // call must still be finished.
  virtual void OnCancel() {}
  // The call is finished, and nothing is at work. Comes last, and may delete the call.
  virtual void OnDone() = 0;

  // Ends the call. Called once, while no write is at work; a read that is ends without a message,
  // and one that is started later does nothing.
  void Finish(const absl::Status& status);

 protected:
  static constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();

  // Reads the next message, or its bytes, into what must live until OnReadDone. One of more than
  // `most` bytes is dropped instead of parsed.
  void StartRead(google::protobuf::MessageLite* into, size_t most = kAnyLength);
  void StartRead(grpc::ByteBuffer* into);
  // The bytes of the message of the last OnReadDone; 0: there was none.
  size_t came() const { return came_; }
  // `more`: another write follows at once, and may go in one packet with it.
  void StartWrite(const google::protobuf::MessageLite& message, bool more = false);
  void StartWrite(const grpc::ByteBuffer& bytes, bool more = false);
  // A write and Finish, in one packet. OnWriteDone does not come.
  void StartWriteAndFinish(const google::protobuf::MessageLite& message,
                           const absl::Status& status);
  void StartWriteAndFinish(const grpc::ByteBuffer& bytes, const absl::Status& status);

 private:
  friend class RpcServer;
  struct Early;

  // Where a message goes: to one of them.
  struct Into {
    google::protobuf::MessageLite* message = nullptr;
    grpc::ByteBuffer* bytes = nullptr;
    size_t most = kAnyLength;
  };

  void Bind(std::unique_ptr<RpcTransport> transport);
  void Read(const Into& into);
  bool Take(grpc::ByteBuffer* bytes);
  void ReadEnded(bool ok);
  void WriteEnded(bool ok);
  void CancelledOrDone();
  // Something that was at work is over.
  void Ended();

  // They begin what at_work_ counts already. Called without mu_: gRPC sends within these calls, and
  // the server's thread needs the lock meanwhile.
  void BeginRead();
  void BeginWrite(const grpc::ByteBuffer& bytes, bool more);
  void BeginFinish(const grpc::ByteBuffer* last, const absl::Status& status);

  Into into_;        // of the read that is at work
  size_t came_ = 0;  // written before OnReadDone

  std::mutex mu_;  // guards the members below
  // From Bind until OnDone. Used without the lock while something is at work.
  std::unique_ptr<RpcTransport> transport_;
  std::unique_ptr<Early> early_;  // until Bind: a service makes a call first
  int at_work_ = 0;
  bool finished_ = false;
};

// The methods of a service, as descriptors name them: "fairway.v1.Admin.GetStatus". Each makes the
// call that serves a client's, on the server's thread; the context lives until OnDone.
using RpcMethod = std::function<RpcCall*(grpc::ServerContextBase* context)>;
using RpcMethods = std::map<std::string, RpcMethod, std::less<>>;

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_RPC_CALL_H_
