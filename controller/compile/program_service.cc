// SPDX-License-Identifier: Apache-2.0
#include "controller/compile/program_service.h"

#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "controller/cluster/executables.h"
#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "wire/program_codec.h"
#include "wire/sequence_codec.h"

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

// The type of a compiled value as an array over device positions.
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

// The data of a binding. One other thread at a time works on it; the loop looks at it in between.
// Those threads also destroy the parts that are no longer needed.
struct ProgramService::Work {
  // A computation that is to be compiled for the devices of a place.
  struct Wanted {
    int32_t computation = 0;
    int32_t place = 0;
    std::optional<KnownProgram> code;
    const ExecutableSpec* compiled = nullptr;  // valid while there is a hold of it
  };

  Request request;
  SharedVector<VirtualDevice> all;  // the session's devices
  std::string name;
  size_t bytes = 0;  // about the memory that it takes from here on

  v1::BoundProgram message;
  Program program;
  ProgramTypes types;
  ProgramBinding lowering;
  std::vector<std::vector<int32_t>> slices;    // virtual devices
  std::vector<std::vector<DeviceId>> devices;  // of each place
  std::vector<IslandId> islands;               // of each place
  std::vector<Wanted> wanted;
  ProgramSource source;
  std::shared_ptr<PlacedProgram> placed;

  static absl::Status Weigh(Work& work);
  static absl::Status Check(Work& work);
  static absl::Status Lower(Work& work);
  static absl::Status Place(Work& work);

  absl::Status PlaceSlices();
  absl::Status FindWanted();
  absl::Status TakeCode(const Wanted& of);
  std::string NameOf(const Wanted& of) const {
    return Named(program, program.computations[of.computation]);
  }
};

absl::Status ProgramService::Work::Weigh(Work& work) {
  FAIRWAY_ASSIGN_OR_RETURN(work.message, work.request.program());
  work.request.program = nullptr;
  work.bytes = ProgramBytes(work.message.program());
  work.name = work.message.program().name();
  if (work.name.empty()) work.name = "program";
  return absl::OkStatus();
}

absl::Status ProgramService::Work::Check(Work& work) {
  FAIRWAY_ASSIGN_OR_RETURN(work.program, ProgramFromProto(work.message.program()));
  work.source.sequential = work.message.sequential();
  FAIRWAY_RETURN_IF_ERROR(work.PlaceSlices());
  v1::BoundProgram().Swap(&work.message);
  // Checked only now: the types of values grow with the slices, which now match their devices.
  FAIRWAY_ASSIGN_OR_RETURN(work.types, CheckProgram(work.program));
  work.bytes += LoweringBytes(work.program);
  return work.FindWanted();
}

absl::Status ProgramService::Work::PlaceSlices() {
  if (static_cast<size_t>(message.slices_size()) != program.slices.size())
    return InvalidArgument("program {} has {} slices, but devices of {} were given", program.name,
                           program.slices.size(), message.slices_size());
  std::map<std::vector<int32_t>, int32_t> places;
  for (int s = 0; s < message.slices_size(); ++s) {
    const auto& given = message.slices(s).devices();
    const std::vector<int32_t> ids(given.begin(), given.end());
    const ProgramSlice& slice = program.slices[s];
    const auto what = [&] {
      return fmt::format("program {}: slice \"{}\"", program.name, slice.name);
    };
    if (ids.size() != static_cast<size_t>(slice.devices))
      return InvalidArgument("{} has {} devices, but {} were given", what(), slice.devices,
                             ids.size());
    const absl::StatusOr<IslandId> island = IslandOf(all, ids);
    if (!island.ok()) return Annotate(island.status(), what());
    if (std::set<int32_t>(ids.begin(), ids.end()).size() != ids.size())
      return InvalidArgument("{}: a device is given twice", what());
    const auto [place, fresh] = places.try_emplace(ids, static_cast<int32_t>(devices.size()));
    lowering.places.push_back(place->second);
    if (fresh) {
      auto& physical = devices.emplace_back();
      for (const int32_t id : ids) physical.push_back(all[id].device);
      islands.push_back(*island);
    }
    slices.push_back(ids);
  }
  return absl::OkStatus();
}

