// SPDX-License-Identifier: Apache-2.0
#include "controller/compile/compile_service.h"

#include <algorithm>
#include <utility>

#include <openssl/evp.h>
#include <spdlog/spdlog.h>

#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/virtual_device.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

// SHA-256, raw: a key, not for people.
std::string Digest(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

// With more arguments and results, another thread describes a placement of the code.
constexpr int kValuesInLoop = 1000;

// Options that do not depend on the placement: devices 0..n-1, none for portable code.
v1::CompileOptions Normalized(v1::CompileOptions options) {
  options.clear_devices();
  const int64_t count = options.num_replicas() * options.num_partitions();
  for (int64_t i = 0; !options.portable() && i < count; ++i)
    options.add_devices(static_cast<int32_t>(i));
  return options;
}

Shape DimsOf(const google::protobuf::RepeatedField<int64_t>& dims) {
  return Shape{{dims.begin(), dims.end()}};
}

// INTERNAL: the metadata contradicts itself. UNIMPLEMENTED, INVALID_ARGUMENT: there are more
// dimensions or bytes than a command to an executor can have.
absl::StatusOr<ValueType> ValueTypeOf(const v1::ValueSpec& spec, int num_devices) {
  ValueType out;
  const auto dtype = DTypeFromNumber(spec.dtype());
  if (!dtype.has_value())
    return Error(absl::StatusCode::kInternal, "the compiler answered element type {}",
                 spec.dtype());
  out.dtype = *dtype;
  out.global = DimsOf(spec.global_dims());
  out.shard = DimsOf(spec.shard_dims());
  if (out.global.rank() > kMaxRank)
    return Error(absl::StatusCode::kUnimplemented,
                 "the program takes or makes an array of {} dimensions; at most {} are served",
                 out.global.rank(), kMaxRank);
  FAIRWAY_RETURN_IF_ERROR(ByteSize(out.dtype, out.global).status());
  FAIRWAY_RETURN_IF_ERROR(ByteSize(out.dtype, out.shard).status());
  out.memory_kind = spec.memory_kind();
  out.donated = spec.donated();
  xla::OpSharding sharding;
  if (!sharding.ParseFromString(spec.op_sharding()))
    return Error(absl::StatusCode::kInternal,
                 "the compiler answered a sharding that does not parse");
  FAIRWAY_ASSIGN_OR_RETURN(TileAssignment tiles, TilesFromOpSharding(sharding, num_devices));
  out.tiles = std::move(tiles.tiles);
  out.tile_of = std::move(tiles.tile_of);
  out.per_device = tiles.kind == TileAssignment::Kind::kPerDevice;
  bool fits = out.shard.rank() == out.global.rank() &&
              (out.tiles.empty() || out.tiles.size() == out.global.dims.size());
  for (int d = 0; fits && d < out.global.rank(); ++d) {
    const int64_t pieces = out.tiles.empty() ? 1 : out.tiles[d];
    fits = out.shard.dims[d] == (out.global.dims[d] + pieces - 1) / pieces;
  }
  if (!fits)
    return Error(absl::StatusCode::kInternal,
                 "the compiler answered shards of {} for an array of {}",
                 ToString(out.dtype, out.shard), ToString(out.dtype, out.global));
  return out;
}

// A negative size would lower what is reserved on devices, and mislead clients.
absl::Status CheckSizes(const v1::MemoryStats& memory) {
  const std::pair<int64_t, const char*> sizes[] = {{memory.temp(), "temporary memory"},
                                                   {memory.argument(), "arguments"},
                                                   {memory.output(), "results"},
                                                   {memory.alias(), "aliased memory"},
                                                   {memory.generated_code(), "generated code"},
                                                   {memory.peak(), "peak memory"}};
  for (const auto& [bytes, what] : sizes) {
    if (bytes < 0)
      return Error(absl::StatusCode::kInternal, "the compiler answered {} bytes of {}", bytes,
                   what);
  }
  return absl::OkStatus();
}

}  // namespace

KnownProgram::KnownProgram(std::shared_ptr<const std::string> bytes)
    : bytes(std::move(bytes)), sha256(Digest(*this->bytes)) {}

struct CompileService::Waiter {
  Target target;
  Done done;
};

