// SPDX-License-Identifier: Apache-2.0
// The bound programs of sessions, and their runs. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RUNS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RUNS_H_

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/program_records.h"
#include "controller/cluster/session.h"
#include "controller/cluster/worklist.h"

namespace fairway {

// Binds programs to sessions, runs them and gives them up, a few steps in each turn
// (docs/design/0040-programs.md). Its own work lies in the worklist of the session: programs that
// are being bound, the run, programs that are being given up.
//
// Invariants: the bytes of a program, and of its sequences until they are forgotten, are counted in
// Session::program_records of its session. A retired sequence belongs to no program any more, but
// some node still runs it.
class Cluster::ProgramRuns {
 public:
  explicit ProgramRuns(State& state) : s(state) {}

  // Counts the program's bytes and begins to bind it, or refuses it.
  std::unique_ptr<ProgramBind> NewBind(Session& session, uint64_t key, uint64_t out,
                                       std::shared_ptr<PlacedProgram> program);
  // UNAVAILABLE: one of its islands takes no work.
  absl::Status CheckIslands(const PlacedProgram& placed);
  // Binds some more of it. Returns whether that is over: bound, or refused for `refusal`.
  bool GoOnBind(Session& session, ProgramBind& bind);
  // The same for the session's first bind.
  void GoOnBind(Session& session, Worklist& list);
  // Gives up some more of the session's first retiring program.
  void GoOnRetiring(SessionId session, Worklist& list);
  // Takes the program from the session, to be given up.
  absl::Status ReleaseProgram(Session& session, uint64_t handle);
  // Checks that each sequence belongs to a program, or is retired and some node runs it.
  absl::Status CheckSequences() const;
  // Forgets a retired sequence that no node runs any more.
  void Forget(ExecutableId sequence);

  // A run that is yet to be checked. NOT_FOUND: there is no such program. INVALID_ARGUMENT: it has
  // another number of results.
  absl::StatusOr<std::unique_ptr<ProgramRun>> NewRun(Session& session, uint64_t handle,
                                                     std::vector<uint64_t> args,
                                                     const ExecuteOptions& options,
                                                     std::vector<uint64_t> out);
  // Does the first slice of a run; the session is busy until the rest is done.
  void BeginRun(SessionId session, std::unique_ptr<ProgramRun> run);
  // Does the next item of a run (program_stages.cc).
  void GoOnRun(Session& session, ProgramRun& run);
  // Gives up some of the run of a session that has ended. Returns whether nothing is left.
  bool GiveUp(ProgramRun& run);
  // Does some more of the session's run.
  void GoOn(SessionId session, Worklist& list);

 private:
  absl::Status DefineSequence(Session& session, BoundProgram& program, PlacedProgram::Part& part);
  // Puts a constant, unless it is there.
  absl::Status PutConstant(Session& session, BoundProgram& program,
                           const PlacedProgram::Constant& constant);
  // Gives up some more of a program. Returns whether nothing is left of it.
  bool GoOnRetiring(Session& session, BoundProgram& program);
  // Whether the argument is as the program takes it; otherwise it is to be resharded.
  absl::StatusOr<bool> TakesAsItIs(const PlacedProgram& program, int32_t argument,
                                   const Array& array, uint64_t handle) const;
  // Turns an array that is an error from the start into one with failed shards on the devices of
  // `spec`. Its view is held.
  Array FailedArray(const Session& session, const ExecutableSpec& spec, const Array& error);
  // The items of the stages of a run.
  void AddHandle(Session& session, ProgramRun& run);
  void CheckArgumentCount(ProgramRun& run);
  void CheckNextArgument(Session& session, ProgramRun& run);
  absl::Status TakeArgument(Session& session, ProgramRun& run, int32_t argument);
  void PutNextConstant(Session& session, ProgramRun& run);
  void GoOnArgument(Session& session, ProgramRun& run);
  // Lets no step take over a buffer that two arguments share, or an argument and a constant:
  // another step, or the caller, has it as well.
  void KeepShared(ProgramRun& run);
  void GoOnStep(Session& session, ProgramRun& run);
  void GoOnTransfer(Session& session, const ProgramPlan::Transfer& transfer, ProgramRun& run);
  // A sequence is launched; its outputs become values of the run.
  void GoOnSequence(Session& session, const ProgramPlan::RunSequence& step, ProgramRun& run);
  void BeginSequence(const ProgramPlan::RunSequence& step, ProgramRun& run);
  void GiveInput(const Session& session, const ProgramPlan::RunSequence& step, ProgramRun& run);
  void PutResult(Session& session, ProgramRun& run);
  void Donate(Session& session, ProgramRun& run);
  void DropValue(ProgramRun& run);
  // An argument or constant could not be made: the results hold ProgramRun::refused.
  void Refuse(ProgramRun& run);

  State& s;  // the state that this is a part of

 public:
  static constexpr uint64_t kFirstSequence = uint64_t{1} << 62;  // above all compiled code's ids
  uint64_t next_sequence = kFirstSequence;
  std::set<ExecutableId> retired;  // sequences of no program, which some nodes still run
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PROGRAM_RUNS_H_
