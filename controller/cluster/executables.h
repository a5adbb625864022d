// SPDX-License-Identifier: Apache-2.0
// Compiled code: what the core knows of it, which handles sessions have, and its launches.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLES_H_

#include <cstdint>
#include <set>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/executable_spec.h"

namespace fairway {

// The core knows code by the id of its content, shares it among all sessions, and installs it at
// executors when first needed. A session has handles for code, each over devices of its own.
//
// Loop-confined. Nothing blocks. NOT_FOUND: the session has ended, or has no such handle.
class Cluster::Executables {
 public:
  // Makes code known by its id; a second definition of the same id is ignored.
  void Define(ExecutableSpec spec);
  // The same, with the layout of that code (LayoutOf), which takes 0.1 us for each argument and
  // result; any thread can make it from the seats of its devices.
  void Define(ExecutableSpec spec, CodeLayout layout);
  std::vector<DeviceSeat> SeatsOf(const std::vector<DeviceId>& devices) const;
  bool Has(ExecutableId id) const { return Find(id) != nullptr; }
  // nullptr: the id is unknown. Valid until the code is forgotten.
  const ExecutableSpec* Find(ExecutableId id) const;
  // The code that has a handle, or that unfinished work or the loading of an executor needs.
  std::set<ExecutableId> InUse() const;
  // Forgets code that is not in use; the executors that loaded it drop it.
  void Forget(ExecutableId id);
  // Makes a session's handle for defined code over these virtual devices. Several handles may share
  // one executable. NOT_FOUND: there is no such code. INVALID_ARGUMENT: it was compiled for other
  // devices, or `out` is outside the client's range. ALREADY_EXISTS: `out` is in use.
  absl::StatusOr<uint64_t> Bind(SessionId session, uint64_t out, ExecutableId id,
                                const std::vector<int32_t>& devices);
  absl::Status Release(SessionId session, uint64_t handle);
  // Releases many handles, of executables and programs alike, in several turns. The session is busy
  // meanwhile. `each` is called with each handle as it is given up.
  void Release(SessionId session, std::vector<uint64_t> handles, Ended ended, Each each = nullptr);
  absl::StatusOr<ExecutableSignature> Signature(SessionId session, uint64_t executable) const;

  absl::StatusOr<ResultTypes> Results(SessionId session, uint64_t executable) const;

  // Runs the executable once. With `out` handles given, the client need not wait for the answer:
  // every error is also put into them. INVALID_ARGUMENT: the number, dtype, shape, devices or
  // shards of the arguments are not those of the executable (the text says which argument, what
  // came and what was expected). FAILED_PRECONDITION: an argument was deleted or donated.
  absl::StatusOr<ExecuteResult> Execute(SessionId session, uint64_t executable,
                                        const std::vector<uint64_t>& args,
                                        const ExecuteOptions& options,
                                        const std::vector<uint64_t>& out);
  // The same in several turns, for front doors: the call may have many arguments and results. The
  // session is busy meanwhile. `done` gets the handles of the results, or why the call was refused;
  // it may call the core. `each` gets each handle as its array is made; it must not. Returns a
  // bound: the nodes of the call have no lower ids.
  NodeId Execute(SessionId session, uint64_t executable, std::vector<uint64_t> args,
                 const ExecuteOptions& options, std::vector<uint64_t> out, Done done,
                 Each each = nullptr);

 private:
  friend class Cluster;
  explicit Executables(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_EXECUTABLES_H_
