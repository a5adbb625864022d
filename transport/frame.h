// SPDX-License-Identifier: Apache-2.0
// The header of a frame of control links and the data plane (its layout is in link.h).
#ifndef FAIRWAY_TRANSPORT_FRAME_H_
#define FAIRWAY_TRANSPORT_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

namespace fairway {

inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr uint32_t kMaxFrameBytes = uint32_t{1} << 30;

// Many bytes that follow others, shared by all who send them.
struct SharedTail {
  std::shared_ptr<const std::string> bytes;    // nullptr: there are none
  std::optional<uint32_t> crc = std::nullopt;  // CRC-32C, where somebody has worked it out
  size_t size() const { return bytes == nullptr ? 0 : bytes->size(); }
};

struct FrameHeader {
  uint8_t type = 0;
  uint16_t flags = 0;
  uint64_t id = 0;
  uint64_t offset = 0;
  uint32_t length = 0;  // of the payload
  uint32_t crc = 0;     // CRC-32C of the payload
};

// Writes kFrameHeaderBytes at `out`.
void EncodeFrameHeader(const FrameHeader& header, char* out);

// INVALID_ARGUMENT: not our magic, another version, or longer than kMaxFrameBytes.
absl::StatusOr<FrameHeader> DecodeFrameHeader(const char* in);

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_FRAME_H_
