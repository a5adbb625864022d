// SPDX-License-Identifier: Apache-2.0
// A call of a client, as the controller's services see it. It has the names of gRPC's own reactors,
// whose calls would come by a queue and threads of gRPC (docs/design/0072-who-polls-for-rpcs.md).
#ifndef FAIRWAY_CONTROLLER_RPC_RPC_CALL_H_
#define FAIRWAY_CONTROLLER_RPC_RPC_CALL_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include "base/status.h"

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

  // The read is over. False: there is no message any more, or it was no valid one.
  virtual void OnReadDone(bool /*ok*/) {}
  // The write is over. False: the client has gone.
  virtual void OnWriteDone(bool /*ok*/) {}
  // The client has cancelled the call, or its connection has ended. Reads and writes end, too. The
  // call must still be finished.
  virtual void OnCancel() {}
  // The call is finished, and nothing is at work. Comes last, and may delete the call.
  virtual void OnDone() = 0;

  // Ends the call. Called once, while no write is at work; a read that is ends without a message.
  void Finish(const absl::Status& status);

 protected:
  void Read();
  // `more`: another write follows at once, and may go in one packet with it.
  void Write(const grpc::ByteBuffer& bytes, bool more = false);
  // Write and Finish, in one packet. OnWriteDone does not come.
  void WriteLast(const grpc::ByteBuffer& bytes, const absl::Status& status);
  // Takes the bytes of a message that came. False: they are no valid message.
  virtual bool Take(grpc::ByteBuffer* bytes) = 0;

 private:
  friend class RpcServer;

  // What was begun before the transport was there: a service makes a call first.
  struct Early {
    bool read = false;
    std::optional<grpc::ByteBuffer> write;
    std::optional<absl::Status> end;
  };

  void Bind(std::unique_ptr<RpcTransport> transport);
  void ReadEnded(bool ok);
  void WriteEnded(bool ok);
  void CancelledOrDone();
  // Something that was at work is over.
  void Ended();

  // With mu_ held.
  void BeginRead();
  void BeginWrite(const grpc::ByteBuffer& bytes, bool more);
  void BeginFinish(const grpc::ByteBuffer* last, const absl::Status& status);

  std::mutex mu_;  // guards the members below
  std::unique_ptr<RpcTransport> transport_;
  Early early_;  // as long as there is no transport
  int at_work_ = 0;
  bool finished_ = false;
};

// A call whose messages are of these types: messages of protobuf, or grpc::ByteBuffer.
template <typename In, typename Out>
class RpcReactor : public RpcCall {
 public:
  void StartRead(In* into) {
    into_ = into;
    Read();
  }
  void StartWrite(const Out* message, bool more = false) { Write(Bytes(*message), more); }
  void StartWriteAndFinish(const Out* message, const absl::Status& status) {
    WriteLast(Bytes(*message), status);
  }

 private:
  static grpc::ByteBuffer Bytes(const grpc::ByteBuffer& message) { return message; }
  template <typename Message>
  static grpc::ByteBuffer Bytes(const Message& message) {
    grpc::ByteBuffer bytes;
    bool own = false;
    (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
    return bytes;
  }
  static bool Parse(grpc::ByteBuffer* bytes, grpc::ByteBuffer* into) {
    into->Swap(bytes);
    return true;
  }
  template <typename Message>
  static bool Parse(grpc::ByteBuffer* bytes, Message* into) {
    return grpc::SerializationTraits<Message>::Deserialize(bytes, into).ok();
  }
  bool Take(grpc::ByteBuffer* bytes) final { return Parse(bytes, into_); }

  In* into_ = nullptr;
};

// The methods of a service, as descriptors name them: "fairway.v1.Admin.GetStatus". Each makes the
// call that serves a client's, on the server's thread; the context lives until OnDone.
using RpcMethod = std::function<RpcCall*(grpc::ServerContextBase* context)>;
using RpcMethods = std::map<std::string, RpcMethod, std::less<>>;

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_RPC_CALL_H_
