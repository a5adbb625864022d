// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/wire.h"

#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

// No message has a map.
template <typename Message>
absl::Status SameBytes(const std::string& received, const Message& again) {
  const Frame frame = PackFrame(again);
  if (frame.payload == received) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "{} bytes of {} are {} bytes when they are sent again",
               received.size(), again.GetTypeName(), frame.payload.size());
}

}  // namespace

absl::Status SentAgain(const Frame& received, Incarnation incarnation,
                       const std::vector<Command>& commands) {
  v1::FromController message;
  message.mutable_commands()->set_incarnation(incarnation.value);
  for (const Command& command : commands)
    ToProto(command, message.mutable_commands()->add_commands());
  return SameBytes(received.payload, message);
}

absl::Status SentAgain(const std::string& received, Incarnation incarnation, const Report& report) {
  v1::ToController message;
  ToProto(report, incarnation, message.mutable_report());
  return SameBytes(received, message);
}

}  // namespace fairway::sim
