// SPDX-License-Identifier: Apache-2.0
// The unsent answers of one session, cut into messages: small answers together, bytes of arrays a
// piece at a time and without a copy. Private to this folder, because it includes gRPC.
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
  static constexpr size_t kSmallBytes = 64 << 10;  // an array up to this size goes as an answer

  struct Message {
    std::unique_ptr<grpc::ByteBuffer> bytes;  // a serialized ServerMessage; nullptr: none
    size_t weight = 0;                        // the sum that Add returned for its parts
    size_t shared = 0;                        // of `weight`: bytes that arrays hold anyway
  };

  // Each Add returns the weight until it is sent: about its bytes in memory.
  size_t Add(v1::Answer answer);
  // Adds a serialized ServerMessage, which is sent alone, in its place among the answers.
  size_t AddSerialized(std::string message);
  // Holds the bytes until they are sent; what is copied of them is copied by Next.
  size_t Add(uint64_t id, int32_t index, std::shared_ptr<const Blob> bytes);
  // In turn: all small answers, up to some size, or the next piece of an array.
  Message Next();
  void Clear();

 private:
  struct Array {
    uint64_t id = 0;
    int32_t index = 0;
    std::shared_ptr<const Blob> bytes;
    size_t sent = 0;
  };
  // An answer, a serialized message of answers, or a small array.
  using Answers = std::variant<v1::Answer, std::string, Array>;

  std::deque<Answers> answers_;
  std::deque<Array> arrays_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_OUTBOX_H_
