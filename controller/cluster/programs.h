// SPDX-License-Identifier: Apache-2.0
// Dataflow programs of sessions: bound, run and released (docs/design/0040-programs.md).
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PROGRAMS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PROGRAMS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"

namespace fairway {

// A program is many computations and transfers that a client runs as one. It comes lowered and
// placed (placed_program.h), is bound to a session, and may then be run again and again.
//
// Loop-confined. Nothing blocks. NOT_FOUND: the session has ended, or has no such program.
class Cluster::Programs {
 public:
  using Bound = std::function<void(absl::StatusOr<uint64_t>)>;
  // From now on `bytes` of memory are taken by a program of this session that is being bound; 0:
  // none. `key`: the caller's, which tells its programs apart; `name`: for messages.
  // RESOURCE_EXHAUSTED: the session may not have so many more (ClusterOptions::record_memory); it
  // keeps what it had.
  absl::Status Reserve(SessionId session, uint64_t key, const std::string& name, size_t bytes);
  // Ends that, and makes the program known, in several turns: meanwhile the session takes other
  // operations. Its constants are put on their devices. `bound` gets the session's handle for it,
  // `out` unless that is 0; it is not called when the session ends before. Its bytes are counted,
  // and its computations stay defined, until it is released. RESOURCE_EXHAUSTED as above;
  // ALREADY_EXISTS: the handle is in use; NOT_FOUND: there is no code of a computation.
  void Bind(SessionId session, uint64_t key, uint64_t out, std::shared_ptr<PlacedProgram> program,
            Bound bound);
  // Does all of it at once, for tests. INVALID_ARGUMENT as PlaceProgram.
  absl::StatusOr<uint64_t> Bind(SessionId session, uint64_t out, ProgramSource source);
  // A large one is given up in several turns: meanwhile the session is busy.
  absl::Status Release(SessionId session, uint64_t handle);
  absl::StatusOr<ExecutableSignature> Signature(SessionId session, uint64_t program) const;
  // Runs it once; runs may overlap. A long program is made in several turns: until all its steps
  // are made the session is busy, and the results are not there. Arguments that lie elsewhere or
  // are cut in another way are resharded. Donated arguments (but options.non_donatable) are
  // deleted. Fire and forget as Execute.
  absl::StatusOr<ExecuteResult> Run(SessionId session, uint64_t program,
                                    const std::vector<uint64_t>& args,
                                    const ExecuteOptions& options,
                                    const std::vector<uint64_t>& out);

 private:
  friend class Cluster;
  explicit Programs(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAMS_H_
