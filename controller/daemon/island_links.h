// SPDX-License-Identifier: Apache-2.0
// The log of one island at the controller: which of its executors are there, and the links by which
// entries go to them (docs/design/0062-the-log.md).
#ifndef FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_
#define FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/daemon/link_traffic.h"
#include "log/head.h"
#include "transport/link.h"

namespace fairway {

struct IslandLinksOptions {
  // With more executors than `few`, a version begins no sooner than so long after the one before
  // it: each costs a frame to every executor, and many of them may come at once.
  size_t few = 16;
  std::chrono::milliseconds version_pause{50};
  // What a link has queued and not written, at most, before it gets another frame.
  size_t link_bytes = 1 << 20;
};

// Loop-confined; without a loop or clock of its own. Executors are those below the controller, each
// a child of its own; their index in the log is their id. The end of a link ends the registration
// of its executor, so whose link is cut leaves.
class IslandLinks {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IslandLinks(IslandLinksOptions options = {}) : options_(options) {}

  // It has registered, and is not there yet. What is appended for it from now on goes to it, with
  // the next version; nothing before does. `link` must live until Leave.
  void Join(ExecutorId executor, Link* link);
  // Nothing more goes to it, and what it has not ended concerns nobody. It need not be there.
  void Leave(ExecutorId executor);

  // A COMMAND for an executor that is there. `lingers`: it lets the executor begin nothing, so it
  // goes with what does, with enough of its kind, or with SendAll.
  // INVALID_ARGUMENT: it is longer than an entry may be.
  absl::Status Append(ExecutorId executor, std::string body, bool lingers);

  // A report of the log from an executor that is there.
  // INVALID_ARGUMENT: it is none, or the executor lies: its registration should end. Then nothing
  // has changed.
  absl::Status Take(ExecutorId executor, std::string_view report);

  // Whether Send is to be called when control returns to the loop.
  bool wants_send() const { return version_due_ || !due_.empty(); }
  // Begins a version if one is due, and gives the links what is to go. What a link has no room for
  // goes when its executor has reported, or with SendAll.
  void Send(Clock::time_point now, LinkTraffic& sent);
  // For ticks: Send, and also what lingers.
  void SendAll(Clock::time_point now, LinkTraffic& sent);

  // Entries that are not concluded, and those that wait for a version.
  size_t open() const;
  // INTERNAL. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Member {
    Link* link = nullptr;
    // Entries up to this number were for the one before it in its place.
    LogNumber joined = 0;
    std::optional<uint32_t> child;     // in the present version; absent: it joined later
    std::vector<NewLogEntry> waiting;  // for a version that it is in
    bool due = false;                  // it is in due_
  };
  void SetDue(Member& member);
  void Begin(Clock::time_point now);
  // Whether something is to go to it that does not linger.
  bool Leaves(const Member& member) const;
  void SendTo(const Member& member, bool lingering, LinkTraffic& sent);
  // Of what cannot fail: it is logged.
  static void Expect(const absl::Status& status);

  const IslandLinksOptions options_;
  LogHead head_;
  // R3: every member is in the present version, or another one is due. Who has left is in the
  // present one, without a link, until then.
  std::map<ExecutorId, Member> members_;
  bool version_due_ = false;
  Clock::time_point version_began_;
  std::vector<Member*> due_;  // in the order in which something was to go to them
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_
