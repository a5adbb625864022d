// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/command_bytes.h"

#include <algorithm>

#include "wire/limits.h"

namespace fairway {
namespace {

// The most bytes of a protobuf field, its tag and length included.
constexpr size_t kNumber = 11;  // of 64 bits
constexpr size_t kSmall = 6;    // of 32 bits and not negative
constexpr size_t kMessage = 8;

size_t TypeBytes(const Shape& shape, const std::string& memory_kind) {
  return 2 * kMessage + 2 * kNumber + memory_kind.size() + shape.dims.size() * kNumber;
}

}  // namespace

size_t SequenceBytes(const Sequence& sequence) {
  size_t bytes = sequence.name.size();
  for (const Sequence::Type& type : sequence.types)
    bytes += TypeBytes(type.shard, type.memory_kind);
  for (const Instruction& in : sequence.instructions) {
    const size_t numbers = in.inputs.size() + in.outputs.size() + in.types.size() +
                           in.clears.size() + in.donates.size() + in.lengths.size();
    bytes += 8 * kMessage + 2 * kNumber + numbers * kSmall;
  }
  return bytes;
}

size_t InstallBytes(const ExecutableSpec& spec) {
  if (spec.sequence != nullptr) return SequenceBytes(*spec.sequence);
  return spec.code == nullptr ? 0 : spec.code->size();
}

size_t CommandBytes(const ExecutableSpec& spec, size_t devices) {
  constexpr size_t kOthers = 64 << 10;
  size_t prepare = spec.parameters.size() * devices * (kNumber + kSmall);
  for (const ValueType& type : spec.outputs)
    prepare += kMessage + devices * TypeBytes(type.shard, type.memory_kind);
  // An argument is kept or has failed. Results may be wanted inline.
  const size_t failed = spec.sequence == nullptr ? 0 : 3 * kMessage;
  const size_t launch = spec.parameters.size() * (kSmall + failed) + kTextBytes +
                        spec.outputs.size() * devices * (kMessage + kNumber + kSmall);
  return kOthers + std::max({prepare, launch, InstallBytes(spec)});
}

absl::Status CheckCommands(const ExecutableSpec& spec, size_t bytes, size_t most) {
  if (spec.outputs.size() > kMaxOutputs)
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} has {} results, an executor takes at most {} of one launch: put them into "
                 "fewer, larger arrays, or split it",
                 spec.name, spec.outputs.size(), kMaxOutputs);
  if (bytes <= most) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "{} is too large to be sent to an executor: with {} arguments, {} results and {} "
               "devices one message would have up to {} bytes, at most {} are possible. Put its "
               "arguments and results into fewer, larger arrays, or split it",
               spec.name, spec.parameters.size(), spec.outputs.size(), spec.devices.size(), bytes,
               most);
}

}  // namespace fairway