struct CompileService::Entry : std::enable_shared_from_this<Entry> {
  SessionId session;  // the first that wanted it
  std::string platform;
  bool ready = false;
  int being_defined = 0;  // placements that another thread describes
  uint64_t last_use = 0;
  int64_t bytes = 0;
  MemoryCharge charge;  // of its code, to whom pays for it
  std::shared_ptr<const std::string> code;
  std::string checksum;
  std::optional<uint32_t> crc;
  std::shared_ptr<const v1::ExecutableMetadata> metadata;
  std::map<std::vector<DeviceId>, ExecutableId> placed;
  std::vector<Waiter> waiting;  // until the code is ready
  int asked_again = 0;
  std::set<IslandId> without;  // islands that had no worker to compile it
};

bool NamesFiles(std::string_view option) {
  if (option.starts_with("xla_dump_")) return !option.starts_with("xla_dump_max_");
  for (const std::string_view end :
       {"_to", "_from", "_dir", "_path", "_file", "_filename", "_prefix"}) {
    if (option.ends_with(end)) return true;
  }
  return false;
}

absl::Status CheckRuns(const VirtualDevice& device, bool native) {
  if (native && device.runtime == "pjrt")
    return Error(absl::StatusCode::kUnimplemented,
                 "slice {} does not run native programs: its runtime is pjrt. Give it StableHLO, "
                 "or use a slice whose runtime is host or sim",
                 device.island);
  if (!native && (device.runtime == "host" || device.runtime == "sim"))
    return Error(absl::StatusCode::kUnimplemented,
                 "slice {} does not run StableHLO: its runtime is {}. Give it a native program, "
                 "or use a slice whose runtime is pjrt",
                 device.island, device.runtime);
  return absl::OkStatus();
}

CompileService::CompileService(Cluster* cluster, CompileBackend* backend, int64_t cache_bytes,
                               std::shared_ptr<MemoryBudget> memory, OffLoop off_loop)
    : cluster_(cluster),
      backend_(backend),
      cache_bytes_(cache_bytes),
      memory_(std::make_shared<MemoryBudget>(kCodeBytes, std::move(memory))),
      off_loop_(std::move(off_loop)),
      alive_(std::make_shared<bool>(true)) {}

CompileService::~CompileService() { *alive_ = false; }

// An executor that is down counts: it is on its way back, and work for it waits meanwhile. Nothing
// is compiled for a drained island, nor by its workers for others: they may be stopped.
absl::StatusOr<std::string> CompileService::PlatformOf(IslandId island) const {
  const ExecutorSpec* const spec = cluster_->fleet().AnyOf(island);
  if (spec == nullptr) return Error(absl::StatusCode::kNotFound, "there is no island {}", island);
  FAIRWAY_RETURN_IF_ERROR(cluster_->fleet().TakesWork(island));
  return fmt::format("{}/{}/{}/{}", spec->runtime, spec->platform_name, spec->platform_version,
                     spec->device_kind);
}

void CompileService::Compile(KnownProgram program, v1::CompileOptions options, Target target,
                             Done done) {
  if (options.num_replicas() != 1)
    return done(Error(absl::StatusCode::kUnimplemented,
                      "a program of {} replicas is not served; use partitions (jit with a "
                      "sharding, or shard_map)",
                      options.num_replicas()));
  options.set_tenant(cluster_->sessions().TenantOf(target.session));
  CompileFor(program, Normalized(std::move(options)), {std::move(target), std::move(done)});
}

void CompileService::CompileFor(const KnownProgram& program, const v1::CompileOptions& options,
                                Waiter waiter) {
  const IslandId island = waiter.target.island;
  const absl::StatusOr<std::string> platform = PlatformOf(island);
  if (!platform.ok()) return waiter.done(platform.status());
  const std::string key = program.sha256 + Digest(options.SerializeAsString()) + *platform;
  std::shared_ptr<Entry>& entry = entries_[key];
  if (entry != nullptr) {
    ++cache_hits_;
    entry->last_use = next_use_++;
    if (entry->ready) return Answer(*entry, program, options, std::move(waiter));
    entry->waiting.push_back(std::move(waiter));
    return;
  }
  entry = std::make_shared<Entry>();
  entry->session = waiter.target.session;
  entry->platform = *platform;
  entry->last_use = next_use_++;
  entry->waiting.push_back(std::move(waiter));
  ++compilations_;
  Ask(island, key, program, options);
}

void CompileService::Ask(IslandId island, const std::string& key, const KnownProgram& program,
                         const v1::CompileOptions& options) {
  backend_->Compile(
      entries_.at(key)->session, island, program.bytes, options,
      [this, island, key, program, options, alive = alive_](absl::StatusOr<CompiledCode> result) {
        if (*alive) Compiled(island, key, program, options, std::move(result));
      });
}