absl::Status ProgramService::Work::FindWanted() {
  std::set<std::pair<int32_t, int32_t>> known;  // pairs of computation and place
  for (const Graph& graph : program.graphs) {
    for (const ProgramNode& node : graph.nodes) {
      const auto* compute = std::get_if<ComputeNode>(&node.op);
      if (compute == nullptr) continue;
      const int32_t place = lowering.places[compute->slice];
      if (!known.emplace(compute->computation, place).second) continue;
      const Computation& code = program.computations[compute->computation];
      absl::Status runs =
          CheckRuns(all[slices[compute->slice][0]], code.format == Computation::Format::kNative);
      if (!runs.ok()) return Annotate(runs, Named(program, code));
    }
  }
  for (const auto& [computation, place] : known) {
    // A computation has the same digest at every place.
    const bool same = !wanted.empty() && wanted.back().computation == computation;
    Wanted& of = wanted.emplace_back();
    of.computation = computation;
    of.place = place;
    of.code = same ? wanted[wanted.size() - 2].code
                   : KnownProgram(program.computations[computation].code);
  }
  return absl::OkStatus();
}

absl::Status ProgramService::Work::TakeCode(const Wanted& of) {
  const Computation& declared = program.computations[of.computation];
  const size_t count = devices[of.place].size();
  const ExecutableSpec& spec = *of.compiled;
  FAIRWAY_RETURN_IF_ERROR(Same("parameter", declared.parameters, spec.parameters, count));
  FAIRWAY_RETURN_IF_ERROR(Same("result", declared.results, spec.outputs, count));
  BoundCode bound;
  bound.executable = spec.id;
  bound.temp_bytes = spec.temp_bytes;
  for (size_t p = 0; p < spec.parameters.size(); ++p) {
    if (spec.parameters[p].donated) bound.donates.push_back(static_cast<int32_t>(p));
  }
  for (const ValueType& output : spec.outputs)
    bound.outputs.push_back({output.dtype, output.shard, output.memory_kind});
  lowering.code[{of.computation, of.place}] = std::move(bound);
  return absl::OkStatus();
}

absl::Status ProgramService::Work::Lower(Work& work) {
  for (const Wanted& of : work.wanted)
    FAIRWAY_RETURN_IF_ERROR(Annotate(work.TakeCode(of), work.NameOf(of)));
  FAIRWAY_ASSIGN_OR_RETURN(work.source.plan,
                           fairway::Lower(work.program, work.types, work.lowering));
  work.source.name = work.name;
  work.source.slices = std::move(work.slices);
  work.program = {};
  work.types = {};
  work.lowering = {};
  work.wanted = {};
  work.bytes = PlacedBytes(work.source);
  return absl::OkStatus();
}

absl::Status ProgramService::Work::Place(Work& work) {
  FAIRWAY_ASSIGN_OR_RETURN(work.placed,
                           PlaceProgram(std::move(work.source), work.all, EncodeSequence));
  if (work.request.describe != nullptr) work.request.describe(SignatureOf(*work.placed));
  return absl::OkStatus();
}

struct ProgramService::Binding {
  uint64_t key = 0;
  uint64_t out = 0;
  std::shared_ptr<Work> work = std::make_shared<Work>();
  size_t asked = 0;  // computations that the compiler was asked for
  size_t open = 0;   // those without an answer, and one more until all have been asked for
  std::vector<std::shared_ptr<const void>> holds;  // keep their code until the program is bound
  absl::Status failure;
  Done done;
};

ProgramService::ProgramService(Cluster* cluster, CompileService* compiler, SessionId session,
                               OffLoop off_loop)
    : cluster_(cluster),
      compiler_(compiler),
      session_(session),
      off_loop_(std::move(off_loop)),
      alive_(std::make_shared<std::atomic<bool>>(true)) {}

ProgramService::~ProgramService() {
  *alive_ = false;
  for (const auto& [key, binding] : bindings_) GiveUp(*binding);
}

void ProgramService::GiveUp(Binding& binding) {
  off_loop_([work = std::exchange(binding.work, nullptr)] {}, [] {});
}

