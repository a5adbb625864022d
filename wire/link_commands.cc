// SPDX-License-Identifier: Apache-2.0
// link_codec.h: commands and reports.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "base/planted.h"
#include "wire/limits.h"
#include "wire/link_codec.h"
#include "wire/sequence_codec.h"

namespace fairway {
namespace {

constexpr int kMaxShards = 1 << 16;

// ---- Out ----

void Put(ShardRef ref, v1::ShardRef* out) {
  out->set_group(ref.group.value);
  out->set_shard(ref.shard);
}

void Put(const Box& in, v1::Box* out) {
  out->set_element_bytes(static_cast<int32_t>(in.element_bytes));
  out->mutable_dims()->Assign(in.dims.begin(), in.dims.end());
  out->mutable_origin()->Assign(in.origin.begin(), in.origin.end());
  if (Planted(Bug::kMoveBox) && !in.origin.empty()) out->set_origin(0, 0);
  out->mutable_extents()->Assign(in.extents.begin(), in.extents.end());
}

void Put(const GroupPart& part, v1::GroupPart* out) {
  out->set_group(part.group.value);
  out->set_dtype(static_cast<int32_t>(part.dtype));
  out->set_memory_kind(part.memory_kind);
  out->mutable_shards()->Reserve(static_cast<int>(part.shards.size()));
  for (const LocalShard& shard : part.shards) {
    v1::LocalShard* to = out->add_shards();
    to->set_shard(shard.shard);
    to->set_device(shard.device);
    to->mutable_dims()->Assign(shard.shape.dims.begin(), shard.shape.dims.end());
  }
}

struct Encoder {
  v1::Command* out;

