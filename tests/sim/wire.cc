// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/wire.h"

#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

// Whether the receiver would send the same bytes: no message has a map.
template <typename Message>
absl::Status SameBytes(const Frame& sent, const Message& again) {
  const Frame frame = PackFrame(again);
  if (frame.type == sent.type && frame.payload == sent.payload) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "{} bytes of {} are {} bytes when they are sent again",
               sent.payload.size(), again.GetTypeName(), frame.payload.size());
}

}  // namespace

absl::StatusOr<Command> OverTheWire(const Command& command, Incarnation incarnation) {
  const auto message = [&](const Command& of) {
    v1::FromController out;
    out.mutable_commands()->set_incarnation(incarnation.value);
    ToProto(of, out.mutable_commands()->add_commands());
    return out;
  };
  const Frame frame = PackFrame(message(command));
  v1::FromController in;
  FAIRWAY_RETURN_IF_ERROR(UnpackFrame(frame, &in));
  if (in.commands().incarnation() != incarnation.value || in.commands().commands_size() != 1)
    return absl::InternalError("it is for another executor");
  FAIRWAY_ASSIGN_OR_RETURN(Command out,
                           CommandFromProto(*in.mutable_commands()->mutable_commands(0)));
  FAIRWAY_RETURN_IF_ERROR(SameBytes(frame, message(out)));
  return out;
}

absl::StatusOr<Report> OverTheWire(const Report& report, Incarnation incarnation) {
  const auto message = [&](const Report& of) {
    v1::ToController out;
    ToProto(of, incarnation, out.mutable_report());
    return out;
  };
  const Frame frame = PackFrame(message(report));
  v1::ToController in;
  FAIRWAY_RETURN_IF_ERROR(UnpackFrame(frame, &in));
  if (in.report().incarnation() != incarnation.value)
    return absl::InternalError("it is of another incarnation");
  FAIRWAY_ASSIGN_OR_RETURN(Report out, ReportFromProto(in.report()));
  FAIRWAY_RETURN_IF_ERROR(SameBytes(frame, message(out)));
  return out;
}

absl::StatusOr<ExecutorSpec> OverTheWire(const ExecutorSpec& spec) {
  const auto message = [](const ExecutorSpec& of) {
    v1::ToController out;
    ToProto(of, out.mutable_register_executor()->mutable_spec());
    return out;
  };
  const Frame frame = PackFrame(message(spec));
  v1::ToController in;
  FAIRWAY_RETURN_IF_ERROR(UnpackFrame(frame, &in));
  FAIRWAY_ASSIGN_OR_RETURN(ExecutorSpec out, ExecutorSpecFromProto(in.register_executor().spec()));
  FAIRWAY_RETURN_IF_ERROR(SameBytes(frame, message(out)));
  return out;
}

}  // namespace fairway::sim
