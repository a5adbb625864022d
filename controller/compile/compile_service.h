// SPDX-License-Identifier: Apache-2.0
// Compiling on behalf of sessions: caches by content, asks a worker otherwise, and
// makes the result known to the core.
#ifndef FAIRWAY_CONTROLLER_COMPILE_COMPILE_SERVICE_H_
#define FAIRWAY_CONTROLLER_COMPILE_COMPILE_SERVICE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/virtual_device.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

// A compiler's answer.
struct CompiledCode {
  std::string code;
  std::string checksum;  // SHA-256 of `code`, hex
  v1::ExecutableMetadata metadata;
};

// Where programs get compiled: a compile process of one of the island's workers. Loop-confined.
class CompileBackend {
 public:
  virtual ~CompileBackend() = default;
  // `done` runs in the loop, once. UNAVAILABLE: no worker of the island is connected, or the one
  // that was asked went away; a program is no reason.
  virtual void Compile(IslandId island, std::shared_ptr<const std::string> program,
                       v1::CompileOptions options,
                       std::function<void(absl::StatusOr<CompiledCode>)> done) = 0;
};

// A program and what it is known by. Programs with constants may have hundreds of MiB: they are
// shared, not copied.
struct KnownProgram {
  // Takes a millisecond per MiB.
  explicit KnownProgram(std::shared_ptr<const std::string> bytes);
  std::shared_ptr<const std::string> bytes;
  std::string sha256;  // raw
};

// Whether a compiler option (compiler_options of jax.jit) names a file or a folder, which would be
// read or written on the worker, by the worker's user: no front door passes one on.
bool NamesFiles(std::string_view option);

// UNIMPLEMENTED: the runtime of the device's slice takes programs of the other kind: native ones,
// or StableHLO.
absl::Status CheckRuns(const VirtualDevice& device, bool native);

struct CompiledProgram {
  ExecutableId id;  // defined in the cluster, for the devices asked for
  std::shared_ptr<const v1::ExecutableMetadata> metadata;
  // While anybody has it the code counts as in use, bound to a session or not.
  std::shared_ptr<const void> hold;
};

// Loop-confined. Programs are compiled for devices 0..n-1 of a worker and loaded for the devices
// asked for, so that one compilation serves every placement on an island of the same platform. Code
// that names its devices (v1::ExecutableMetadata) is compiled again for each other placement. What
// a worker did not end because it went away is asked again: of another one of its island, else of
// another island of the same platform and size.
class CompileService {
 public:
  using Done = std::function<void(absl::StatusOr<CompiledProgram>)>;
  static constexpr int64_t kCacheBytes = int64_t{1} << 30;

  // Code that no session has a handle for is kept for the next one until all code together passes
  // `cache_bytes`; then what was asked for longest ago goes first.
  CompileService(Cluster* cluster, CompileBackend* backend, int64_t cache_bytes = kCacheBytes);
  ~CompileService();

  // `options.devices` is ignored; `devices` (cluster-wide, of one island) are where the program is
  // to run, in the order of the device assignment; portable: the one device meant. `done` runs in
  // this call when the answer is cached.
  void Compile(KnownProgram program, v1::CompileOptions options, IslandId island,
               const std::vector<DeviceId>& devices, Done done);

  // The code of `id` for other devices of an island of the same platform, defined in the cluster;
  // for portable code, which runs on any one device. NOT_FOUND: not made by this service.
  // INVALID_ARGUMENT: another number of devices. UNIMPLEMENTED: the island's platform is another
  // one.
  absl::StatusOr<ExecutableId> Place(ExecutableId id, IslandId island,
                                     const std::vector<DeviceId>& devices);

  // Unloads, of the code on `island` that no session has a handle for, the half that was asked for
  // longest ago. It stays in the cache, and is loaded again when it is asked for.
  void UnloadUnused(IslandId island);
  // The island is gone: forgets where its code was placed, but for what a session has a handle for.
  void ForgetIsland(IslandId island);

  // Programs compiled, and answers served from the cache.
  uint64_t compilations() const { return compilations_; }
  uint64_t cache_hits() const { return cache_hits_; }
  // Of the code held and what is known of it.
  int64_t bytes() const { return bytes_; }

 private:
  struct Waiter;
  struct Entry;

  // What must be equal for code to be shared, as the island's executor told when it registered
  // last. NOT_FOUND: there is no such island.
  absl::StatusOr<std::string> PlatformOf(IslandId island) const;
  // As Compile; `options.devices` are those that the code may name.
  void CompileFor(const KnownProgram& program, const v1::CompileOptions& options, Waiter waiter);
  // With the code of `entry`, made of `program` and `options`; compiles again if it names other
  // devices than the waiter's.
  void Answer(Entry& entry, const KnownProgram& program, const v1::CompileOptions& options,
              Waiter waiter);
  std::vector<int32_t> Ordinals(const std::vector<DeviceId>& devices) const;
  absl::StatusOr<ExecutableId> Define(Entry& entry, IslandId island,
                                      const std::vector<DeviceId>& devices);
  // Asks a worker of `island`.
  void Ask(IslandId island, const std::string& key, const KnownProgram& program,
           const v1::CompileOptions& options);
  void Compiled(IslandId asked, const std::string& key, const KnownProgram& program,
                const v1::CompileOptions& options, absl::StatusOr<CompiledCode> result);
  // The island to ask next when `asked` had nobody to compile for `entry`; none: enough were asked.
  std::optional<IslandId> AskNext(Entry& entry, IslandId asked) const;
  void Trim();
  std::set<ExecutableId> InUse();
  // Code on the island that no session has a handle for, and where it was placed.
  struct Unused {
    uint64_t last_use;
    Entry* entry;
    std::vector<DeviceId> devices;
  };
  std::vector<Unused> UnusedOn(IslandId island);
  void Unload(const std::vector<Unused>& unused);

  Cluster* const cluster_;
  CompileBackend* const backend_;
  const int64_t cache_bytes_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;  // by content: program, options, platform
  std::map<ExecutableId, std::shared_ptr<Entry>> entry_of_;
  std::map<ExecutableId, std::weak_ptr<const void>> held_;
  std::shared_ptr<bool> alive_;  // answers that come after the service's end find it gone
  int64_t bytes_ = 0;
  uint64_t next_id_ = 1;
  uint64_t next_use_ = 1;
  uint64_t compilations_ = 0;
  uint64_t cache_hits_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_COMPILE_COMPILE_SERVICE_H_