  void operator()(const InstallExecutable& in) {
    v1::InstallExecutable* to = out->mutable_install();
    to->set_executable(in.executable.value);
    if (in.code != nullptr) to->set_code(*in.code);
    to->set_checksum(in.checksum);
    for (const int32_t device : in.devices) to->add_devices(device);
    for (const InstallExecutable::Member& member : in.members) {
      v1::InstallExecutable::Member* at = to->add_members();
      at->set_endpoint(member.endpoint);
      at->set_incarnation(member.incarnation.value);
      at->set_ticket_first(member.ticket.first);
      at->set_ticket_second(member.ticket.second);
    }
    to->set_member(in.member);
    to->mutable_positions()->Assign(in.positions.begin(), in.positions.end());
    for (const GroupPart& part : in.outputs) Put(part, to->add_outputs());
    for (const bool distinct : in.distinct) to->add_distinct(distinct);
  }
  void operator()(const InstallSequence& in) {
    v1::InstallSequence* to = out->mutable_install_sequence();
    to->set_executable(in.executable.value);
    to->set_sequence(in.bytes == nullptr ? EncodeSequence(*in.sequence) : *in.bytes);
  }
  void operator()(const DropExecutable& in) {
    out->mutable_drop()->set_executable(in.executable.value);
  }
  void operator()(const PrepareLaunch& in) {
    v1::PrepareLaunch* to = out->mutable_prepare_launch();
    to->set_node(in.node.value);
    to->set_seq(in.seq);
    to->set_executable(in.executable.value);
    to->mutable_devices()->Assign(in.devices.begin(), in.devices.end());
    const size_t inputs = in.inputs.empty() ? 0 : in.inputs.size() * in.inputs[0].size();
    to->mutable_input_groups()->Reserve(static_cast<int>(inputs));
    to->mutable_input_shards()->Reserve(static_cast<int>(inputs));
    for (const auto& row : in.inputs) {
      for (const ShardRef ref : row) {
        to->add_input_groups(ref.group.value);
        to->add_input_shards(ref.shard);
      }
    }
    for (const GroupPart& part : in.outputs) Put(part, to->add_outputs());
    to->set_more(in.more);
  }
  void operator()(const Launch& in) {
    v1::Launch* to = out->mutable_launch();
    to->set_node(in.node.value);
    to->set_launch_id(in.launch_id.value);
    to->set_ahead(in.ahead);
    to->set_gang(in.gang);
    for (const int32_t argument : in.non_donatable) {
      if (!Planted(Bug::kDropKept)) to->add_non_donatable(argument);
    }
    for (const ShardRef ref : in.inline_shards) Put(ref, to->add_inline_shards());
    for (const Launch::FailedArgument& failed : in.failed) {
      if (Planted(Bug::kDropFailedArguments)) break;
      v1::Launch::FailedArgument* argument = to->add_failed();
      argument->set_argument(failed.argument);
      *argument->mutable_status() = ToProto(failed.status);
    }
  }
  void operator()(const PrepareReceive& in) {
    v1::PrepareReceive* to = out->mutable_prepare_receive();
    to->set_node(in.node.value);
    to->set_seq(in.seq);
    to->set_transfer(in.transfer.value);
    Put(in.out, to->mutable_out());
    for (const ShardSource& source : in.sources) {
      v1::ShardSource* at = to->add_sources();
      at->set_kind(static_cast<int32_t>(source.kind));
      if (source.shard != ShardRef()) Put(source.shard, at->mutable_shard());
      at->set_endpoint(source.endpoint);
      at->set_incarnation(source.incarnation.value);
      at->set_index(source.index);
      at->set_ticket_first(source.ticket.first);
      at->set_ticket_second(source.ticket.second);
      if (source.bytes != nullptr) at->set_bytes(source.bytes->data(), source.bytes->size());
    }
    for (const Piece& piece : in.pieces) {
      v1::Piece* at = to->add_pieces();
      at->set_out(piece.out);
      Put(piece.from, at->mutable_from());
      Put(piece.to, at->mutable_to());
    }
  }
  void operator()(const PrepareSend& in) {
    v1::PrepareSend* to = out->mutable_prepare_send();
    to->set_transfer(in.transfer.value);
    for (const PrepareSend::Item& item : in.items) {
      v1::PrepareSend::Item* at = to->add_items();
      at->set_index(item.index);
      Put(item.shard, at->mutable_shard());
      if (item.box.has_value()) Put(*item.box, at->mutable_box());
    }
  }
  void operator()(const EndSend& in) { out->mutable_end_send()->set_transfer(in.transfer.value); }
  void operator()(const CancelNode& in) {
    out->mutable_cancel()->set_node(in.node.value);
    *out->mutable_cancel()->mutable_cause() = ToProto(in.cause);
  }
  void operator()(const AbandonLaunch& in) {
    out->mutable_abandon()->set_first(in.first.value);
    out->mutable_abandon()->set_last(in.last.value);
    *out->mutable_abandon()->mutable_cause() = ToProto(in.cause);
  }
  void operator()(const FreeGroups& in) {
    v1::FreeGroups* to = out->mutable_free();
    for (const GroupId group : in.groups) to->add_groups(group.value);
  }
  void operator()(const LaunchAll& in) {
    v1::LaunchAll* to = out->mutable_launch_all();
    to->set_node(in.node.value);
    to->set_launch_id(in.launch_id.value);
    to->set_executable(in.executable.value);
    to->set_ahead(in.ahead);
    for (const GroupId group : in.inputs) to->add_inputs(group.value);
    for (const GroupId group : in.outputs) to->add_outputs(group.value);
    for (const int32_t argument : in.non_donatable) {
      if (!Planted(Bug::kDropKept)) to->add_non_donatable(argument);
    }
    to->mutable_inline_outputs()->Assign(in.inline_outputs.begin(), in.inline_outputs.end());
  }
  void operator()(const FailureHeard& in) { out->mutable_failure_heard()->set_node(in.node.value); }
};

// ---- In ----

absl::Status CheckDevice(int32_t device) {
  if (device >= 0 && device < kMaxDevicesPerExecutor) return absl::OkStatus();
  return InvalidArgument("local device {} is out of range", device);
}

absl::StatusOr<std::vector<int32_t>> Devices(const google::protobuf::RepeatedField<int32_t>& in) {
  if (in.size() > kMaxDevicesPerExecutor) return InvalidArgument("{} devices", in.size());
  for (const int32_t device : in) FAIRWAY_RETURN_IF_ERROR(CheckDevice(device));
  return std::vector<int32_t>(in.begin(), in.end());
}

absl::StatusOr<ShardRef> Take(const v1::ShardRef& in) {
  if (in.group() == 0 || in.shard() < 0 || in.shard() >= kMaxShards) {
    return InvalidArgument("shard {} of group {} is not a shard", in.shard(), in.group());
  }
  return ShardRef{GroupId(in.group()), in.shard()};
}

// Also one of which the group is yet to come.
absl::StatusOr<GroupPart> TakePart(const v1::GroupPart& in) {
  GroupPart out;
  out.group = GroupId(in.group());
  const auto dtype = DTypeFromNumber(in.dtype());
  if (!dtype.has_value())
    return InvalidArgument("group {} has element type {}", in.group(), in.dtype());
  out.dtype = *dtype;
  if (in.memory_kind().size() > 256)
    return InvalidArgument("group {} has a long memory kind", in.group());
  out.memory_kind = in.memory_kind();
  if (in.shards_size() > kMaxShards)
    return InvalidArgument("group {} has {} shards", in.group(), in.shards_size());
  out.shards.reserve(in.shards_size());
  for (const v1::LocalShard& shard : in.shards()) {
    if (shard.shard() < 0 || shard.shard() >= kMaxShards) {
      return InvalidArgument("group {} has a shard {}", in.group(), shard.shard());
    }
    FAIRWAY_RETURN_IF_ERROR(CheckDevice(shard.device()));
    if (shard.dims_size() > kMaxRank)
      return InvalidArgument("group {} has rank {}", in.group(), shard.dims_size());
    LocalShard to{shard.shard(), shard.device(), {}};
    to.shape.dims.assign(shard.dims().begin(), shard.dims().end());
    FAIRWAY_RETURN_IF_ERROR(ByteSize(out.dtype, to.shape).status());
    out.shards.push_back(std::move(to));
  }
  return out;
}

absl::StatusOr<GroupPart> Take(const v1::GroupPart& in) {
  if (in.group() == 0) return InvalidArgument("a group without an id");
  return TakePart(in);
}

absl::Status CheckNonDonatable(uint64_t node, const std::vector<int32_t>& arguments) {
  for (const int32_t argument : arguments) {
    if (argument < 0)
      return InvalidArgument("node {}: there is no argument {} to keep from donation", node,
                             argument);
  }
  return absl::OkStatus();
}

absl::StatusOr<Command> Take(v1::InstallExecutable& in) {
  if (in.executable() == 0) return InvalidArgument("an executable without an id");
  InstallExecutable out;
  out.executable = ExecutableId(in.executable());
  out.code = std::make_shared<const std::string>(std::move(*in.mutable_code()));
  out.checksum = in.checksum();
  FAIRWAY_ASSIGN_OR_RETURN(out.devices, Devices(in.devices()));
  if (in.members_size() > kMaxIslandWorkers || in.member() < 0 ||
      in.member() >= std::max(in.members_size(), 1)) {
    return InvalidArgument("executable {} is run by {} executors, of which this one is number {}",
                           in.executable(), in.members_size(), in.member());
  }
  for (const v1::InstallExecutable::Member& member : in.members()) {
    const Ticket ticket{member.ticket_first(), member.ticket_second()};
    if (!ticket)
      return InvalidArgument("executable {} is run with {}, for which there is no ticket",
                             in.executable(), member.endpoint());
    out.members.push_back({member.endpoint(), Incarnation(member.incarnation()), ticket});
  }
  out.member = in.member();
  const bool whole = in.positions_size() == in.devices_size();
  if (!whole && (in.positions_size() > 0 || in.outputs_size() > 0))
    return InvalidArgument("executable {} has {} positions for {} devices", in.executable(),
                           in.positions_size(), in.devices_size());
  out.positions.assign(in.positions().begin(), in.positions().end());
  for (const int32_t position : out.positions) {
    if (position < 0 || position >= kMaxShards)
      return InvalidArgument("executable {} has a device at position {}", in.executable(),
                             position);
  }
  for (const v1::GroupPart& part : in.outputs()) {
    FAIRWAY_ASSIGN_OR_RETURN(GroupPart taken, TakePart(part));
    if (taken.shards.size() != out.positions.size())
      return InvalidArgument("executable {} has a result of {} shards for {} devices",
                             in.executable(), taken.shards.size(), out.positions.size());
    out.outputs.push_back(std::move(taken));
  }
  out.distinct.assign(in.distinct().begin(), in.distinct().end());
  if (out.distinct.size() != out.outputs.size() * out.positions.size())
    return InvalidArgument("executable {} says of {} shards of results which are distinct",
                           in.executable(), out.distinct.size());
  return out;
}

absl::StatusOr<Command> Take(v1::InstallSequence& in) {
  if (in.executable() == 0) return InvalidArgument("a sequence without an id");
  return InstallSequence{ExecutableId(in.executable()), nullptr,
                         std::make_shared<const std::string>(std::move(*in.mutable_sequence()))};
}

absl::StatusOr<Command> Take(const v1::PrepareLaunch& in) {
  if (in.node() == 0 || in.seq() == 0 || in.executable() == 0)
    return InvalidArgument("launch of node {}, seq {}, executable {}", in.node(), in.seq(),
                           in.executable());
  PrepareLaunch out;
  out.node = NodeId(in.node());
  out.seq = in.seq();
  out.executable = ExecutableId(in.executable());
  FAIRWAY_ASSIGN_OR_RETURN(out.devices, Devices(in.devices()));
  const size_t positions = out.devices.size();
  const size_t inputs = in.input_groups_size();
  if (positions == 0) return InvalidArgument("node {} runs on no device", in.node());
  if (inputs != static_cast<size_t>(in.input_shards_size()) || inputs % positions != 0) {
    return InvalidArgument("node {} has {} groups and {} shards as inputs of {} devices", in.node(),
                           inputs, in.input_shards_size(), positions);
  }
  const size_t arguments = inputs / positions;
  out.inputs.resize(positions);
  for (size_t p = 0; p < positions; ++p) {
    out.inputs[p].reserve(arguments);
    for (size_t a = 0; a < arguments; ++a) {
      const int at =
          static_cast<int>(Planted(Bug::kSwapInputs) ? a * positions + p : p * arguments + a);
      v1::ShardRef ref;
      ref.set_group(in.input_groups(at));
      ref.set_shard(in.input_shards(at));
      FAIRWAY_ASSIGN_OR_RETURN(const ShardRef taken, Take(ref));
      out.inputs[p].push_back(taken);
    }
  }
  if (static_cast<size_t>(in.outputs_size()) > kMaxOutputs)
    return InvalidArgument("node {} has {} outputs", in.node(), in.outputs_size());
  out.outputs.reserve(in.outputs_size());
  for (const v1::GroupPart& part : in.outputs()) {
    FAIRWAY_ASSIGN_OR_RETURN(GroupPart taken, Take(part));
    if (taken.shards.size() != positions) {
      return InvalidArgument("node {}: group {} has {} shards for {} devices", in.node(),
                             part.group(), taken.shards.size(), positions);
    }
    out.outputs.push_back(std::move(taken));
  }
  out.more = in.more();
  return out;
}

absl::StatusOr<Command> Take(const v1::Launch& in) {
  if (in.node() == 0 || in.launch_id() == 0)
    return InvalidArgument("launch {} of node {}", in.launch_id(), in.node());
  Launch out;
  out.node = NodeId(in.node());
  out.launch_id = LaunchId(in.launch_id());
  out.gang = in.gang();
  out.ahead = in.ahead();
  out.non_donatable.assign(in.non_donatable().begin(), in.non_donatable().end());
  FAIRWAY_RETURN_IF_ERROR(CheckNonDonatable(in.node(), out.non_donatable));
  for (const v1::ShardRef& ref : in.inline_shards()) {
    FAIRWAY_ASSIGN_OR_RETURN(const ShardRef taken, Take(ref));
    out.inline_shards.push_back(taken);
  }
  for (const v1::Launch::FailedArgument& failed : in.failed()) {
    absl::Status status = StatusFromProto(failed.status());
    if (failed.argument() < 0 || status.ok())
      return InvalidArgument("node {}: argument {} failed with {}", in.node(), failed.argument(),
                             Text(status));
    out.failed.push_back({failed.argument(), std::move(status)});
  }
  return out;
}

absl::StatusOr<Command> Take(const v1::LaunchAll& in) {
  if (in.node() == 0 || in.launch_id() == 0 || in.executable() == 0)
    return InvalidArgument("launch {} of node {} with executable {}", in.launch_id(), in.node(),
                           in.executable());
  LaunchAll out;
  out.node = NodeId(in.node());
  out.launch_id = LaunchId(in.launch_id());
  out.executable = ExecutableId(in.executable());
  out.ahead = in.ahead();
  for (const uint64_t group : in.inputs()) out.inputs.emplace_back(group);
  for (const uint64_t group : in.outputs()) out.outputs.emplace_back(group);
  out.non_donatable.assign(in.non_donatable().begin(), in.non_donatable().end());
  FAIRWAY_RETURN_IF_ERROR(CheckNonDonatable(in.node(), out.non_donatable));
  out.inline_outputs.assign(in.inline_outputs().begin(), in.inline_outputs().end());
  for (const int32_t output : out.inline_outputs) {
    if (output < 0 || output >= in.outputs_size())
      return InvalidArgument("node {} has no output {} of {}", in.node(), output,
                             in.outputs_size());
  }
  return out;
}

absl::StatusOr<ShardSource> Take(const v1::ShardSource& in, const GroupPart& part,
                                 size_t position) {
  ShardSource out;
  switch (in.kind()) {
    case v1::ShardSource::LOCAL: {
      out.kind = ShardSource::Kind::kLocal;
      FAIRWAY_ASSIGN_OR_RETURN(out.shard, Take(in.shard()));
      break;
    }
    case v1::ShardSource::PEER:
      out.kind = ShardSource::Kind::kPeer;
      if (in.endpoint().empty() || in.incarnation() == 0)
        return InvalidArgument("a source without address");
      break;
    case v1::ShardSource::CONTROLLER:
      out.kind = ShardSource::Kind::kController;
      break;
    case v1::ShardSource::INLINE: {
      out.kind = ShardSource::Kind::kInline;
      FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes,
                               ByteSize(part.dtype, part.shards[position].shape));
      if (bytes != static_cast<int64_t>(in.bytes().size())) {
        return InvalidArgument("a shard of {} bytes comes with {}", bytes, in.bytes().size());
      }
      out.bytes = Blob::Copy(in.bytes());
      if (out.bytes == nullptr) return absl::ResourceExhaustedError("no host memory");
      break;
    }
    default:
      return InvalidArgument("a source of kind {}", in.kind());
  }
  if (in.endpoint().size() > 256) return InvalidArgument("a source with a long address");
  out.endpoint = in.endpoint();
  out.incarnation = Incarnation(in.incarnation());
  out.ticket = {in.ticket_first(), in.ticket_second()};
  const bool asked = in.kind() == v1::ShardSource::PEER || in.kind() == v1::ShardSource::CONTROLLER;
  if (asked && !out.ticket) return InvalidArgument("a source to ask without a ticket");
  if (in.index() < 0) return InvalidArgument("a source with index {}", in.index());
  out.index = in.index();
  return out;
}

absl::StatusOr<Box> Take(const v1::Box& in) {
  Box out{in.element_bytes(),
          {in.dims().begin(), in.dims().end()},
          {in.origin().begin(), in.origin().end()},
          {in.extents().begin(), in.extents().end()}};
  FAIRWAY_RETURN_IF_ERROR(CheckBox(out));
  return out;
}

absl::StatusOr<Piece> Take(const v1::Piece& in, const GroupPart& part) {
  if (in.out() < 0 || static_cast<size_t>(in.out()) >= part.shards.size())
    return InvalidArgument("a piece of shard {} of {}", in.out(), part.shards.size());
  Piece out{in.out(), {}, {}};
  FAIRWAY_ASSIGN_OR_RETURN(out.from, Take(in.from()));
  FAIRWAY_ASSIGN_OR_RETURN(out.to, Take(in.to()));
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(part.dtype, part.shards[in.out()].shape));
  if (out.from.extents != out.to.extents || out.from.element_bytes != out.to.element_bytes ||
      out.to.array_bytes() != bytes)
    return InvalidArgument("a piece of {} bytes for {} bytes of a shard of {}", out.from.bytes(),
                           out.to.bytes(), bytes);
  return out;
}

