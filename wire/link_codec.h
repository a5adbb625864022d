// SPDX-License-Identifier: Apache-2.0
// Converts the values of graph/plan.h and core/device.h to the messages of
// proto/fairway/v1/link.proto, and back. Checks everything that comes in: sizes that must agree,
// numbers that must be in range, enumerations. Bad input gives INVALID_ARGUMENT with the name of
// the message, never a crash. No state; any thread.
#ifndef FAIRWAY_WIRE_LINK_CODEC_H_
#define FAIRWAY_WIRE_LINK_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/device.h"
#include "fairway/v1/link.pb.h"
#include "graph/callback.h"
#include "graph/plan.h"
#include "identity/revocations.h"
#include "transport/link.h"
#include "wire/limits.h"
#include "wire/link_protocol.h"

namespace fairway {

// Types of the frames of these links.
inline constexpr uint8_t kControlFrame = 1;    // one ToController or FromController
inline constexpr uint8_t kLogFrame = 2;        // a log frame, to a child (log/codec.h)
inline constexpr uint8_t kLogReportFrame = 3;  // a log report, from a child (log/codec.h)

inline constexpr int kMaxDevicesPerExecutor = 4096;
inline constexpr int kMaxIslandWorkers = 65536;

v1::Status ToProto(const absl::Status& status);
// OK stays OK; unknown codes become INTERNAL.
absl::Status StatusFromProto(const v1::Status& status);

void ToProto(const ExecutorSpec& spec, v1::ExecutorSpec* out);
absl::StatusOr<ExecutorSpec> ExecutorSpecFromProto(const v1::ExecutorSpec& in);

void ToProto(const Command& command, v1::Command* out);
// Moves bulk bytes (code) out of `in`.
absl::StatusOr<Command> CommandFromProto(v1::Command& in);
// The body of a COMMAND of the log, which is an encoded v1.Command. RESOURCE_EXHAUSTED: the body
// would have more than `most` bytes.
absl::StatusOr<std::string> EncodeCommand(const Command& command, size_t most = kMaxCommandBytes);
// The encoding of the list of members that was sent last: all executors of it are sent the same.
struct EncodedMembers {
  SharedVector<InstallExecutable::Member> of;
  std::shared_ptr<const std::string> bytes;
};
// The same as what is sent: code of kSharedCodeBytes and more, or as many bytes of a sequence,
// follow the rest, and are not copied. Of code with fewer, kSharedMembers and more members do.
struct EncodedCommand {
  std::string body;
  SharedTail tail = {};
  size_t bytes() const { return body.size() + tail.size(); }
};
inline constexpr size_t kSharedCodeBytes = size_t{64} << 10;
inline constexpr size_t kSharedMembers = 32;
absl::StatusOr<EncodedCommand> EncodeToSend(const Command& command, size_t most = kMaxCommandBytes,
                                            EncodedMembers* last = nullptr);
absl::StatusOr<Command> DecodeCommand(std::string_view bytes);

void ToProto(const Report& report, Incarnation incarnation, v1::Report* out);
absl::StatusOr<Report> ReportFromProto(const v1::Report& in);

void ToProto(const CallbackCall& call, v1::LinkCallback* out);
absl::StatusOr<CallbackCall> CallbackFromProto(const v1::LinkCallback& in);
void ToProto(const CallbackAnswer& answer, v1::LinkCallbackAnswer* out);
// Does not check sizes: the caller who asked knows them.
absl::StatusOr<CallbackAnswer> CallbackAnswerFromProto(const v1::LinkCallbackAnswer& in);

// Bounds of a message of revocations; more workers go with the next one.
inline constexpr size_t kMaxRevokedWorkers = 1024;
inline constexpr size_t kMaxCertificatesSince = 1024;  // of a worker
void ToProto(const Revocation& revocation, v1::RevokedWorkers::Worker* out);
absl::StatusOr<std::vector<Revocation>> RevocationsFromProto(const v1::RevokedWorkers& in);

// Packs a message into one control frame.
Frame PackFrame(const google::protobuf::MessageLite& message);
// Packs a FromController with a compile_request that has no id yet, and its checksum. Copies the
// program once, so pack long ones on another thread than the loop's.
Frame PackCompileRequest(std::string_view program, const v1::CompileOptions& options);
// Adds the id without copying the program.
void SetCompileId(uint64_t id, Frame& request);
// INVALID_ARGUMENT: not a control frame, or not this message.
absl::Status UnpackFrame(const Frame& frame, google::protobuf::MessageLite* message);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_LINK_CODEC_H_