std::optional<IslandId> CompileService::AskNext(Entry& entry, IslandId asked) const {
  constexpr int kTimes = 2;  // so a program that ends workers ends only a few of them
  if (entry.asked_again == kTimes) return std::nullopt;
  ++entry.asked_again;
  // Ask the same island once more: another worker there may have a compiler.
  if (entry.without.insert(asked).second && PlatformOf(asked).ok()) return asked;
  const std::vector<ExecutorStatus> executors = cluster_->fleet().Executors();
  const auto here = std::ranges::find(executors, asked, &ExecutorStatus::island);
  for (const ExecutorStatus& other : executors) {
    const absl::StatusOr<std::string> platform = PlatformOf(other.island);
    // A compiler knows as many devices as the executors of its island have.
    if (other.up && !entry.without.contains(other.island) && platform.ok() &&
        *platform == entry.platform && here != executors.end() &&
        other.spec.num_devices == here->spec.num_devices)
      return other.island;
  }
  return std::nullopt;
}

void CompileService::Compiled(IslandId asked, const std::string& key, const KnownProgram& program,
                              const v1::CompileOptions& options,
                              absl::StatusOr<CompiledCode> result) {
  const auto it = entries_.find(key);
  const std::shared_ptr<Entry> entry = it->second;
  if (result.status().code() == absl::StatusCode::kUnavailable) {
    if (const auto next = AskNext(*entry, asked)) return Ask(*next, key, program, options);
  }
  absl::Status status = result.status();
  if (status.ok()) {
    entry->bytes = static_cast<int64_t>(result->code.size() + result->metadata.ByteSizeLong());
    status = Charge(*entry, result->metadata.name());
  }
  std::vector<Waiter> waiting = std::move(entry->waiting);
  entry->waiting.clear();
  if (!status.ok()) {
    entries_.erase(it);  // the next request tries again
    for (const Waiter& waiter : waiting) waiter.done(status);
    return;
  }
  entry->ready = true;
  entry->code = std::make_shared<const std::string>(std::move(result->code));
  entry->checksum = std::move(result->checksum);
  entry->crc = result->crc;
  entry->metadata = std::make_shared<const v1::ExecutableMetadata>(std::move(result->metadata));
  bytes_ += entry->bytes;
  for (Waiter& waiter : waiting) Answer(*entry, program, options, std::move(waiter));
  Trim([this] { return bytes_ <= cache_bytes_; });
}

std::shared_ptr<MemoryBudget> CompileService::ShareOf(SessionId session) {
  std::shared_ptr<MemoryBudget> share = shares_[session].lock();
  if (share == nullptr) shares_[session] = share = std::make_shared<MemoryBudget>(memory_);
  return share;
}

absl::Status CompileService::Charge(Entry& entry, const std::string& name) {
  std::erase_if(shares_, [](const auto& one) { return one.second.expired(); });
  std::shared_ptr<MemoryBudget> share;
  const auto find = [&] {
    return std::ranges::any_of(entry.waiting, [&](const Waiter& waiter) {
      share = ShareOf(waiter.target.session);
      return share->HasRoom(entry.bytes);
    });
  };
  if (find() || Trim(find)) {
    entry.charge = MemoryCharge(std::move(share), entry.bytes);
    return absl::OkStatus();
  }
  constexpr double kMiB = 1 << 20;
  return Error(
      absl::StatusCode::kResourceExhausted,
      "{}: its compiled code takes {:.1f} MiB of the controller's memory; the code that was "
      "compiled for this session holds {:.1f} MiB, and {:.1f} of the {:.1f} MiB for the code "
      "of all sessions are left; one session's may hold as much as is left to others: give up "
      "executables that are no longer needed (jax.clear_caches()), or pass large constants as "
      "arguments",
      name, entry.bytes / kMiB, ShareOf(entry.session)->used() / kMiB, memory_->room() / kMiB,
      kCodeBytes / kMiB);
}

std::set<ExecutableId> CompileService::InUse() {
  std::set<ExecutableId> out = cluster_->executables().InUse();
  std::erase_if(held_, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [id, hold] : held_) out.insert(id);
  return out;
}

