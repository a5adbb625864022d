// SPDX-License-Identifier: Apache-2.0
// Compiles on behalf of sessions: caches code by content, otherwise asks a worker, and makes the
// result known to the core.
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

#include "base/memory_budget.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/virtual_device.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

// The code and metadata that a compiler answers with.
struct CompiledCode {
  std::string code;
  std::string checksum;  // SHA-256 of `code`, hex
  v1::ExecutableMetadata metadata;
  std::optional<uint32_t> crc = std::nullopt;  // CRC-32C of `code`, if it is large
};

// Where programs are compiled: in a compile process of one of the island's workers. Loop-confined.
class CompileBackend {
 public:
  virtual ~CompileBackend() = default;
  // `session`: whose program it is. Work that grows with its size is done by sessions in turn.
  // `done` runs in the loop, once. UNAVAILABLE: no worker of the island is connected, or the one
  // that was asked went away; a fault of the program never gives this code.
  virtual void Compile(SessionId session, IslandId island,
                       std::shared_ptr<const std::string> program, v1::CompileOptions options,
                       std::function<void(absl::StatusOr<CompiledCode>)> done) = 0;
};

// A program and its key. A program with constants may have hundreds of MiB, so its bytes are
// shared, not copied.
struct KnownProgram {
  // Hashing takes a millisecond per MiB.
  explicit KnownProgram(std::shared_ptr<const std::string> bytes);
  std::shared_ptr<const std::string> bytes;
  std::string sha256;  // raw
};

// Whether a compiler option (compiler_options of jax.jit) names a file or a folder. The worker's
// user would read or write that on the worker, so no front door passes such an option on.
bool NamesFiles(std::string_view option);

// UNIMPLEMENTED: the runtime of the device's slice runs only programs of the other kind: native
// ones, or StableHLO.
absl::Status CheckRuns(const VirtualDevice& device, bool native);

struct CompiledProgram {
  ExecutableId id;  // defined in the cluster, for the requested devices
  std::shared_ptr<const v1::ExecutableMetadata> metadata;
  // While anyone holds this the code counts as in use, even without a handle in a session.
  std::shared_ptr<const void> hold;
};

// Loop-confined. Programs are compiled for devices 0..n-1 of a worker and loaded for the requested
// devices, so that one compilation serves every placement on an island of the same platform. Code
// that names its devices (v1::ExecutableMetadata) is compiled again for each other placement. A
// compilation that a worker left behind when it went away is asked again: of another worker of its
// island, else of another island of the same platform and size.
class CompileService {
 public:
  using Done = std::function<void(absl::StatusOr<CompiledProgram>)>;
  // For whom a program is compiled, and where it is to run.
  struct Target {
    SessionId session;
    IslandId island;
    std::vector<DeviceId> devices;  // cluster-wide, of the island, in the order of the assignment
  };
  static constexpr int64_t kCacheBytes = int64_t{256} << 20;
  static constexpr int64_t kCodeBytes = int64_t{512} << 20;

  // Code that no session has a handle for is kept for later sessions until all code together passes
  // `cache_bytes`; then the code that was requested longest ago goes first.
  //
  // All code counts in `memory`, or else may have kCodeBytes. A session pays for the code that was
  // compiled for it, until nobody has a handle for the code and it is given up; others may use it.
  // Code that would take more than its session's share (MemoryBudget) is not kept: whoever asked
  // for it gets RESOURCE_EXHAUSTED, unless one of them has room to pay. Unused code goes first.
  // `off_loop` runs `work`, which is `session`'s, on another thread, then `then` in the loop: for
  // programs of many arguments and results. nullptr: the loop does it.
  using OffLoop = std::function<void(SessionId session, std::function<void()> work,
                                     std::function<void()> then)>;
  CompileService(Cluster* cluster, CompileBackend* backend, int64_t cache_bytes = kCacheBytes,
                 std::shared_ptr<MemoryBudget> memory = nullptr, OffLoop off_loop = nullptr);
  ~CompileService();

  // `options.devices` is ignored. The target of portable code is the one device meant. `done` may
  // run in this call.
  void Compile(KnownProgram program, v1::CompileOptions options, Target target, Done done);

