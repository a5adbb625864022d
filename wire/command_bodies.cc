// SPDX-License-Identifier: Apache-2.0
// Encodes commands as bodies of log entries, and decodes them.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "base/planted.h"
#include "wire/backwards_writer.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

// A message whose small parts need no allocations of their own.
class CommandArena {
 public:
  CommandArena() : arena_(block_, sizeof(block_)) {}
  v1::Command* message() { return message_; }

 private:
  alignas(std::max_align_t) char block_[4096];
  google::protobuf::Arena arena_;
  v1::Command* const message_ = google::protobuf::Arena::CreateMessage<v1::Command>(&arena_);
};

void Write(const GroupPart& part, int field, BackwardsWriter& out) {
  using Part = v1::GroupPart;
  using Shard = v1::LocalShard;
  const size_t before = out.size();
  for (const LocalShard& shard : Backwards(part.shards)) {
    const size_t before_shard = out.size();
    out.Numbers(Shard::kDimsFieldNumber, shard.shape.dims);
    out.Number(Shard::kDeviceFieldNumber, static_cast<uint64_t>(shard.device));
    out.Number(Shard::kShardFieldNumber, static_cast<uint64_t>(shard.shard));
    out.Nested(Part::kShardsFieldNumber, before_shard);
  }
  out.Bytes(Part::kMemoryKindFieldNumber, part.memory_kind);
  out.Number(Part::kDtypeFieldNumber, static_cast<uint64_t>(part.dtype));
  out.Number(Part::kGroupFieldNumber, part.group.value);
  out.Nested(field, before);
}

void Write(const PrepareLaunch& in, BackwardsWriter& out) {
  using Message = v1::PrepareLaunch;
  out.Number(Message::kMoreFieldNumber, in.more ? 1 : 0);
  for (const GroupPart& part : Backwards(in.outputs))
    Write(part, Message::kOutputsFieldNumber, out);
  const auto inputs = [&](int field, auto number) {
    const size_t before = out.size();
    for (const ShardRefs& row : Backwards(in.inputs)) {
      for (const ShardRef ref : Backwards(row)) out.Element(number(ref));
    }
    if (out.size() > before) out.Nested(field, before);
  };
  inputs(Message::kInputShardsFieldNumber,
         [](ShardRef ref) { return static_cast<uint64_t>(ref.shard); });
  inputs(Message::kInputGroupsFieldNumber, [](ShardRef ref) { return ref.group.value; });
  out.Numbers(Message::kDevicesFieldNumber, in.devices);
  out.Number(Message::kExecutableFieldNumber, in.executable.value);
  out.Number(Message::kSeqFieldNumber, in.seq);
  out.Number(Message::kNodeFieldNumber, in.node.value);
  out.Nested(v1::Command::kPrepareLaunchFieldNumber, 0);
}

// Of an argument that has failed there is a status: ToProto has those.
void Write(const Launch& in, BackwardsWriter& out) {
  using Message = v1::Launch;
  out.Number(Message::kAheadFieldNumber, in.ahead ? 1 : 0);
  for (const ShardRef ref : Backwards(in.inline_shards)) {
    const size_t before = out.size();
    out.Number(v1::ShardRef::kShardFieldNumber, static_cast<uint64_t>(ref.shard));
    out.Number(v1::ShardRef::kGroupFieldNumber, ref.group.value);
    out.Nested(Message::kInlineShardsFieldNumber, before);
  }
  if (!Planted(Bug::kDropKept)) out.Numbers(Message::kNonDonatableFieldNumber, in.non_donatable);
  out.Number(Message::kGangFieldNumber, in.gang ? 1 : 0);
  out.Number(Message::kLaunchIdFieldNumber, in.launch_id.value);
  out.Number(Message::kNodeFieldNumber, in.node.value);
  out.Nested(v1::Command::kLaunchFieldNumber, 0);
}

absl::Status TooLong(size_t bytes, size_t most) {
  return Error(absl::StatusCode::kResourceExhausted,
               "a command of {} bytes, a message has room for {}", bytes, most);
}

// The commands of which each gang has some.
absl::StatusOr<std::string> Written(const auto& command, size_t most) {
  BackwardsWriter out;
  Write(command, out);
  if (out.size() > most) return TooLong(out.size(), most);
  return std::string(out.bytes());
}

}  // namespace

