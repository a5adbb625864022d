// SPDX-License-Identifier: Apache-2.0
// What one session has to tell its client, cut into messages: small answers together, bytes of
// arrays a piece at a time and without copying them. Private to this folder, for gRPC's sake.
#ifndef FAIRWAY_CONTROLLER_NATIVE_OUTBOX_H_
#define FAIRWAY_CONTROLLER_NATIVE_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <variant>

#include <grpcpp/support/byte_buffer.h>

#include "base/blob.h"
#include "fairway/v1/client.pb.h"

namespace fairway {

// Used by one thread at a time.
class Outbox {
 public:
  struct Message {
    std::unique_ptr<grpc::ByteBuffer> bytes;  // a serialized ServerMessage; nullptr: nothing to say
    size_t weight = 0;                        // as returned when its parts were added
  };

  // All return what it weighs until it is sent: bytes in memory, about.
  size_t Add(v1::Answer answer);
  // A serialized ServerMessage, which goes by itself, in its place among the answers.
  size_t AddSerialized(std::string message);
  // Holds the bytes until they are sent; what is copied of them is copied by Next.
  size_t Add(uint64_t id, int32_t index, std::shared_ptr<const Blob> bytes);
  // All small answers, up to some size, and the next piece of one array, each in its turn.
  Message Next();
  void Clear();

 private:
  struct Array {
    uint64_t id = 0;
    int32_t index = 0;
    std::shared_ptr<const Blob> bytes;
    size_t sent = 0;
  };
  // An answer, some that are serialized, or a small array.
  using Answers = std::variant<v1::Answer, std::string, Array>;

  std::deque<Answers> answers_;
  std::deque<Array> arrays_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_OUTBOX_H_
