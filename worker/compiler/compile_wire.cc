// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compile_wire.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <google/protobuf/message_lite.h>

#include "worker/compiler/checksum.h"

namespace fairway {

absl::StatusOr<std::string> FrameOf(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxCompileMessage) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "a message of {} bytes, at most {} are allowed", size, kMaxCompileMessage);
  }
  std::string frame;
  for (int i = 0; i < 4; ++i) frame += static_cast<char>((size >> (8 * i)) & 0xff);
  message.AppendToString(&frame);
  return frame;
}

absl::StatusOr<std::optional<std::string>> FrameBuffer::Next() {
  if (bytes_.size() < 4) return std::optional<std::string>();
  uint32_t size = 0;
  for (int i = 0; i < 4; ++i) {
    size |= static_cast<uint32_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  }
  if (size > kMaxCompileMessage) {
    return Error(absl::StatusCode::kDataLoss, "a frame of {} bytes on a compile process's link",
                 size);
  }
  if (bytes_.size() - 4 < size) return std::optional<std::string>();
  std::string payload = bytes_.substr(4, size);
  bytes_.erase(0, 4 + static_cast<size_t>(size));
  return std::optional<std::string>(std::move(payload));
}

absl::StatusOr<std::string> ReadFrame(int fd) {
  const auto read_all = [fd](std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = read(fd, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  };
  std::string head(4, '\0');
  uint32_t size = 0;
  if (read_all(head)) std::memcpy(&size, head.data(), sizeof size);
  if (size == 0 || size > kMaxCompileMessage) {
    return Error(absl::StatusCode::kDataLoss, "no frame, or one of {} bytes", size);
  }
  std::string payload(size, '\0');
  if (!read_all(payload)) return Error(absl::StatusCode::kDataLoss, "half a frame");
  return payload;
}

absl::StatusOr<CompileResult> ResultOf(v1::CompileResponse response) {
  if (response.status_code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                        response.status_message());
  }
  if (Sha256Hex(response.code()) != response.checksum()) {
    return Error(absl::StatusCode::kDataLoss, "compiled code does not match its checksum");
  }
  CompileResult result;
  result.code = std::move(*response.mutable_code());
  result.checksum = std::move(*response.mutable_checksum());
  result.metadata = std::move(*response.mutable_metadata());
  return result;
}

}  // namespace fairway
