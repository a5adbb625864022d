// SPDX-License-Identifier: Apache-2.0
// Messages between a supervisor and its compile processes. Each is a length of 4 bytes,
// little-endian, then a message of proto/fairway/v1/compiler.proto.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_WIRE_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/compiler.h"

namespace google::protobuf {
class MessageLite;
}

namespace fairway {

constexpr uint32_t kMaxCompileMessage = 1u << 30;  // bytes

// Ids of messages before any program (the target; that the process is ready), and of the program
// under way.
constexpr uint64_t kReadyId = 0;
constexpr uint64_t kProgramId = 1;

// Returns the bytes of one frame. RESOURCE_EXHAUSTED: more than kMaxCompileMessage.
absl::StatusOr<std::string> FrameOf(const google::protobuf::MessageLite& message);

// Waits for the next frame of a blocking descriptor, and reads no byte beyond it. DATA_LOSS: the
// stream ended, or the length is above kMaxCompileMessage.
absl::StatusOr<std::string> ReadFrame(int fd);

// Cuts frames out of a stream of bytes. Not thread-safe.
class FrameBuffer {
 public:
  void Append(const char* data, size_t size) { bytes_.append(data, size); }
  // Returns the payload of the next whole frame; nullopt: more bytes must come. DATA_LOSS: a length
  // above kMaxCompileMessage; the stream is useless from then on.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  std::string bytes_;
};

// Returns the result in a process's answer, or the error in it. DATA_LOSS: the code does not match
// its checksum.
absl::StatusOr<CompileResult> ResultOf(v1::CompileResponse response);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_WIRE_H_
