// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/placed_program.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/crc32c.h"
#include "controller/cluster/command_bytes.h"
#include "controller/cluster/program_records.h"
#include "controller/cluster/virtual_device.h"
#include "core/box.h"

namespace fairway {
namespace {

constexpr size_t kAllocation = 16;  // added by the allocator to each block of memory
constexpr size_t kSequence = 1024;  // a sequence's share of the core's tables

size_t Held(size_t elements, size_t bytes) {
  return elements == 0 ? 0 : kAllocation + elements * bytes;
}

// The bytes in commands and records of a value of a sequence, by its type.
struct ValueBytes {
  size_t input = 0, output = 0;
};

ValueBytes BytesOf(const ArraySpec& type) {
  const Sharding& sharding = type.sharding;
  const auto devices = static_cast<size_t>(sharding.num_shards());
  ValueBytes out;
  out.input = sizeof(ValueType) + 2 * Held(type.shape.dims.size(), sizeof(int64_t)) +
              Held(sharding.tiles().size(), sizeof(int64_t)) +
              Held(sharding.tile_of().size(), sizeof(int64_t));
  out.output = out.input + sizeof(CodeLayout::Output) + sizeof(CodeLayout::by_bytes[0]) +
               Held(devices, sizeof(Place)) + Held(devices, 4);
  return out;
}

class Placing {
 public:
  Placing(ProgramSource source, const SharedVector<VirtualDevice>& devices,
          std::string (*encode)(const Sequence&))
      : source_(std::move(source)),
        devices_(devices),
        encode_(encode),
        out_(std::make_shared<PlacedProgram>()) {}

  absl::StatusOr<std::shared_ptr<PlacedProgram>> Do() {
    std::set<IslandId> islands;
    for (const std::vector<int32_t>& slice : source_.slices) {
      const absl::StatusOr<IslandId> island = IslandOf(devices_, slice);
      if (!island.ok()) return Annotate(island.status(), "program " + source_.name);
      islands.insert(*island);
    }
    out_->islands.assign(islands.begin(), islands.end());
    FAIRWAY_RETURN_IF_ERROR(CheckValues());
    out_->bytes = PlacedBytes(source_);
    FAIRWAY_RETURN_IF_ERROR(PlaceTypes());
    value_types_.resize(out_->types.size());
    for (size_t step = 0; step < source_.plan.steps.size(); ++step) {
      const auto* run = std::get_if<ProgramPlan::RunSequence>(&source_.plan.steps[step]);
      if (run != nullptr) FAIRWAY_RETURN_IF_ERROR(PlaceSequence(step, *run));
    }
    for (const ProgramPlan::Constant& constant : source_.plan.constants)
      FAIRWAY_RETURN_IF_ERROR(
          Annotate(PlaceConstant(constant), "program " + source_.name + ": a constant"));
    out_->name = source_.name;
    out_->sequential = source_.sequential;
    out_->plan = std::move(source_.plan);
    out_->plan.types = {};
    out_->plan.constants = {};
    return std::move(out_);
  }

 private:
  absl::Status CheckValues() const {
    const ProgramPlan& plan = source_.plan;
    FAIRWAY_RETURN_IF_ERROR(CheckCallValues(
        "program " + source_.name, static_cast<size_t>(plan.arguments), plan.results.size()));
    for (const ProgramPlan::Step& step : plan.steps) {
      const auto* run = std::get_if<ProgramPlan::RunSequence>(&step);
      if (run == nullptr) continue;
      FAIRWAY_RETURN_IF_ERROR(
          CheckCallValues("program " + source_.name + ": a part of it, between moves of arrays,",
                          run->inputs.size(), run->outputs.size()));
    }
    return absl::OkStatus();
  }

