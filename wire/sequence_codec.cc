// SPDX-License-Identifier: Apache-2.0
#include "wire/sequence_codec.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <google/protobuf/arena.h>

#include "fairway/v1/link.pb.h"
#include "wire/limits.h"

namespace fairway {
namespace {

constexpr int kMaxRegisters = 1 << 24;

}  // namespace

std::string EncodeSequence(const Sequence& sequence) {
  google::protobuf::Arena arena;
  auto* const out = google::protobuf::Arena::CreateMessage<v1::Sequence>(&arena);
  out->set_name(sequence.name);
  out->set_registers(sequence.registers);
  out->set_outputs(sequence.outputs);
  for (const Sequence::Type& type : sequence.types) {
    v1::Sequence::Type* at = out->add_types();
    at->set_dtype(static_cast<int32_t>(type.dtype));
    at->mutable_dims()->Assign(type.shard.dims.begin(), type.shard.dims.end());
    at->set_memory_kind(type.memory_kind);
  }
  for (const Instruction& step : sequence.instructions) {
    v1::Instruction* at = out->add_instructions();
    at->set_op(static_cast<int32_t>(step.op));
    at->set_executable(step.executable.value);
    at->mutable_inputs()->Assign(step.inputs.begin(), step.inputs.end());
    at->mutable_outputs()->Assign(step.outputs.begin(), step.outputs.end());
    at->mutable_types()->Assign(step.types.begin(), step.types.end());
    at->mutable_clears()->Assign(step.clears.begin(), step.clears.end());
    at->mutable_donates()->Assign(step.donates.begin(), step.donates.end());
    at->set_count(step.count);
    at->mutable_lengths()->Assign(step.lengths.begin(), step.lengths.end());
  }
  return out->SerializeAsString();
}

absl::StatusOr<std::shared_ptr<const Sequence>> DecodeSequence(std::string_view bytes) {
  google::protobuf::Arena arena;
  auto* const message = google::protobuf::Arena::CreateMessage<v1::Sequence>(&arena);
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return InvalidArgument("bad sequence: {} bytes are none", bytes.size());
  const v1::Sequence& in = *message;
  auto out = std::make_shared<Sequence>();
  out->name = in.name();
  out->registers = in.registers();
  out->outputs = in.outputs();
  if (in.registers() > kMaxRegisters ||
      (in.outputs() > 0 && static_cast<size_t>(in.outputs()) > kMaxOutputs))
    return InvalidArgument("sequence {} has {} registers and {} outputs", in.name(), in.registers(),
                           in.outputs());
  for (const v1::Sequence::Type& type : in.types()) {
    const auto dtype = DTypeFromNumber(type.dtype());
    if (!dtype.has_value() || type.dims_size() > kMaxRank || type.memory_kind().size() > 256)
      return InvalidArgument("sequence {} has an invalid type", in.name());
    Sequence::Type to{*dtype, {{type.dims().begin(), type.dims().end()}}, type.memory_kind()};
    FAIRWAY_RETURN_IF_ERROR(ByteSize(to.dtype, to.shard).status());
    out->types.push_back(std::move(to));
  }
  out->instructions.reserve(static_cast<size_t>(in.instructions_size()));
  for (const v1::Instruction& step : in.instructions()) {
    if (step.op() < 0 || step.op() > static_cast<int32_t>(Instruction::Op::kClear))
      return InvalidArgument("sequence {} has an instruction of kind {}", in.name(), step.op());
    out->instructions.push_back({static_cast<Instruction::Op>(step.op()),
                                 ExecutableId(step.executable()),
                                 {step.inputs().begin(), step.inputs().end()},
                                 {step.outputs().begin(), step.outputs().end()},
                                 {step.types().begin(), step.types().end()},
                                 {step.clears().begin(), step.clears().end()},
                                 {step.donates().begin(), step.donates().end()},
                                 step.count(),
                                 {step.lengths().begin(), step.lengths().end()}});
  }
  return out;
}

}  // namespace fairway
