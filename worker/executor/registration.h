// SPDX-License-Identifier: Apache-2.0
// Decides the life of an executor's registrations: what it says of itself, which commands it takes,
// what it reports of its island's log, and when the next registration may begin. A pure state
// machine: the shell (ExecutorProcess, the simulation) has the link and the launches.
#ifndef FAIRWAY_WORKER_EXECUTOR_REGISTRATION_H_
#define FAIRWAY_WORKER_EXECUTOR_REGISTRATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "worker/executor/command_inbox.h"

namespace fairway {

// Owned by ExecutorProcess (in the simulation: by a machine). Loop-confined. One for all
// registrations of a process, one after the other:
//
//   kNone -> kAsked -> kHeld -> kEnding -> kNone
//            kAsked ----------> kEnding
class Registration {
 public:
  enum class Phase : uint8_t {
    kNone,    // there is no link
    kAsked,   // the controller has yet to accept it
    kHeld,    // commands come
    kEnding,  // the link has ended; launches of it may be in flight
  };
  Phase phase() const { return phase_; }
  bool held() const { return phase_ == Phase::kHeld; }
  bool ending() const { return phase_ == Phase::kEnding; }

  // A link is open. Returns the highest launch id that the process has seen, which the executor
  // says when it registers (rule L1).
  uint64_t Ask();
  // The controller has accepted it, as executor `self`. FAILED_PRECONDITION: it was not asked to;
  // the caller ends the link.
  absl::Status Accepted(ExecutorId self);

  // Returns the new commands of a frame of the log, which the caller carries out at once, in this
  // order. Errors: those of CommandInbox::Take; FAILED_PRECONDITION: the registration is not held.
  // The caller ends the link.
  absl::StatusOr<std::vector<Command>> Take(std::string_view frame);
  // Returns a report of the log that leaves together with such a message; empty: none.
  std::string LogReport(CommandInbox::With with);

  // The link has ended. Launches of it run to their end, because other executors may have begun the
  // same gangs. Nothing is reported of them.
  void LinkEnded() { phase_ = Phase::kEnding; }
  // Returns whether the registration that ends is over; then the process may connect again.
  // `in_flight`: its launches that have not ended. `highest`: the highest launch id that its core
  // has seen; steps of sequences use ids long after their command.
  bool Over(size_t in_flight, uint64_t highest);

 private:
  Phase phase_ = Phase::kNone;
  std::optional<CommandInbox> inbox_;  // while it is held
  uint64_t highest_launch_id_ = 0;     // of all registrations of this process
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_REGISTRATION_H_