absl::StatusOr<Command> Take(const v1::PrepareReceive& in) {
  if (in.node() == 0 || in.seq() == 0)
    return InvalidArgument("receive of node {}, seq {}", in.node(), in.seq());
  PrepareReceive out;
  out.node = NodeId(in.node());
  out.seq = in.seq();
  out.transfer = TransferId(in.transfer());
  FAIRWAY_ASSIGN_OR_RETURN(out.out, Take(in.out()));
  const auto sources = static_cast<size_t>(in.sources_size());
  const size_t wanted = in.pieces().empty() ? out.out.shards.size() : in.pieces_size();
  if (sources != wanted || (in.pieces_size() > 0 && out.out.shards.size() > sources)) {
    return InvalidArgument("node {} receives {} shards in {} pieces from {} sources", in.node(),
                           out.out.shards.size(), in.pieces_size(), sources);
  }
  for (const v1::Piece& piece : in.pieces()) {
    FAIRWAY_ASSIGN_OR_RETURN(out.pieces.emplace_back(), Take(piece, out.out));
  }
  for (size_t i = 0; i < sources; ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(ShardSource source, Take(in.sources(static_cast<int>(i)), out.out,
                                                      out.pieces.empty() ? i : out.pieces[i].out));
    out.sources.push_back(std::move(source));
  }
  return out;
}

