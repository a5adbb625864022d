// SPDX-License-Identifier: Apache-2.0
// Decides what a supervisor does about the ends of its executor: what it tells the controller, and
// when it starts the next one. A pure state machine: the shell (Supervisor, the simulation) has the
// processes, the link and the clock.
#ifndef FAIRWAY_WORKER_SUPERVISOR_EXECUTOR_ACCOUNT_H_
#define FAIRWAY_WORKER_SUPERVISOR_EXECUTOR_ACCOUNT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "fairway/v1/link.pb.h"
#include "worker/supervisor/process_end.h"

namespace fairway {

// Owned by Supervisor (in the simulation: by a host). Loop-confined. Times are from any origin.
class ExecutorAccount {
 public:
  using Time = std::chrono::nanoseconds;
  using Milliseconds = std::chrono::milliseconds;
  // Ends that no controller has heard of, at most; older ones are forgotten.
  static constexpr size_t kMaxDeaths = 16;

  struct Options {
    Milliseconds first_restart{50};  // doubled at each further restart
    Milliseconds last_restart{10000};
    Milliseconds stable_after{20000};  // an executor that lived so long restarts the series
  };
  explicit ExecutorAccount(Options options) : options_(options), restart_(options.first_restart) {}

  // A process has been started.
  void Started(Time now);
  // A process could not be started. Returns the pause before the next try.
  Milliseconds NotStarted();

  // The controller asks to kill the process of incarnation `wanted`; `present` runs now. Returns
  // whether to kill it; then `reason` will be the cause of its end.
  bool Kill(uint64_t wanted, uint64_t present, std::string reason, bool asked);
  // The supervisor kills the process because it did not stop in time.
  void KillLate() { kill_reason_ = "it did not stop in time"; }

  struct Verdict {
    std::string cause;
    bool asked = false;     // by an operator: no error
    bool hopeless = false;  // another try will not cure it: it is not started again
    bool late = false;      // it had to be killed when it was to stop, or gave up by itself
    Milliseconds restart_in{0};
  };
  // The process has ended. `stopping`: it is not to be started again. Its end is put among those
  // that TakeDeaths returns.
  Verdict Ended(const ProcessEnd& end, Time now, bool stopping);

  // Returns the ends that no controller has heard of, oldest first. Call it whenever the worker is
  // registered and something may be there.
  std::deque<v1::ExecutorDied> TakeDeaths();
  // The link has ended, perhaps with the latest of these on its way: it is to be told again. The
  // controller ignores what it has heard before.
  void LinkEnded();

 private:
  const Options options_;
  Milliseconds restart_;  // before the next start
  Time started_{0};
  bool ever_registered_ = false;  // any executor of this supervisor
  std::string kill_reason_;       // why this supervisor killed the process that runs
  bool kill_asked_ = false;       // an operator asked for it
  std::deque<v1::ExecutorDied> deaths_;
  std::optional<v1::ExecutorDied> told_;  // the latest, on the present link
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_EXECUTOR_ACCOUNT_H_
