// SPDX-License-Identifier: Apache-2.0
// Encodes commands as bodies of log entries, and decodes them.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

void Write(ShardRef ref, int field, BackwardsWriter& out) {
  const size_t before = out.size();
  out.Number(v1::ShardRef::kShardFieldNumber, static_cast<uint64_t>(ref.shard));
  out.Number(v1::ShardRef::kGroupFieldNumber, ref.group.value);
  out.Nested(field, before);
}

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
  for (const ShardRef ref : Backwards(in.inline_shards))
    Write(ref, Message::kInlineShardsFieldNumber, out);
  if (!Planted(Bug::kDropKept)) out.Numbers(Message::kNonDonatableFieldNumber, in.non_donatable);
  out.Number(Message::kGangFieldNumber, in.gang ? 1 : 0);
  out.Number(Message::kLaunchIdFieldNumber, in.launch_id.value);
  out.Number(Message::kNodeFieldNumber, in.node.value);
  out.Nested(v1::Command::kLaunchFieldNumber, 0);
}

void Write(const LaunchAll& in, BackwardsWriter& out) {
  using Message = v1::LaunchAll;
  const auto groups = [&out](int field, const std::vector<GroupId>& of) {
    const size_t before = out.size();
    for (const GroupId group : Backwards(of)) out.Element(group.value);
    if (out.size() > before) out.Nested(field, before);
  };
  out.Numbers(Message::kInlineOutputsFieldNumber, in.inline_outputs);
  if (!Planted(Bug::kDropKept)) out.Numbers(Message::kNonDonatableFieldNumber, in.non_donatable);
  groups(Message::kOutputsFieldNumber, in.outputs);
  groups(Message::kInputsFieldNumber, in.inputs);
  out.Number(Message::kAheadFieldNumber, in.ahead ? 1 : 0);
  out.Number(Message::kExecutableFieldNumber, in.executable.value);
  out.Number(Message::kLaunchIdFieldNumber, in.launch_id.value);
  out.Number(Message::kNodeFieldNumber, in.node.value);
  out.Nested(v1::Command::kLaunchAllFieldNumber, 0);
}

void Write(const Box& in, int field, BackwardsWriter& out) {
  const size_t before = out.size();
  out.Numbers(v1::Box::kExtentsFieldNumber, in.extents);
  std::vector<int64_t> moved;
  if (Planted(Bug::kMoveBox) && !in.origin.empty()) {
    moved = {in.origin.begin(), in.origin.end()};
    moved[0] = 0;
  }
  moved.empty() ? out.Numbers(v1::Box::kOriginFieldNumber, in.origin)
                : out.Numbers(v1::Box::kOriginFieldNumber, moved);
  out.Numbers(v1::Box::kDimsFieldNumber, in.dims);
  out.Number(v1::Box::kElementBytesFieldNumber, static_cast<uint64_t>(in.element_bytes));
  out.Nested(field, before);
}

void Write(const ShardSource& in, int field, BackwardsWriter& out) {
  using Message = v1::ShardSource;
  const size_t before = out.size();
  out.Fixed(Message::kTicketSecondFieldNumber, in.ticket.second);
  out.Fixed(Message::kTicketFirstFieldNumber, in.ticket.first);
  if (in.bytes != nullptr)
    out.Bytes(Message::kBytesFieldNumber, {in.bytes->data(), in.bytes->size()});
  out.Number(Message::kIndexFieldNumber, static_cast<uint64_t>(in.index));
  out.Fixed(Message::kIncarnationFieldNumber, in.incarnation.value);
  out.Bytes(Message::kEndpointFieldNumber, in.endpoint);
  if (in.shard != ShardRef()) Write(in.shard, Message::kShardFieldNumber, out);
  out.Number(Message::kKindFieldNumber, static_cast<uint64_t>(in.kind));
  out.Nested(field, before);
}

void Write(const PrepareReceive& in, BackwardsWriter& out) {
  using Message = v1::PrepareReceive;
  for (const Piece& piece : Backwards(in.pieces)) {
    const size_t before = out.size();
    Write(piece.to, v1::Piece::kToFieldNumber, out);
    Write(piece.from, v1::Piece::kFromFieldNumber, out);
    out.Number(v1::Piece::kOutFieldNumber, static_cast<uint64_t>(piece.out));
    out.Nested(Message::kPiecesFieldNumber, before);
  }
  for (const ShardSource& source : Backwards(in.sources))
    Write(source, Message::kSourcesFieldNumber, out);
  Write(in.out, Message::kOutFieldNumber, out);
  out.Number(Message::kTransferFieldNumber, in.transfer.value);
  out.Number(Message::kSeqFieldNumber, in.seq);
  out.Number(Message::kNodeFieldNumber, in.node.value);
  out.Nested(v1::Command::kPrepareReceiveFieldNumber, 0);
}

void Write(const PrepareSend& in, BackwardsWriter& out) {
  using Message = v1::PrepareSend;
  for (const PrepareSend::Item& item : Backwards(in.items)) {
    const size_t before = out.size();
    if (item.box.has_value()) Write(*item.box, Message::Item::kBoxFieldNumber, out);
    Write(item.shard, Message::Item::kShardFieldNumber, out);
    out.Number(Message::Item::kIndexFieldNumber, static_cast<uint64_t>(item.index));
    out.Nested(Message::kItemsFieldNumber, before);
  }
  out.Number(Message::kTransferFieldNumber, in.transfer.value);
  out.Nested(v1::Command::kPrepareSendFieldNumber, 0);
}

void Write(const EndSend& in, BackwardsWriter& out) {
  out.Number(v1::EndSend::kTransferFieldNumber, in.transfer.value);
  out.Nested(v1::Command::kEndSendFieldNumber, 0);
}

void Write(const FreeGroups& in, BackwardsWriter& out) {
  const size_t before = out.size();
  for (const GroupId group : Backwards(in.groups)) out.Element(group.value);
  if (out.size() > before) out.Nested(v1::FreeGroups::kGroupsFieldNumber, before);
  out.Nested(v1::Command::kFreeFieldNumber, 0);
}

absl::Status TooLong(size_t bytes, size_t most) {
  return Error(absl::StatusCode::kResourceExhausted,
               "a command of {} bytes, a message has room for {}", bytes, most);
}

// The commands of which each gang or transfer has some.
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
  if (const auto* all = std::get_if<LaunchAll>(&command)) return Written(*all, most);
  if (const auto* receive = std::get_if<PrepareReceive>(&command)) return Written(*receive, most);
  if (const auto* send = std::get_if<PrepareSend>(&command)) return Written(*send, most);
  if (const auto* end = std::get_if<EndSend>(&command)) return Written(*end, most);
  if (const auto* free = std::get_if<FreeGroups>(&command)) return Written(*free, most);
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