  // The code of `id` for other devices of an island of the same platform, defined in the cluster;
  // for portable code, which runs on any one device. NOT_FOUND: this service did not make it.
  // INVALID_ARGUMENT: the number of devices differs. UNIMPLEMENTED: the island has another
  // platform.
  absl::StatusOr<ExecutableId> Place(ExecutableId id, IslandId island,
                                     const std::vector<DeviceId>& devices);

  // Unloads half of the code on `island` that no session has a handle for, the half that was
  // requested longest ago. It stays in the cache, and is loaded again on request.
  void UnloadUnused(IslandId island);
  // The island is gone: forgets its placed code, except code that a session has a handle for.
  void ForgetIsland(IslandId island);

  // Programs compiled, and answers served from the cache.
  uint64_t compilations() const { return compilations_; }
  uint64_t cache_hits() const { return cache_hits_; }
  // Bytes of all code that is held, and of its metadata.
  int64_t bytes() const { return bytes_; }

 private:
  struct Waiter;
  struct Entry;

  // The platform that islands must share to share code, as the island's executor told when it last
  // registered. NOT_FOUND: there is no such island.
  absl::StatusOr<std::string> PlatformOf(IslandId island) const;
  // As Compile. `options.devices` are those that the code may name.
  void CompileFor(const KnownProgram& program, const v1::CompileOptions& options, Waiter waiter);
  // Answers with the code of `entry`, made of `program` and `options`; compiles again if it names
  // other devices than the waiter's.
  void Answer(Entry& entry, const KnownProgram& program, const v1::CompileOptions& options,
              Waiter waiter);
  std::vector<int32_t> Ordinals(const std::vector<DeviceId>& devices) const;
  // INVALID_ARGUMENT: the code is for another number of devices. RESOURCE_EXHAUSTED, INTERNAL: it
  // has too many arguments and results, or a negative size.
  static absl::Status CheckMetadata(const v1::ExecutableMetadata& metadata, size_t devices);
  // The code's description for these devices, without its id and its bytes. Any thread.
  static absl::StatusOr<ExecutableSpec> SpecOf(const v1::ExecutableMetadata& metadata,
                                               IslandId island,
                                               const std::vector<DeviceId>& devices);
  // Returns the id of the code that is defined for these devices; 0: it is not.
  ExecutableId Defined(const Entry& entry, const std::vector<DeviceId>& devices) const;
  ExecutableId Define(Entry& entry, ExecutableSpec spec, CodeLayout layout);
  absl::StatusOr<ExecutableId> DefineHere(Entry& entry, IslandId island,
                                          const std::vector<DeviceId>& devices);
  // The same; another thread makes the description and the layout.
  void DefineElsewhere(Entry& entry, Waiter waiter);
  // The waiter's answer.
  void Tell(Entry& entry, const Waiter& waiter, const absl::StatusOr<ExecutableId>& id);
  // Asks a worker of `island` to compile what entries_[key] is for.
  void Ask(IslandId island, const std::string& key, const KnownProgram& program,
           const v1::CompileOptions& options);
  void Compiled(IslandId asked, const std::string& key, const KnownProgram& program,
                const v1::CompileOptions& options, absl::StatusOr<CompiledCode> result);
  // The island to ask next when `asked` had no worker for `entry`; nullopt: enough were asked.
  std::optional<IslandId> AskNext(Entry& entry, IslandId asked) const;
  // Gives up code that nobody has a handle for, the oldest first, until enough() says so. Returns
  // whether it did.
  bool Trim(const std::function<bool()>& enough);
  // The session's share of the memory for code.
  std::shared_ptr<MemoryBudget> ShareOf(SessionId session);
  // Charges the code to the first of its waiting sessions that has room for it.
  // RESOURCE_EXHAUSTED: none has.
  absl::Status Charge(Entry& entry, const std::string& name);
  std::set<ExecutableId> InUse();
  // Placed code on an island that no session has a handle for.
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
  const std::shared_ptr<MemoryBudget> memory_;  // of all code
  std::map<SessionId, std::weak_ptr<MemoryBudget>> shares_;
  const OffLoop off_loop_;
  std::shared_ptr<bool> alive_;  // false once the service has ended, for answers that come later
  int64_t bytes_ = 0;
  uint64_t next_id_ = 1;
  uint64_t next_use_ = 1;
  uint64_t compilations_ = 0;
  uint64_t cache_hits_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_COMPILE_COMPILE_SERVICE_H_
