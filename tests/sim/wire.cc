// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/wire.h"

#include "wire/link_codec.h"

namespace fairway::sim {

absl::Status SentAgain(const std::string& received, Incarnation incarnation, const Report& report) {
  v1::ToController message;
  ToProto(report, incarnation, message.mutable_report());
  const Frame frame = PackFrame(message);  // encoding is deterministic: no message has a map
  if (frame.payload == received) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal,
               "{} bytes of a report are {} bytes when it is sent again", received.size(),
               frame.payload.size());
}

}  // namespace fairway::sim
