// SPDX-License-Identifier: Apache-2.0
#include "wire/link_codec.h"

#include <algorithm>
#include <string>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "base/crc32c.h"

namespace fairway {
namespace {

constexpr size_t kMaxName = 256;
constexpr size_t kMaxText = 64 << 10;
// An island can count up from here without overflow.
constexpr uint64_t kMaxLaunchId = uint64_t{1} << 62;

absl::Status CheckText(std::string_view what, const std::string& text, size_t limit) {
  if (text.size() <= limit) return absl::OkStatus();
  return InvalidArgument("{} has {} bytes, at most {} are allowed", what, text.size(), limit);
}

}  // namespace

v1::Status ToProto(const absl::Status& status) {
  v1::Status out;
  const absl::Status bounded = Bounded(status);
  out.set_code(static_cast<int>(bounded.code()));
  out.set_message(Text(bounded));
  return out;
}

absl::Status StatusFromProto(const v1::Status& status) {
  if (status.code() == 0) return absl::OkStatus();
  const bool known =
      status.code() > 0 && status.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return {known ? static_cast<absl::StatusCode>(status.code()) : absl::StatusCode::kInternal,
          BoundedText(status.message())};
}

void ToProto(const ExecutorSpec& spec, v1::ExecutorSpec* out) {
  out->set_worker(spec.worker);
  out->set_island(spec.island);
  out->set_incarnation(spec.incarnation.value);
  out->set_runtime(spec.runtime);
  out->set_platform_name(spec.platform_name);
  out->set_platform_version(spec.platform_version);
  out->set_device_kind(spec.device_kind);
  for (const std::string& kind : spec.memory_kinds) out->add_memory_kinds(kind);
  out->set_num_devices(spec.num_devices);
  out->set_device_memory(spec.device_memory);
  out->set_gang_inputs(spec.gang_inputs == ArrivalRule::kReady ? 0 : 1);
  out->set_highest_launch_id(spec.highest_launch_id);
  out->set_data_endpoint(spec.data_endpoint);
  out->set_island_workers(spec.island_workers);
  out->set_data_key_first(spec.data_key.first);
  out->set_data_key_second(spec.data_key.second);
}

absl::StatusOr<ExecutorSpec> ExecutorSpecFromProto(const v1::ExecutorSpec& in) {
  if (in.worker().empty()) return InvalidArgument("registration without a worker's name");
  if (in.island().empty())
    return InvalidArgument("registration of {} without an island", in.worker());
  FAIRWAY_RETURN_IF_ERROR(CheckText("the worker's name", in.worker(), kMaxName));
  FAIRWAY_RETURN_IF_ERROR(CheckText("the island's name", in.island(), kMaxName));
  FAIRWAY_RETURN_IF_ERROR(CheckText("the runtime's name", in.runtime(), kMaxName));
  FAIRWAY_RETURN_IF_ERROR(CheckText("the platform's name", in.platform_name(), kMaxName));
  FAIRWAY_RETURN_IF_ERROR(CheckText("the device kind", in.device_kind(), kMaxName));
  FAIRWAY_RETURN_IF_ERROR(CheckText("the platform's version", in.platform_version(), kMaxText));
  FAIRWAY_RETURN_IF_ERROR(CheckText("the data endpoint", in.data_endpoint(), kMaxName));
  if (in.incarnation() == 0)
    return InvalidArgument("registration of {} with incarnation 0", in.worker());
  if (in.num_devices() < 1 || in.num_devices() > kMaxDevicesPerExecutor) {
    return InvalidArgument("registration of {} with {} devices", in.worker(), in.num_devices());
  }
  if (in.island_workers() < 0 || in.island_workers() > kMaxIslandWorkers) {
    return InvalidArgument("registration of {} with {} workers of its island", in.worker(),
                           in.island_workers());
  }
  if (in.device_memory() < 0)
    return InvalidArgument("registration of {} with negative memory", in.worker());
  if (in.gang_inputs() != 0 && in.gang_inputs() != 1) {
    return InvalidArgument("registration of {} with arrival rule {}", in.worker(),
                           in.gang_inputs());
  }
  if (in.highest_launch_id() > kMaxLaunchId)
    return InvalidArgument("registration of {} with launch id {}, above {}", in.worker(),
                           in.highest_launch_id(), kMaxLaunchId);
  if (in.memory_kinds_size() > 16)
    return InvalidArgument("registration of {} with too many memories", in.worker());
  ExecutorSpec out;
  out.data_key = {in.data_key_first(), in.data_key_second()};
  if (!out.data_key)
    return InvalidArgument("registration of {} without the key of its data port", in.worker());
  out.worker = in.worker();
  out.island = in.island();
  out.incarnation = Incarnation(in.incarnation());
  out.runtime = in.runtime();
  out.platform_name = in.platform_name();
  out.platform_version = in.platform_version();
  out.device_kind = in.device_kind();
  for (const std::string& kind : in.memory_kinds()) {
    FAIRWAY_RETURN_IF_ERROR(CheckText("a memory kind", kind, kMaxName));
    out.memory_kinds.push_back(kind);
  }
  out.num_devices = in.num_devices();
  out.device_memory = in.device_memory();
  out.gang_inputs = in.gang_inputs() == 0 ? ArrivalRule::kReady : ArrivalRule::kExternal;
  out.highest_launch_id = in.highest_launch_id();
  out.data_endpoint = in.data_endpoint();
  out.island_workers = std::max(in.island_workers(), 1);
  return out;
}

Frame PackFrame(const google::protobuf::MessageLite& message) {
  Frame frame;
  frame.type = kControlFrame;
  message.SerializeToString(&frame.payload);
  return frame;
}

Frame PackCompileRequest(std::string_view program, const v1::CompileOptions& options) {
  using google::protobuf::io::CodedOutputStream;
  const auto tag = [](int field) { return static_cast<uint32_t>(field) << 3 | 2; };  // of bytes
  constexpr size_t kOthers = 64;  // tags, lengths, the id
  v1::LinkCompileRequest rest;
  *rest.mutable_options() = options;
  const size_t rest_size = rest.ByteSizeLong();
  const uint32_t program_tag = tag(v1::LinkCompileRequest::kProgramFieldNumber);
  const size_t request_size = CodedOutputStream::VarintSize32(program_tag) +
                              CodedOutputStream::VarintSize64(program.size()) + program.size() +
                              rest_size;
  Frame frame;
  frame.type = kControlFrame;
  std::string head;
  {
    google::protobuf::io::StringOutputStream stream(&head);
    CodedOutputStream coded(&stream);
    coded.WriteVarint32(tag(v1::FromController::kCompileRequestFieldNumber));
    coded.WriteVarint64(request_size);
    rest.SerializeToCodedStream(&coded);
    coded.WriteVarint32(program_tag);
    coded.WriteVarint64(program.size());
  }
  frame.payload.reserve(head.size() + program.size() + kOthers);
  frame.payload.append(head).append(program);
  frame.crc = Crc32c(frame.payload);
  return frame;
}

// Protobuf merges a message that comes twice, so the id may follow the rest.
void SetCompileId(uint64_t id, Frame& request) {
  v1::FromController message;
  message.mutable_compile_request()->set_id(id);
  const std::string tail = message.SerializeAsString();
  request.payload += tail;
  request.crc = ExtendCrc32c(*request.crc, tail);
}

absl::Status UnpackFrame(const Frame& frame, google::protobuf::MessageLite* message) {
  if (frame.type != kControlFrame)
    return InvalidArgument("a frame of type {} on a control link", frame.type);
  if (!message->ParseFromString(frame.payload)) {
    return InvalidArgument("a frame of {} bytes is not a {}", frame.payload.size(),
                           message->GetTypeName());
  }
  return absl::OkStatus();
}

}  // namespace fairway