absl::StatusOr<Command> Take(const v1::PrepareSend& in) {
  if (in.transfer() == 0) return InvalidArgument("a transfer without an id");
  PrepareSend out;
  out.transfer = TransferId(in.transfer());
  for (const v1::PrepareSend::Item& item : in.items()) {
    if (item.index() < 0)
      return InvalidArgument("transfer {} has an index {}", in.transfer(), item.index());
    FAIRWAY_ASSIGN_OR_RETURN(const ShardRef ref, Take(item.shard()));
    out.items.push_back({item.index(), ref, std::nullopt});
    if (item.has_box()) {
      FAIRWAY_ASSIGN_OR_RETURN(out.items.back().box, Take(item.box()));
    }
  }
  return out;
}

absl::StatusOr<Command> Dispatch(v1::Command& in) {
  switch (in.command_case()) {
    case v1::Command::kInstall:
      return Take(*in.mutable_install());
    case v1::Command::kInstallSequence:
      return Take(*in.mutable_install_sequence());
    case v1::Command::kDrop:
      return DropExecutable{ExecutableId(in.drop().executable())};
    case v1::Command::kPrepareLaunch:
      return Take(in.prepare_launch());
    case v1::Command::kLaunch:
      return Take(in.launch());
    case v1::Command::kPrepareReceive:
      return Take(in.prepare_receive());
    case v1::Command::kPrepareSend:
      return Take(in.prepare_send());
    case v1::Command::kEndSend:
      return EndSend{TransferId(in.end_send().transfer())};
    case v1::Command::kCancel: {
      absl::Status cause = StatusFromProto(in.cancel().cause());
      if (cause.ok())
        return InvalidArgument("cancel of node {} without a cause", in.cancel().node());
      return CancelNode{NodeId(in.cancel().node()), std::move(cause)};
    }
    case v1::Command::kAbandon: {
      absl::Status cause = StatusFromProto(in.abandon().cause());
      if (cause.ok())
        return InvalidArgument("launch {} abandoned without a cause", in.abandon().first());
      return AbandonLaunch{LaunchId(in.abandon().first()), LaunchId(in.abandon().last()),
                           std::move(cause)};
    }
    case v1::Command::kFree: {
      FreeGroups out;
      for (const uint64_t group : in.free().groups()) out.groups.push_back(GroupId(group));
      return out;
    }
    case v1::Command::kLaunchAll:
      return Take(in.launch_all());
    case v1::Command::kFailureHeard:
      return FailureHeard{NodeId(in.failure_heard().node())};
    case v1::Command::COMMAND_NOT_SET:
      break;
  }
  return InvalidArgument("a command that this version does not know");
}

}  // namespace