  absl::Status PlaceTypes() {
    std::map<int32_t, Sharding> whole;  // by slice
    for (const SliceSpec& type : source_.plan.types) {
      if (type.slice < 0 || static_cast<size_t>(type.slice) >= source_.slices.size())
        return InvalidArgument("program {}: slice {} has no devices", source_.name, type.slice);
      const auto [over, fresh] = whole.try_emplace(type.slice);
      if (fresh) over->second = Sharding::Replicated(source_.slices[type.slice]);
      const Sharding& cut = type.array.sharding;
      FAIRWAY_ASSIGN_OR_RETURN(Sharding sharding, cut.OnDevicesOf(over->second, cut.memory_kind()));
      out_->types.push_back({type.array.dtype, type.array.shape, std::move(sharding)});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const ValueType*> TypeOf(int32_t value) {
    const int32_t number = source_.plan.values[value];
    std::optional<ValueType>& known = value_types_[number];
    if (known.has_value()) return &*known;
    const ArraySpec& array = out_->types[number];
    FAIRWAY_ASSIGN_OR_RETURN(Shape shard, array.sharding.ShardShape(array.shape, 0));
    ValueType type{array.dtype, array.shape, std::move(shard), {}, {}, "", false};
    type.memory_kind = array.sharding.memory_kind();
    if (!array.sharding.fully_replicated()) {
      type.tiles = array.sharding.tiles();
      type.tile_of = array.sharding.tile_of();
    }
    known = std::move(type);
    return &*known;
  }

  absl::Status PlaceSequence(size_t step, const ProgramPlan::RunSequence& run) {
    PlacedProgram::Part& part = out_->parts.emplace_back();
    part.step = step;
    ExecutableSpec& spec = part.spec;
    spec.name = source_.name;
    spec.sequence = run.sequence;
    spec.parts = run.executables;
    spec.temp_bytes = run.temp_bytes;
    spec.max_steps = std::max<int64_t>(run.max_steps, 1);
    spec.after_inputs = source_.sequential;
    std::vector<DeviceSeat> seats;
    for (const int32_t id : source_.slices[run.slice]) {
      const VirtualDevice& device = devices_[id];
      spec.devices.push_back(device.device);
      seats.push_back({device.executor, device.local_ordinal});
      spec.island = device.island_id;
    }
    if (encode_ != nullptr) {
      spec.code = std::make_shared<const std::string>(encode_(*run.sequence));
      spec.code_crc = Crc32c(*spec.code);
    }
    part.bytes = kSequence + SequenceBytes(*run.sequence);
    spec.parameters.reserve(run.inputs.size());
    for (const int32_t value : run.inputs) {
      FAIRWAY_ASSIGN_OR_RETURN(const ValueType* type, TypeOf(value));
      spec.parameters.push_back(*type);
      part.bytes += BytesOf(out_->types[source_.plan.values[value]]).input;
    }
    for (const int32_t input : run.donated) spec.parameters[input].donated = true;
    spec.outputs.reserve(run.outputs.size());
    for (const int32_t value : run.outputs) {
      FAIRWAY_ASSIGN_OR_RETURN(const ValueType* type, TypeOf(value));
      spec.outputs.push_back(*type);
      part.bytes += BytesOf(out_->types[source_.plan.values[value]]).output;
    }
    part.layout = LayoutOf(spec, seats);
    return absl::OkStatus();
  }

  absl::Status PlaceConstant(const ProgramPlan::Constant& constant) {
    PlacedProgram::Constant& placed = out_->constants.emplace_back();
    placed.value = constant.value;
    const ArraySpec& spec = out_->types[source_.plan.values[constant.value]];
    std::map<std::vector<int64_t>, int32_t> known;  // by where the shard lies
    const Box whole = Box::Whole(BytesPerElement(spec.dtype), spec.shape.dims);
    for (int i = 0; i < spec.sharding.num_shards(); ++i) {
      FAIRWAY_ASSIGN_OR_RETURN(const IndexDomain domain, spec.sharding.Domain(spec.shape, i));
      const auto [at, fresh] =
          known.try_emplace(domain.origin, static_cast<int32_t>(placed.blobs.size()));
      placed.blob_of_shard.push_back(at->second);
      if (!fresh) continue;
      Box part = whole;
      part.origin = domain.origin;
      part.extents = domain.shape.dims;
      auto blob = Blob::Make(static_cast<size_t>(part.bytes()));
      if (blob == nullptr) return absl::ResourceExhaustedError("no host memory for it");
      CopyBox(part, constant.bytes->data(), part.Alone(), blob->data());
      placed.blobs.push_back(std::move(blob));
    }
    return absl::OkStatus();
  }

  ProgramSource source_;
  const SharedVector<VirtualDevice>& devices_;
  std::string (*const encode_)(const Sequence&);
  std::shared_ptr<PlacedProgram> out_;
  std::vector<std::optional<ValueType>> value_types_;  // by type
};

}  // namespace

size_t PlacedBytes(const ProgramSource& source) {
  const ProgramPlan& plan = source.plan;
  size_t bytes = sizeof(PlacedProgram) + PlanBytes(plan);
  std::vector<ValueBytes> of_type;
  for (const SliceSpec& type : plan.types) of_type.push_back(BytesOf(type.array));
  for (const ProgramPlan::Step& step : plan.steps) {
    const auto* run = std::get_if<ProgramPlan::RunSequence>(&step);
    if (run == nullptr) continue;
    bytes += kSequence + SequenceBytes(*run->sequence);
    for (const int32_t value : run->inputs) bytes += of_type[plan.values[value]].input;
    for (const int32_t value : run->outputs) bytes += of_type[plan.values[value]].output;
  }
  for (const ProgramPlan::Constant& constant : plan.constants) {
    const auto shards =
        static_cast<size_t>(plan.TypeOf(constant.value).array.sharding.num_shards());
    bytes += ArrayTable::kSmallest + shards * (sizeof(ShardRef) + sizeof(int32_t) + sizeof(Place));
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<PlacedProgram>> PlaceProgram(
    ProgramSource source, const SharedVector<VirtualDevice>& devices,
    std::string (*encode)(const Sequence&)) {
  return Placing(std::move(source), devices, encode).Do();
}

ExecutableSignature SignatureOf(const PlacedProgram& program) {
  ExecutableSignature out;
  out.name = program.name;
  for (int32_t a = 0; a < program.plan.arguments; ++a) out.parameters.push_back(program.TypeOf(a));
  out.donated = program.plan.donated;
  for (const int32_t value : program.plan.results) out.outputs.push_back(program.TypeOf(value));
  return out;
}

size_t CallValues(const PlacedProgram& program) {
  return static_cast<size_t>(program.plan.arguments) + program.plan.results.size();
}

ResultTypes ResultsOf(std::shared_ptr<const PlacedProgram> program) {
  return [program = std::move(program)](size_t i) -> const ArraySpec& {
    return program->TypeOf(program->plan.results[i]);
  };
}

}  // namespace fairway
