// SPDX-License-Identifier: Apache-2.0
// What a worker's relay does for its island's log (docs/design/0066-relays.md):
// takes its task from the controller, passes entries on to its children, merges their reports, and
// notices children that need another parent. A pure state machine: the shell has the connections.
#ifndef FAIRWAY_WORKER_RELAY_RELAY_CORE_H_
#define FAIRWAY_WORKER_RELAY_RELAY_CORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "fairway/v1/link.pb.h"
#include "log/relay.h"
#include "log/round_trips.h"
#include "transport/link.h"

namespace fairway {

// What the shell does for it.
class RelayActions {
 public:
  virtual ~RelayActions() = default;
  // Connects to the relay above it, then calls ParentUp. Called with each task that has one; the
  // shell tries again, in pauses, until the next task.
  virtual void DialParent(const std::string& endpoint) = 0;
  // Tells the controller.
  virtual void Tell(v1::RelayTrouble trouble) = 0;
};

struct RelayOptions {
  Incarnation self;  // what it says to the relay above it
  // A child without a link for longer, a relay below it that is silent for longer, or a crowded
  // child that takes nothing for longer gets another parent.
  std::chrono::milliseconds patience{1000};
  // A relay below it that answers so soon is not late (LateRelays).
  std::chrono::milliseconds soon{20};
  size_t link_bytes = 1 << 20;  // a link gets no more frames while this many are queued
  LogRelayLimits limits;
};

// Loop-confined. Links belong to the shell. A link that this class has closed, and one that the
// shell has reported to have ended, is not used again.
class RelayCore {
 public:
  using Time = std::chrono::nanoseconds;  // from any origin

  RelayCore(RelayOptions options, RelayActions* actions) : options_(options), actions_(actions) {}

  // R3: the controller's task. Closes all links of the task before it. `controller`: the link on
  // which the task came, which is the parent's if the task names no other. INVALID_ARGUMENT: it is
  // no task; then there is none.
  absl::Status OnTask(const v1::RelayTask& task, Link* controller, Time now);
  // The link to the controller has ended, so the task is over.
  void Stop();

  // There is a link to the parent.
  void ParentUp(Link* parent);
  // That link has ended. The shell dials again if parent() still is the same.
  void ParentEnded(const Link* parent);
  // The endpoint of the relay above it; empty: none, or the controller.
  const std::string& parent() const { return parent_; }
  // A frame of the log from the parent; one with an id is answered at once (RoundTrips). On an
  // error the link is over.
  absl::Status FromParent(const Frame& frame, Time now);

  // A frame from a child: first its LogAsk, then reports. On an error the link is over.
  // FAILED_PRECONDITION: not yet, or not any more in this version, or it has yet to hear that its
  // controller is gone; the child should hear of another parent, or dial again. PERMISSION_DENIED:
  // it is not the child that it says it is. A child that says what cannot be is given up, because
  // it would dial again and say the same.
  absl::Status FromChild(Link* link, const Frame& frame, Time now);
  void ChildEnded(const Link* link, Time now);

  // Reports to the parent, tells children what is concluded, and looks after children. Call it
  // several times in its patience.
  void Tick(Time now);
  // Asks the relays below it, to know which are late. Call it after each AskPause. `late`: by how
  // much the pause was longer than it should have been.
  void Ask(Time now, Time late);

  uint64_t version() const { return log_ ? log_->version() : 0; }  // 0: it relays nothing
  size_t bytes() const { return log_ ? log_->bytes() : 0; }
  // Frames and reports sent, and their bytes.
  uint64_t sent_messages() const { return sent_messages_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  // Whether a child has this link.
  bool IsChild(const Link* link) const { return ChildOf(link).has_value(); }
  // INTERNAL. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Child {
    Incarnation incarnation;
    std::string secret;
    std::string worker;
    bool relay = false;
    Link* link = nullptr;
    Time heard{0};  // its last report, or when its link came or ended
    // The last tick at which it was not crowded or more had come, and `applied` then.
    Time taken{0};
    LogNumber taken_to = 0;
    bool told = false;  // the controller knows that it needs another parent
    RoundTrips trips;   // of a relay, on this link
  };
  absl::Status OnAsk(Link* link, const v1::LogAsk& ask, Time now);
  void Send(Link* link, std::string payload, uint8_t type, uint64_t id = 0);
  void Pump(uint32_t child);
  void PumpAll();
  void ReportUp();
  // Gives up a child that is in trouble. `stalled`: this process did not run, so nobody is.
  void Judge(uint32_t child, bool stalled, LateRelays& late, Time now);
  // What was measured while this process did not run tells nothing.
  void ForgetTrips();
  // Closes its link, and tells the controller.
  void GiveUp(uint32_t child, std::string reason);
  std::optional<uint32_t> ChildOf(const Link* link) const;

  const RelayOptions options_;
  RelayActions* const actions_;
  std::optional<LogRelay> log_;  // of the present task
  std::string parent_;
  std::string secret_;  // for the parent
  // Whose task it is. Each controller counts versions from 1.
  uint64_t controller_incarnation_ = 0;
  Link* parent_link_ = nullptr;
  std::vector<Child> children_;  // as numbered in log_
  Time ticked_{0};               // the last Tick
  size_t unreported_ = 0;        // bytes of frames since the last report
  uint64_t question_ = 0;        // of the parent, to be answered; 0: none
  RoundTrips own_;               // how late Ask was called
  uint64_t sent_messages_ = 0;
  uint64_t sent_bytes_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_RELAY_RELAY_CORE_H_
