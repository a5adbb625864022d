// SPDX-License-Identifier: Apache-2.0
// Messages between a supervisor and its compile processes: a length of 4 bytes, little-endian, then
// a message of proto/fairway/v1/compiler.proto.
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

// Ids: of what is said before any program (what to compile for, and that the process is ready), and
// of the one program under way.
constexpr uint64_t kReadyId = 0;
constexpr uint64_t kProgramId = 1;

// The bytes of one frame. RESOURCE_EXHAUSTED: beyond kMaxCompileMessage.
absl::StatusOr<std::string> FrameOf(const google::protobuf::MessageLite& message);

// Waits for the next frame of a descriptor that blocks, and reads no byte behind it. DATA_LOSS: the
// stream ended, or a length beyond kMaxCompileMessage.
absl::StatusOr<std::string> ReadFrame(int fd);

// Cuts frames out of a stream of bytes.
class FrameBuffer {
 public:
  void Append(const char* data, size_t size) { bytes_.append(data, size); }
  // The payload of the next whole frame; nothing while more bytes are to come.
  // DATA_LOSS: a length beyond kMaxCompileMessage; the stream is of no more use.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  std::string bytes_;
};

// What a process answered for its program, or the error that it told. DATA_LOSS: the code does not
// match its checksum.
absl::StatusOr<CompileResult> ResultOf(v1::CompileResponse response);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_WIRE_H_