absl::StatusOr<std::string> EncodeCommand(const Command& command, size_t most) {
  if (const auto* prepare = std::get_if<PrepareLaunch>(&command)) return Written(*prepare, most);
  if (const auto* launch = std::get_if<Launch>(&command);
      launch != nullptr && launch->failed.empty())
    return Written(*launch, most);
  CommandArena arena;
  ToProto(command, arena.message());
  const size_t bytes = arena.message()->ByteSizeLong();
  if (bytes > most) return TooLong(bytes, most);
  std::string out(bytes, '\0');
  arena.message()->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out.data()));
  return out;
}

namespace {

uint32_t BytesTag(int field) { return static_cast<uint32_t>(field) << 3 | 2; }

// The members as fields of a v1.InstallExecutable.
std::shared_ptr<const std::string> Encode(const SharedVector<InstallExecutable::Member>& members) {
  v1::InstallExecutable message;
  for (const InstallExecutable::Member& member : members) {
    v1::InstallExecutable::Member* at = message.add_members();
    at->set_endpoint(member.endpoint);
    at->set_incarnation(member.incarnation.value);
    at->set_ticket_first(member.ticket.first);
    at->set_ticket_second(member.ticket.second);
  }
  return std::make_shared<const std::string>(message.SerializeAsString());
}

// A command whose field `field` is `rest`, of which `head` and then `tail` are the last bytes.
EncodedCommand Install(int field, const google::protobuf::MessageLite& rest, std::string head,
                       SharedTail tail) {
  using google::protobuf::io::CodedOutputStream;
  EncodedCommand out;
  {
    google::protobuf::io::StringOutputStream stream(&out.body);
    CodedOutputStream coded(&stream);
    coded.WriteVarint32(BytesTag(field));
    coded.WriteVarint64(rest.ByteSizeLong() + head.size() + tail.size());
    rest.SerializeToCodedStream(&coded);
    coded.WriteString(head);
  }
  out.tail = std::move(tail);
  return out;
}

// The beginning of a field of `bytes` bytes.
std::string HeadOf(int field, size_t bytes) {
  std::string head;
  google::protobuf::io::StringOutputStream stream(&head);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteVarint32(BytesTag(field));
  coded.WriteVarint64(bytes);
  coded.Trim();
  return head;
}

bool IsShared(const std::shared_ptr<const std::string>& code) {
  return code != nullptr && code->size() >= kSharedCodeBytes;
}

EncodedCommand EncodeShared(const InstallSequence& install) {
  v1::InstallSequence rest;
  rest.set_executable(install.executable.value);
  return Install(v1::Command::kInstallSequenceFieldNumber, rest,
                 HeadOf(v1::InstallSequence::kSequenceFieldNumber, install.bytes->size()),
                 {install.bytes, install.crc});
}

// `last`: set if the members are shared, and the code is not.
EncodedCommand EncodeShared(const InstallExecutable& install, EncodedMembers* last) {
  InstallExecutable without = install;
  if (last == nullptr) {
    without.code = nullptr;
  } else {
    if (last->bytes == nullptr || last->of != install.members)
      *last = {install.members, Encode(install.members)};
    without.members = {};
  }
  v1::Command message;
  ToProto(without, &message);
  constexpr int kField = v1::Command::kInstallFieldNumber;
  if (last != nullptr) return Install(kField, message.install(), "", SharedTail{last->bytes});
  return Install(kField, message.install(),
                 HeadOf(v1::InstallExecutable::kCodeFieldNumber, install.code->size()),
                 {install.code, install.code_crc});
}

}  // namespace

absl::StatusOr<EncodedCommand> EncodeToSend(const Command& command, size_t most,
                                            EncodedMembers* last) {
  std::optional<EncodedCommand> out;
  if (const auto* code = std::get_if<InstallExecutable>(&command)) {
    if (IsShared(code->code)) {
      out = EncodeShared(*code, nullptr);
    } else if (last != nullptr && code->members.size() >= kSharedMembers) {
      out = EncodeShared(*code, last);
    }
  } else if (const auto* sequence = std::get_if<InstallSequence>(&command);
             sequence != nullptr && IsShared(sequence->bytes)) {
    out = EncodeShared(*sequence);
  }
  if (!out.has_value()) {
    FAIRWAY_ASSIGN_OR_RETURN(std::string body, EncodeCommand(command, most));
    return EncodedCommand{std::move(body)};
  }
  if (out->bytes() > most) return TooLong(out->bytes(), most);
  return *std::move(out);
}

absl::StatusOr<Command> DecodeCommand(std::string_view bytes) {
  CommandArena arena;
  if (!arena.message()->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return InvalidArgument("bad command: {} bytes are none", bytes.size());
  return CommandFromProto(*arena.message());
}

}  // namespace fairway
