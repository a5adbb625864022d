// SPDX-License-Identifier: Apache-2.0
// Dataflow programs of sessions: bound, run and released (docs/design/0040-programs.md).
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PROGRAMS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PROGRAMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"

namespace fairway {

// A program is many computations and transfers that a client runs as one. It comes lowered and
// placed (placed_program.h), is bound to a session, and may then be run any number of times.
//
// Loop-confined. Nothing blocks. NOT_FOUND: the session has ended, or has no such program.
class Cluster::Programs {
 public:
  // Counts `bytes` of memory for a program of this session that is being bound, from now on; 0:
  // none. `key` is the caller's, and tells its programs apart; `name` is for messages.
  // RESOURCE_EXHAUSTED: the session may not have so many (ClusterOptions::record_memory); then its
  // count does not change.
  absl::Status Reserve(SessionId session, uint64_t key, const std::string& name, size_t bytes);
  // Ends the reservation, and makes the program known in several turns. Meanwhile the session takes
  // other operations. The program's constants are put on their devices. SessionSink::OnBound gets
  // `key` and the session's handle for the program: `out` unless that is 0. Until the program is
  // released its bytes count, and its computations stay defined. RESOURCE_EXHAUSTED as above;
  // ALREADY_EXISTS: the handle is in use; NOT_FOUND: a computation has no code.
  void Bind(SessionId session, uint64_t key, uint64_t out, std::shared_ptr<PlacedProgram> program);
  // Places and binds at once, for tests. INVALID_ARGUMENT as for PlaceProgram.
  absl::StatusOr<uint64_t> Bind(SessionId session, uint64_t out, ProgramSource source);
  // A large program is given up in several turns; the session is busy meanwhile.
  absl::Status Release(SessionId session, uint64_t handle);
  // The bound program, which does not change any more: any thread may read it (SignatureOf).
  absl::StatusOr<std::shared_ptr<const PlacedProgram>> Find(SessionId session,
                                                            uint64_t program) const;
  // Runs the program once; runs may overlap. A long run is made in several turns: until all steps
  // are made the session is busy, and the results do not exist. Arguments that lie elsewhere or are
  // cut in another way are resharded. Donated arguments (except options.non_donatable) are deleted.
  // With `out` handles errors go into the results, as in Execute.
  absl::StatusOr<ExecuteResult> Run(SessionId session, uint64_t program,
                                    const std::vector<uint64_t>& args,
                                    const ExecuteOptions& options,
                                    const std::vector<uint64_t>& out);
  // The same, but its handles and arguments are checked in turns as well: for front doors, as
  // Executables::Execute. `done` is called when the results exist.
  NodeId Run(SessionId session, uint64_t program, std::vector<uint64_t> args,
             const ExecuteOptions& options, std::vector<uint64_t> out, Done done,
             Each each = nullptr);

 private:
  friend class Cluster;
  explicit Programs(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAMS_H_