bool CompileService::Trim(const std::function<bool()>& enough) {
  if (enough()) return true;
  const std::set<ExecutableId> in_use = InUse();
  std::map<uint64_t, std::map<std::string, std::shared_ptr<Entry>>::iterator> unused;  // by age
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = *it->second;
    const bool used = std::any_of(entry.placed.begin(), entry.placed.end(),
                                  [&](const auto& place) { return in_use.contains(place.second); });
    if (entry.ready && !used && entry.being_defined == 0) unused.emplace(entry.last_use, it);
  }
  for (const auto& [age, it] : unused) {
    for (const auto& [devices, id] : it->second->placed) {
      cluster_->executables().Forget(id);
      entry_of_.erase(id);
    }
    bytes_ -= it->second->bytes;
    entries_.erase(it);
    if (enough()) return true;
  }
  return false;
}

std::vector<CompileService::Unused> CompileService::UnusedOn(IslandId island) {
  const std::set<ExecutableId> in_use = InUse();
  std::vector<Unused> unused;
  for (const auto& [key, entry] : entries_) {
    for (const auto& [devices, id] : entry->placed) {
      const ExecutableSpec* const spec = cluster_->executables().Find(id);
      if (spec != nullptr && spec->island == island && !in_use.contains(id))
        unused.push_back({entry->last_use, entry.get(), devices});
    }
  }
  return unused;
}

void CompileService::Unload(const std::vector<Unused>& unused) {
  for (const Unused& one : unused) {
    const auto placed = one.entry->placed.find(one.devices);
    cluster_->executables().Forget(placed->second);
    entry_of_.erase(placed->second);
    one.entry->placed.erase(placed);
  }
}

void CompileService::UnloadUnused(IslandId island) {
  std::vector<Unused> unused = UnusedOn(island);
  std::ranges::sort(unused, {}, &Unused::last_use);
  unused.resize((unused.size() + 1) / 2);
  Unload(unused);
  for (const IslandStatus& status : cluster_->fleet().Islands()) {
    if (status.id == island && !unused.empty())
      spdlog::info("{}: unloaded {} programs that no session holds", status.name, unused.size());
  }
}

void CompileService::ForgetIsland(IslandId island) { Unload(UnusedOn(island)); }

void CompileService::Answer(Entry& entry, const KnownProgram& program,
                            const v1::CompileOptions& options, Waiter waiter) {
  // The island may have been forgotten or drained meanwhile.
  if (const auto there = PlatformOf(waiter.target.island); !there.ok())
    return waiter.done(there.status());
  if (entry.metadata->names_devices()) {
    const std::vector<int32_t> ordinals = Ordinals(waiter.target.devices);
    if (!std::ranges::equal(ordinals, options.devices())) {
      v1::CompileOptions own = options;
      own.mutable_devices()->Assign(ordinals.begin(), ordinals.end());
      return CompileFor(program, own, std::move(waiter));
    }
  }
  const v1::ExecutableMetadata& metadata = *entry.metadata;
  const int values = metadata.parameters_size() + metadata.outputs_size();
  if (values > kValuesInLoop && off_loop_ != nullptr && !Defined(entry, waiter.target.devices))
    return DefineElsewhere(entry, std::move(waiter));
  Tell(entry, waiter, DefineHere(entry, waiter.target.island, waiter.target.devices));
}

void CompileService::Tell(Entry& entry, const Waiter& waiter,
                          const absl::StatusOr<ExecutableId>& id) {
  if (!id.ok()) return waiter.done(id.status());
  std::weak_ptr<const void>& held = held_[*id];
  std::shared_ptr<const void> hold = held.lock();
  if (hold == nullptr) held = hold = std::make_shared<bool>();
  waiter.done(CompiledProgram{*id, entry.metadata, std::move(hold)});
}

std::vector<int32_t> CompileService::Ordinals(const std::vector<DeviceId>& devices) const {
  std::vector<int32_t> out;
  for (const DeviceId device : devices) out.push_back(cluster_->fleet().OrdinalOf(device));
  return out;
}

absl::Status CompileService::CheckMetadata(const v1::ExecutableMetadata& metadata, size_t devices) {
  if (devices != static_cast<size_t>(std::max(1, metadata.num_devices())))
    return InvalidArgument("a program compiled for {} devices cannot run on {}",
                           metadata.num_devices(), devices);
  FAIRWAY_RETURN_IF_ERROR(CheckCallValues(metadata.name(),
                                          static_cast<size_t>(metadata.parameters_size()),
                                          static_cast<size_t>(metadata.outputs_size())));
  return CheckSizes(metadata.memory());
}

