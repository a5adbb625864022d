// SPDX-License-Identifier: Apache-2.0
// The programs that sessions have, and their runs. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RUNS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RUNS_H_

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/program_records.h"
#include "controller/cluster/session.h"
#include "controller/cluster/work.h"

namespace fairway {

// Binds programs to sessions, runs them step by step and gives them up, a few steps in each turn
// (docs/design/0040-programs.md). Its own work lies in the worklist of the session: what is being
// bound, the run, what is being given up.
//
// Invariants: a program's bytes, and its sequences until they are forgotten, are counted in
// Session::program_records of its session. A retired sequence is one that no program has and that
// some node still runs.
class Cluster::ProgramRuns {
 public:
  explicit ProgramRuns(State& state) : s(state) {}

  // Counts it, or refuses it.
  std::unique_ptr<ProgramBind> NewBind(Session& session, uint64_t key, uint64_t out,
                                       std::shared_ptr<PlacedProgram> program);
  // Some more of it; whether it is over: then the session has it, or `refusal` says why not.
  bool GoOnBind(Session& session, ProgramBind& bind);
  // Of the session's first bind.
  void GoOnBind(Session& session, Worklist& list);
  // Some more of the session's first program that is given up.
  void GoOnRetiring(SessionId session, Worklist& list);
  // Takes it from the session, to be given up.
  absl::Status ReleaseProgram(Session& session, uint64_t handle);
  // Each sequence is some program's, or is retired and run by a node.
  absl::Status CheckSequences() const;
  // Forgets a retired sequence that no node runs any more.
  void Forget(ExecutableId sequence);

  // Checks the arguments, and takes those that are as the program takes them. On failure nothing
  // of it is left.
  absl::Status BeginRun(Session& session, BoundProgram& program, const std::vector<uint64_t>& args,
                        const ExecuteOptions& options, ProgramRun& run);
  // Makes the next steps of the session's program.
  void GoOn(SessionId session, Worklist& list);

 private:
  absl::Status DefineSequence(Session& session, BoundProgram& program, PlacedProgram::Part& part);
  // Puts a constant that is not there.
  absl::Status PutConstant(Session& session, BoundProgram& program,
                           const PlacedProgram::Constant& constant);
  // Gives up some more of a program; whether nothing is left of it.
  bool GoOnRetiring(Session& session, BoundProgram& program);
  // Looks at an argument: whether it is as the program takes it, or is to be resharded.
  absl::StatusOr<bool> TakesAsItIs(const PlacedProgram& program, int32_t argument,
                                   const Array& array, uint64_t handle) const;
  // An array that is an error from the start, as one with failed shards on the devices of `spec`;
  // its view is held.
  Array FailedArray(const Session& session, const ExecutableSpec& spec, const Array& error);
  // Does some more of a run, or begins to make one of its values; whether its steps are made.
  bool GoOnRun(Session& session, ProgramRun& run);
  void GoOnMaking(Session& session, ProgramRun& run);
  // Makes the next step, which is a sequence; what it makes goes into the run's values, held.
  void RunStep(Session& session, const ProgramPlan::RunSequence& step, ProgramRun& run);
  // What comes for two arguments, or is a constant too, is taken over by no step: another one, or
  // the caller, has it as well.
  void KeepShared(ProgramRun& run);
  // All its steps are made: gives the session the results.
  void EndRun(Session& session, ProgramRun& run);

  State& s;  // of which this is a part

 public:
  static constexpr uint64_t kFirstSequence = uint64_t{1} << 62;  // above all compiled code's ids
  uint64_t next_sequence = kFirstSequence;
  std::set<ExecutableId> retired;  // sequences that no program has any more, but nodes
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RUNS_H_