void ToProto(const Command& command, v1::Command* out) { std::visit(Encoder{out}, command); }

absl::StatusOr<Command> CommandFromProto(v1::Command& in) {
  auto out = Dispatch(in);
  if (!out.ok()) return Annotate(out.status(), "bad command");
  return out;
}

void ToProto(const Report& report, Incarnation incarnation, v1::Report* out) {
  out->set_incarnation(incarnation.value);
  out->set_finished_through(report.finished_through);
  for (const uint64_t seq : report.finished) {
    if (!Planted(Bug::kReportOne) || out->finished().empty()) out->add_finished(seq);
  }
  for (const Report::Failure& failure : report.failures) {
    v1::Report::Failure* to = out->add_failures();
    to->set_seq(failure.seq);
    *to->mutable_status() = ToProto(failure.status);
    if (failure.output >= 0 && !Planted(Bug::kFailAllOutputs)) to->set_output(failure.output);
    if (failure.argument >= 0) to->set_argument(failure.argument);
    to->set_node(failure.node.value);
  }
  for (const Report::Inlined& inlined : report.inlined) {
    v1::Report::Inlined* to = out->add_inlined();
    Put(inlined.shard, to->mutable_shard());
    if (inlined.bytes != nullptr) to->set_bytes(inlined.bytes->data(), inlined.bytes->size());
  }
  for (const Report::Installed& installed : report.installed) {
    v1::Report::Installed* to = out->add_installed();
    to->set_executable(installed.executable.value);
    *to->mutable_status() = ToProto(installed.status);
  }
}