void ProgramService::Bind(Request request, Done done) {
  auto binding = std::make_shared<Binding>();
  binding->key = next_key_++;
  binding->out = request.out;
  binding->done = std::move(done);
  binding->work->request = std::move(request);
  binding->work->all = cluster_->sessions().SharedDevices(session_);
  bindings_[binding->key] = binding;
  Off(binding, &Work::Weigh, [this, binding] {
    if (!Reserve(binding)) return;
    Off(binding, &Work::Check, [this, binding] {
      if (!Reserve(binding)) return;
      binding->open = 1;
      Compile(binding);
    });
  });
}

void ProgramService::Off(const std::shared_ptr<Binding>& binding, absl::Status (*step)(Work&),
                         std::function<void()> then) {
  const auto status = std::make_shared<absl::Status>();
  off_loop_(
      [alive = alive_, work = binding->work, step, status] {
        if (*alive) *status = step(*work);
        if (!*alive || !status->ok()) *work = Work();
      },
      [this, alive = alive_, binding, status, then = std::move(then)] {
        if (!*alive) return;
        status->ok() ? then() : End(binding, *status);
      });
}

bool ProgramService::Reserve(const std::shared_ptr<Binding>& binding) {
  const Work& work = *binding->work;
  const absl::Status reserved =
      cluster_->programs().Reserve(session_, binding->key, work.name, work.bytes);
  if (!reserved.ok()) End(binding, reserved);
  return reserved.ok();
}

void ProgramService::Compile(const std::shared_ptr<Binding>& binding) {
  constexpr int kAtOnce = 32;
  Work& work = *binding->work;
  const auto more = [&] { return binding->asked < work.wanted.size() && binding->failure.ok(); };
  for (int i = 0; i < kAtOnce && more(); ++i) {
    const size_t number = binding->asked++;
    ++binding->open;
    const Work::Wanted& of = work.wanted[number];
    const std::vector<DeviceId>& devices = work.devices[of.place];
    compiler_->Compile(
        *of.code, OptionsFor(work.program.computations[of.computation], devices.size()),
        {session_, work.islands[of.place], devices},
        [this, alive = alive_, binding, number](const absl::StatusOr<CompiledProgram>& code) {
          if (*alive) Compiled(binding, number, code);
        });
  }
  if (!more()) return Lower(binding);
  // Others have their turn first.
  off_loop_([] {},
            [this, alive = alive_, binding] {
              if (*alive) Compile(binding);
            });
}

void ProgramService::Compiled(const std::shared_ptr<Binding>& binding, size_t number,
                              const absl::StatusOr<CompiledProgram>& code) {
  Work::Wanted& of = binding->work->wanted[number];
  absl::Status status = code.status();
  if (status.ok()) {
    binding->holds.push_back(code->hold);
    of.compiled = cluster_->executables().Find(code->id);
    if (of.compiled == nullptr)
      status = Error(absl::StatusCode::kUnavailable, "its code was given up; try again");
  }
  if (!status.ok() && binding->failure.ok())
    binding->failure = Annotate(status, binding->work->NameOf(of));
  Lower(binding);
}

void ProgramService::Lower(const std::shared_ptr<Binding>& binding) {
  if (--binding->open > 0) return;
  if (!binding->failure.ok()) return End(binding, binding->failure);
  Off(binding, &Work::Lower, [this, binding] {
    if (!Reserve(binding)) return;
    Off(binding, &Work::Place, [this, binding] {
      cluster_->programs().Bind(session_, binding->key, binding->out,
                                std::move(binding->work->placed));
    });
  });
}

void ProgramService::Bound(uint64_t key, const absl::StatusOr<uint64_t>& program) {
  const auto binding = bindings_.find(key);
  if (binding != bindings_.end()) End(std::shared_ptr<Binding>(binding->second), program);
}

void ProgramService::End(const std::shared_ptr<Binding>& binding,
                         const absl::StatusOr<uint64_t>& bound) {
  bindings_.erase(binding->key);
  (void)cluster_->programs().Reserve(session_, binding->key, "", 0);  // the session may have ended
  GiveUp(*binding);
  binding->holds.clear();
  std::exchange(binding->done, nullptr)(bound);
}

}  // namespace fairway
