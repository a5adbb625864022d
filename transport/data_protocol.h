// SPDX-License-Identifier: Apache-2.0
// The frames (frame.h) of a data connection. The puller numbers its requests. Answers to different
// requests may overtake each other and interleave; the chunks of one answer come in order.
#ifndef FAIRWAY_TRANSPORT_DATA_PROTOCOL_H_
#define FAIRWAY_TRANSPORT_DATA_PROTOCOL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "transport/data_plane.h"

namespace fairway::data {

enum FrameType : uint8_t {
  kPull = 1,      // id: the request's; payload: WireRequest
  kChunk = 2,     // id; offset; payload: bytes of the shard from there. kLast in the last one
  kError = 3,     // id; payload: u32 status code, then its text
  kPush = 4,      // from the side that asks; payload: WirePush, then the bytes
  kTakeBack = 5,  // id: of a kPull, whose answer nobody wants any more; no payload
};
inline constexpr uint16_t kLast = 1;

inline constexpr size_t kChunkBytes = 1 << 20;
inline constexpr size_t kMaxControlBytes = 64 << 10;  // kPull and kError

// The payload of kPull.
struct WireRequest {
  PullRequest request;
  Incarnation incarnation;  // of the process that is asked
  int64_t bytes = 0;        // expected
};

// The first kPushNameBytes of the payload of kPush.
struct WirePush {
  PushName name;
  Incarnation to;  // of the process that gets it
  Ticket ticket;   // for what gangs exchange there
};
inline constexpr size_t kPushNameBytes = 48;

std::string Encode(const WireRequest& request);
absl::StatusOr<WireRequest> DecodeRequest(std::string_view payload);

// Returns the whole payload.
std::string Encode(const WirePush& push, std::string_view bytes);
// Reads kPushNameBytes at `payload`.
WirePush DecodePush(const char* payload);

std::string EncodeStatus(const absl::Status& status);
// Always returns an error: INTERNAL if the payload cannot be read.
absl::Status DecodeStatus(std::string_view payload);

}  // namespace fairway::data

#endif  // FAIRWAY_TRANSPORT_DATA_PROTOCOL_H_