absl::StatusOr<ExecutableSpec> CompileService::SpecOf(const v1::ExecutableMetadata& metadata,
                                                      IslandId island,
                                                      const std::vector<DeviceId>& devices) {
  const int count = static_cast<int>(devices.size());
  ExecutableSpec spec;
  spec.name = metadata.name();
  spec.island = island;
  spec.devices = devices;
  spec.parameters.reserve(static_cast<size_t>(metadata.parameters_size()));
  for (const v1::ValueSpec& value : metadata.parameters()) {
    FAIRWAY_ASSIGN_OR_RETURN(spec.parameters.emplace_back(), ValueTypeOf(value, count));
  }
  spec.outputs.reserve(static_cast<size_t>(metadata.outputs_size()));
  for (const v1::ValueSpec& value : metadata.outputs()) {
    FAIRWAY_ASSIGN_OR_RETURN(spec.outputs.emplace_back(), ValueTypeOf(value, count));
  }
  spec.temp_bytes = metadata.memory().temp();
  return spec;
}

ExecutableId CompileService::Defined(const Entry& entry,
                                     const std::vector<DeviceId>& devices) const {
  const auto placed = entry.placed.find(devices);
  if (placed == entry.placed.end() || !cluster_->executables().Has(placed->second)) return {};
  return placed->second;
}

ExecutableId CompileService::Define(Entry& entry, ExecutableSpec spec, CodeLayout layout) {
  ExecutableId& id = entry.placed[spec.devices];
  if (!id) id = ExecutableId(next_id_++);
  spec.id = id;
  spec.code = entry.code;
  spec.code_crc = entry.crc;
  spec.checksum = entry.checksum;
  cluster_->executables().Define(std::move(spec), std::move(layout));
  entry_of_[id] = entry.shared_from_this();
  return id;
}

absl::StatusOr<ExecutableId> CompileService::DefineHere(Entry& entry, IslandId island,
                                                        const std::vector<DeviceId>& devices) {
  FAIRWAY_RETURN_IF_ERROR(CheckMetadata(*entry.metadata, devices.size()));
  if (const ExecutableId id = Defined(entry, devices)) return id;
  FAIRWAY_ASSIGN_OR_RETURN(ExecutableSpec spec, SpecOf(*entry.metadata, island, devices));
  CodeLayout layout = LayoutOf(spec, cluster_->executables().SeatsOf(devices));
  return Define(entry, std::move(spec), std::move(layout));
}

void CompileService::DefineElsewhere(Entry& entry, Waiter waiter) {
  const Target& target = waiter.target;
  if (const absl::Status fits = CheckMetadata(*entry.metadata, target.devices.size()); !fits.ok())
    return waiter.done(fits);
  using Made = absl::StatusOr<std::pair<ExecutableSpec, CodeLayout>>;
  const auto made = std::make_shared<Made>();
  auto work = [made, metadata = entry.metadata, island = target.island, devices = target.devices,
               seats = cluster_->executables().SeatsOf(target.devices)] {
    absl::StatusOr<ExecutableSpec> spec = SpecOf(*metadata, island, devices);
    if (!spec.ok()) {
      *made = spec.status();
      return;
    }
    CodeLayout layout = LayoutOf(*spec, seats);
    *made = std::pair(*std::move(spec), std::move(layout));
  };
  ++entry.being_defined;
  off_loop_(
      target.session, std::move(work),
      [this, alive = alive_, made, entry = entry.shared_from_this(), waiter = std::move(waiter)] {
        if (!*alive) return;
        --entry->being_defined;
        // The island may have been forgotten meanwhile, or another placement the same.
        if (const auto there = PlatformOf(waiter.target.island); !there.ok())
          return waiter.done(there.status());
        if (!made->ok()) return waiter.done(made->status());
        ExecutableId id = Defined(*entry, waiter.target.devices);
        if (!id) id = Define(*entry, std::move((*made)->first), std::move((*made)->second));
        Tell(*entry, waiter, id);
      });
}

absl::StatusOr<ExecutableId> CompileService::Place(ExecutableId id, IslandId island,
                                                   const std::vector<DeviceId>& devices) {
  const auto it = entry_of_.find(id);
  if (it == entry_of_.end())
    return Error(absl::StatusCode::kNotFound, "executable {} is unknown", id);
  FAIRWAY_ASSIGN_OR_RETURN(const std::string platform, PlatformOf(island));
  if (platform != it->second->platform)
    return Error(absl::StatusCode::kUnimplemented,
                 "code compiled for {} cannot run on an island of {}: compile it for a device of "
                 "that island",
                 it->second->platform, platform);
  return DefineHere(*it->second, island, devices);
}

}  // namespace fairway