absl::StatusOr<Report> ReportFromProto(const v1::Report& in) {
  Report out;
  out.finished_through = in.finished_through();
  out.finished.assign(in.finished().begin(), in.finished().end());
  if (!std::is_sorted(out.finished.begin(), out.finished.end()))
    return InvalidArgument("bad report: finished numbers are not ascending");
  for (const v1::Report::Failure& failure : in.failures()) {
    absl::Status status = StatusFromProto(failure.status());
    if (status.ok()) return InvalidArgument("bad report: {} failed with OK", failure.seq());
    if ((failure.node() == 0) == (failure.seq() == 0))
      return InvalidArgument("bad report: seq {} and node {} failed, expected one of them",
                             failure.seq(), failure.node());
    if ((failure.has_output() && failure.output() < 0) ||
        (failure.has_argument() && failure.argument() < 0))
      return InvalidArgument("bad report: output {} of {} failed by argument {}", failure.output(),
                             failure.seq(), failure.argument());
    out.failures.push_back(
        {failure.seq(), std::move(status), failure.has_output() ? failure.output() : -1,
         failure.has_argument() ? failure.argument() : -1, NodeId(failure.node())});
  }
  for (const v1::Report::Inlined& inlined : in.inlined()) {
    FAIRWAY_ASSIGN_OR_RETURN(const ShardRef ref, Take(inlined.shard()));
    auto bytes = Blob::Copy(inlined.bytes());
    if (bytes == nullptr) return absl::ResourceExhaustedError("no host memory");
    out.inlined.push_back({ref, std::move(bytes)});
  }
  for (const v1::Report::Installed& installed : in.installed()) {
    out.installed.push_back(
        {ExecutableId(installed.executable()), StatusFromProto(installed.status())});
  }
  return out;
}

}  // namespace fairway
