// SPDX-License-Identifier: Apache-2.0
// The values of graph/plan.h and core/device.h as the messages of proto/fairway/v1/link.proto, and
// back. What comes in is checked: sizes that must agree, numbers that must be within bounds,
// enumerations. Bad input is INVALID_ARGUMENT that names the message, never a crash. No state; any
// thread.
#ifndef FAIRWAY_WIRE_LINK_CODEC_H_
#define FAIRWAY_WIRE_LINK_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "core/device.h"
#include "fairway/v1/link.pb.h"
#include "graph/callback.h"
#include "graph/plan.h"
#include "transport/link.h"

namespace fairway {

// Version of link.proto. Peers of different versions refuse each other.
inline constexpr uint32_t kLinkProtocol = 6;

inline constexpr int kMaxDevicesPerExecutor = 4096;
inline constexpr int kMaxIslandWorkers = 1024;

v1::Status ToProto(const absl::Status& status);
// OK stays OK; codes that we do not know become INTERNAL.
absl::Status StatusFromProto(const v1::Status& status);

void ToProto(const ExecutorSpec& spec, v1::ExecutorSpec* out);
absl::StatusOr<ExecutorSpec> ExecutorSpecFromProto(const v1::ExecutorSpec& in);

void ToProto(const Command& command, v1::Command* out);
// Takes bulk bytes (code) out of `in`.
absl::StatusOr<Command> CommandFromProto(v1::Command& in);

void ToProto(const Report& report, Incarnation incarnation, v1::Report* out);
absl::StatusOr<Report> ReportFromProto(const v1::Report& in);

void ToProto(const CallbackCall& call, v1::LinkCallback* out);
absl::StatusOr<CallbackCall> CallbackFromProto(const v1::LinkCallback& in);
void ToProto(const CallbackAnswer& answer, v1::LinkCallbackAnswer* out);
// Sizes are not looked at: who asked knows them.
absl::StatusOr<CallbackAnswer> CallbackAnswerFromProto(const v1::LinkCallbackAnswer& in);

// Encodes commands one by one as they come, so that none is kept as a message. What it appends, one
// after the other, is the payload of a frame with a v1::Commands (fields that come again are
// merged). It keeps the memory of small commands for the next one. Not thread-safe.
class CommandEncoder {
 public:
  CommandEncoder();
  ~CommandEncoder();

  // Begins a payload.
  static void Begin(Incarnation incarnation, std::string* payload);
  // Takes the next command; the bytes that it has.
  size_t Take(const Command& command);
  // Appends what was taken.
  void Append(std::string* payload);

 private:
  struct Scratch;
  const std::unique_ptr<Scratch> scratch_;
};
// A frame of a payload that was made like that.
Frame CommandFrame(std::string payload);

// One control frame.
Frame PackFrame(const google::protobuf::MessageLite& message);
// INVALID_ARGUMENT: not a control frame, or not this message.
absl::Status UnpackFrame(const Frame& frame, google::protobuf::MessageLite* message);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_LINK_CODEC_H_
