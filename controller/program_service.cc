// SPDX-License-Identifier: Apache-2.0
#include "controller/program_service.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "wire/program_codec.h"

namespace fairway {
namespace {

v1::CompileOptions OptionsFor(const Computation& computation, size_t devices) {
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(static_cast<int64_t>(devices));
  options.set_use_spmd_partitioning(computation.format == Computation::Format::kStableHlo);
  options.set_use_shardy_partitioner(computation.shardy);
  return options;
}

std::string Named(const Program& program, const Computation& computation) {
  return fmt::format("program {}: computation \"{}\"", program.name, computation.name);
}

// A compiled value as an array over positions.
absl::StatusOr<ArraySpec> SpecOf(const ValueType& type, size_t devices) {
  std::vector<int32_t> positions(devices);
  std::iota(positions.begin(), positions.end(), 0);
  ArraySpec out{type.dtype, type.global, Sharding::Replicated(positions)};
  if (!type.tile_of.empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(out.sharding,
                             Sharding::Tiled(std::move(positions), type.tiles, type.tile_of));
  }
  return out;
}

absl::Status Same(const char* kind, const std::vector<ArraySpec>& declared,
                  const std::vector<ValueType>& compiled, size_t devices) {
  if (declared.size() != compiled.size())
    return InvalidArgument("the program says that it has {} {}s, the compiler {}", declared.size(),
                           kind, compiled.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    const ArraySpec& want = declared[i];
    if (compiled[i].per_device)
      return Error(absl::StatusCode::kUnimplemented,
                   "{} {}, {}, is unreduced or manual over axes, which the values of a program "
                   "cannot be; make it whole within the computation (jax.reshard)",
                   kind, i, ToString(want.dtype, want.shape));
    FAIRWAY_ASSIGN_OR_RETURN(const ArraySpec has, SpecOf(compiled[i], devices));
    if (want.dtype != has.dtype || want.shape != has.shape)
      return InvalidArgument("{} {} is {} in the program, but {} in its code", kind, i,
                             ToString(want.dtype, want.shape), ToString(has.dtype, has.shape));
    FAIRWAY_ASSIGN_OR_RETURN(const Sharding default_memory,
                             want.sharding.WithDevices(want.sharding.devices(), ""));
    if (!SameCut({want.dtype, want.shape, default_memory}, has))
      return InvalidArgument("{} {}, {}, is cut in another way in the program than in its code",
                             kind, i, ToString(want.dtype, want.shape));
  }
  return absl::OkStatus();
}

}  // namespace

struct ProgramService::Binding {
  SessionId session;
  uint64_t out = 0;
  Program program;
  ProgramTypes types;
  ProgramBinding lowering;
  std::vector<std::vector<int32_t>> slices;        // virtual devices
  std::vector<std::vector<DeviceId>> devices;      // of each place
  std::vector<IslandId> islands;                   // of each place
  size_t open = 0;                                 // compilations
  std::vector<std::shared_ptr<const void>> holds;  // of its code, until it is bound
  absl::Status failure;
  bool sequential = false;
  Done done;
};

ProgramService::ProgramService(Cluster* cluster, CompileService* compiler, OffLoop off_loop)
    : cluster_(cluster),
      compiler_(compiler),
      off_loop_(std::move(off_loop)),
      alive_(std::make_shared<bool>(true)) {}

ProgramService::~ProgramService() { *alive_ = false; }

void ProgramService::Bind(SessionId session, uint64_t out, const v1::BoundProgram& request,
                          Done done) {
  auto binding = std::make_shared<Binding>();
  binding->session = session;
  binding->out = out;
  binding->sequential = request.sequential();
  binding->done = std::move(done);
  if (absl::Status status = Prepare(session, request, *binding); !status.ok())
    return binding->done(std::move(status));
  const std::vector<VirtualDevice>& all = cluster_->Devices(session);
  std::set<std::pair<int32_t, int32_t>> wanted;  // computation and place
  for (const Graph& graph : binding->program.graphs) {
    for (const ProgramNode& node : graph.nodes) {
      const auto* compute = std::get_if<ComputeNode>(&node.op);
      if (compute == nullptr) continue;
      const Computation& code = binding->program.computations[compute->computation];
      absl::Status runs = CheckRuns(all[binding->slices[compute->slice][0]],
                                    code.format == Computation::Format::kNative);
      if (!runs.ok()) return binding->done(Annotate(runs, Named(binding->program, code)));
      wanted.emplace(compute->computation, binding->lowering.places[compute->slice]);
    }
  }
  binding->open = wanted.size() + 1;
  for (const auto& [computation, place] : wanted) Compile(binding, computation, place);
  if (--binding->open == 0) Finish(binding);
}

absl::Status ProgramService::Prepare(SessionId session, const v1::BoundProgram& request,
                                     Binding& binding) const {
  FAIRWAY_ASSIGN_OR_RETURN(binding.program, ProgramFromProto(request.program()));
  const Program& program = binding.program;
  if (static_cast<size_t>(request.slices_size()) != program.slices.size())
    return InvalidArgument("program {} has {} slices, but devices of {} were given", program.name,
                           program.slices.size(), request.slices_size());
  const std::vector<VirtualDevice>& all = cluster_->Devices(session);
  for (int s = 0; s < request.slices_size(); ++s) {
    const auto& given = request.slices(s).devices();
    const std::vector<int32_t> ids(given.begin(), given.end());
    const ProgramSlice& slice = program.slices[s];
    const std::string what = fmt::format("program {}: slice \"{}\"", program.name, slice.name);
    if (ids.size() != static_cast<size_t>(slice.devices))
      return InvalidArgument("{} has {} devices, but {} were given", what, slice.devices,
                             ids.size());
    const absl::StatusOr<IslandId> island = cluster_->IslandOf(session, ids);
    if (!island.ok()) return Annotate(island.status(), what);
    if (std::set<int32_t>(ids.begin(), ids.end()).size() != ids.size())
      return InvalidArgument("{}: a device is given twice", what);
    const auto same = std::find(binding.slices.begin(), binding.slices.end(), ids);
    if (same != binding.slices.end()) {
      binding.lowering.places.push_back(binding.lowering.places[same - binding.slices.begin()]);
    } else {
      binding.lowering.places.push_back(static_cast<int32_t>(binding.devices.size()));
      auto& devices = binding.devices.emplace_back();
      for (const int32_t id : ids) devices.push_back(all[id].device);
      binding.islands.push_back(*island);
    }
    binding.slices.push_back(ids);
  }
  // Only now: the types of its values grow with its slices, which are as large as these devices.
  FAIRWAY_ASSIGN_OR_RETURN(binding.types, CheckProgram(program));
  return absl::OkStatus();
}

void ProgramService::Compile(const std::shared_ptr<Binding>& binding, int32_t computation,
                             int32_t place) {
  const Computation& code = binding->program.computations[computation];
  compiler_->Compile(
      KnownProgram(code.code), OptionsFor(code, binding->devices[place].size()),
      binding->islands[place], binding->devices[place],
      [this, alive = alive_, binding, computation, place](absl::StatusOr<CompiledProgram> done) {
        if (!*alive) return;
        absl::Status status = done.status();
        if (done.ok()) binding->holds.push_back(done->hold);
        if (done.ok()) status = Compiled(*binding, computation, place, *done);
        if (!status.ok() && binding->failure.ok()) {
          binding->failure =
              Annotate(status, Named(binding->program, binding->program.computations[computation]));
        }
        if (--binding->open == 0) Finish(binding);
      });
}

absl::Status ProgramService::Compiled(Binding& binding, int32_t computation, int32_t place,
                                      const CompiledProgram& code) const {
  const ExecutableSpec* spec = cluster_->FindExecutable(code.id);
  if (spec == nullptr)
    return Error(absl::StatusCode::kUnavailable, "its code was given up; try again");
  const Computation& declared = binding.program.computations[computation];
  const size_t devices = binding.devices[place].size();
  FAIRWAY_RETURN_IF_ERROR(Same("parameter", declared.parameters, spec->parameters, devices));
  FAIRWAY_RETURN_IF_ERROR(Same("result", declared.results, spec->outputs, devices));
  BoundCode bound;
  bound.executable = code.id;
  bound.temp_bytes = spec->temp_bytes;
  for (size_t p = 0; p < spec->parameters.size(); ++p) {
    if (spec->parameters[p].donated) bound.donates.push_back(static_cast<int32_t>(p));
  }
  for (const ValueType& output : spec->outputs)
    bound.outputs.push_back({output.dtype, output.shard, output.memory_kind});
  binding.lowering.code[{computation, place}] = std::move(bound);
  return absl::OkStatus();
}

void ProgramService::Finish(const std::shared_ptr<Binding>& binding) {
  if (!binding->failure.ok()) return binding->done(binding->failure);
  const auto plan = std::make_shared<absl::StatusOr<ProgramPlan>>();
  off_loop_(
      [binding, plan] { *plan = Lower(binding->program, binding->types, binding->lowering); },
      [this, alive = alive_, binding, plan] {
        if (!*alive) return;
        if (!plan->ok()) return binding->done(plan->status());
        binding->done(cluster_->BindProgram(binding->session, binding->out,
                                            {binding->program.name, **std::move(plan),
                                             std::move(binding->slices), binding->sequential}));
      });
}

}  // namespace fairway
