// SPDX-License-Identifier: Apache-2.0
// Decides the life of an executor's registrations: what it says of itself, which commands it takes,
// what it reports of its island's log, how a registration goes on when its connection breaks, and
// when the next one may begin. A pure state machine: the shell (ExecutorProcess, the simulation)
// has the link and the launches.
#ifndef FAIRWAY_WORKER_EXECUTOR_REGISTRATION_H_
#define FAIRWAY_WORKER_EXECUTOR_REGISTRATION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "fairway/v1/link.pb.h"
#include "transport/kept_frames.h"
#include "worker/executor/command_inbox.h"

namespace fairway {

// Owned by ExecutorProcess (in the simulation: by a machine). Loop-confined. One for all
// registrations of a process, one after the other:
//
//   kNone -> kAsked -> kHeld -> kEnding -> kNone
//            kAsked ----------> kEnding
//   kHeld -> kCut -> kResuming -> kHeld
//            kCut <- kResuming            kCut, kResuming -> kEnding
//
// Times are from any origin.
class Registration {
 public:
  enum class Phase : uint8_t {
    kNone,      // there is no link
    kAsked,     // the controller has yet to accept it
    kHeld,      // commands come
    kCut,       // the connection broke: it waits for the next one
    kResuming,  // the controller has yet to say that it goes on
    kEnding,    // it is over; launches of it may be in flight
  };
  using Time = std::chrono::nanoseconds;
  Phase phase() const { return phase_; }
  bool held() const { return phase_ == Phase::kHeld; }
  bool ending() const { return phase_ == Phase::kEnding; }
  bool cut() const { return phase_ == Phase::kCut; }

  // A link is open. Returns the highest launch id that the process has seen, which the executor
  // says when it registers (rule L1).
  uint64_t Ask();
  // The controller has accepted it. FAILED_PRECONDITION: it was not asked to, or took a version
  // that it was not offered; the caller ends the link.
  absl::Status Accepted(const v1::Registered& terms);

  // Returns the new commands of a frame of the log, which the caller carries out at once, in this
  // order. Errors: those of CommandInbox::Take; FAILED_PRECONDITION: the registration is not held,
  // or the log comes from somebody else. The caller ends the link. `relay`: the frame came on the
  // link to a relay, which outlives the connection to the controller.
  absl::StatusOr<std::vector<Command>> Take(std::string_view frame, bool relay = false);
  // As CommandInbox::Ended; of an earlier registration they count for nothing.
  absl::Status Ended(const std::vector<uint64_t>& entries);
  // Returns a report of the log that leaves together with such a message; empty: none. It goes to
  // relay(), so do not call it while there is no link to that.
  std::string LogReport(CommandInbox::With with);

  // The controller says from whom the log comes from now on. Returns whether this is news. Then the
  // caller closes the link to the relay before, and sends AskLog: to the controller in a message
  // that must not be lost (Keep), to a relay as the first message on a new link. If that link ends,
  // it dials the relay again, in pauses, while relay() stays the same.
  bool Follow(const v1::LogParent& parent);
  // The endpoint of the relay from which the log comes; empty: it comes from the controller.
  const std::string& relay() const { return relay_; }
  // So many report to that relay, this executor among them; 0: there is no relay.
  int relay_children() const { return relay_children_; }
  // Returns what the executor says to a new parent, or on a new link to it. The next report names
  // again what is not known to be concluded.
  v1::LogAsk AskLog(Incarnation incarnation);

  // Numbers a message that must not be lost with its connection. The caller sends it if the
  // registration is held; otherwise Resumed returns it.
  Frame Keep(Frame frame) { return kept_.Keep(std::move(frame)); }
  // For every frame that leaves.
  void Stamp(Frame& frame) const { kept_.Stamp(frame); }
  // A control frame has come. As KeptFrames::Take.
  absl::StatusOr<bool> Taken(const Frame& frame) { return kept_.Take(frame); }

  // The connection broke. Returns whether the registration outlives it: then the caller connects
  // again, and calls GraceOver at grace() from now. Otherwise it is over, as with End.
  bool Cut(Time now);
  std::chrono::milliseconds grace() const { return grace_; }
  // Returns whether the registration is over because there is no connection yet.
  bool GraceOver(Time now);
  // There is a connection again. Returns what the executor says on it.
  v1::ResumeExecutor Resume(Incarnation incarnation);
  // The controller goes on. Returns the messages that it has not taken, to be sent at once, in this
  // order. FAILED_PRECONDITION, INVALID_ARGUMENT: it cannot be so; the caller ends the link.
  absl::StatusOr<std::vector<Frame>> Resumed(const v1::Resumed& resumed);

  // The registration is over. Launches of it run to their end, because other executors may have
  // begun the same gangs. Nothing is reported of them.
  void End() { phase_ = Phase::kEnding; }
  // Returns whether the registration that ends is over; then the process may connect again.
  // `in_flight`: its launches that have not ended. `highest`: the highest launch id that its core
  // has seen; steps of sequences use ids long after their command.
  bool Over(size_t in_flight, uint64_t highest);

 private:
  Phase phase_ = Phase::kNone;
  std::optional<CommandInbox> inbox_;  // from when it was accepted
  KeptFrames kept_;
  std::string relay_;
  std::string secret_;  // for relay_
  int relay_children_ = 0;
  uint64_t tree_ = 0;  // the version in which relay_ is its parent; 0: it has heard of none
  uint32_t self_ = 0;
  uint64_t controller_ = 0;  // its incarnation
  uint32_t protocol_ = 0;    // that the controller took
  std::chrono::milliseconds grace_{0};
  Time cut_at_{0};
  uint64_t highest_launch_id_ = 0;  // of all registrations of this process
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_REGISTRATION_H_
