// SPDX-License-Identifier: Apache-2.0
// The log of one island at the controller, and the links that bring its entries to the executors
// (docs/design/0062-the-log.md).
#ifndef FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_
#define FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/daemon/link_health.h"
#include "controller/daemon/link_traffic.h"
#include "log/head.h"
#include "transport/link.h"
#include "wire/link_codec.h"

namespace fairway {

struct IslandLinksOptions {
  // On an island with more executors than `few`, a version begins no sooner than `version_pause`
  // after the version before it: each version costs one frame to every executor, and many executors
  // may register at once.
  size_t few = 16;
  std::chrono::milliseconds version_pause{50};
  // A link gets no more frames while this many of its bytes are queued.
  size_t link_bytes = 1 << 20;
};

// Loop-confined; has no loop and no clock of its own. Each executor is a child of its own
// (log/tree.h), and its index in the log is its ExecutorId. An executor whose connection broke
// stays a member until it leaves; what is appended for it gathers.
class IslandLinks {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IslandLinks(IslandLinksOptions options = {}) : options_(options) {}

  // Makes an executor that has just registered a member. It gets the entries that are appended for
  // it from now on, and none from before. The next version sends them. `link` must live until
  // Leave. The executor must not be a member yet.
  void Join(ExecutorId executor, Link* link);
  // Sends the executor nothing more. Entries that it has not ended concern nobody any more. Does
  // nothing if the executor is no member.
  void Leave(ExecutorId executor);
  // The member's link is gone. It gets nothing until Resume.
  void Cut(ExecutorId executor);
  // The member has a link again. It knows `version`, and all entries up to `applied` that concern
  // it have come; it is sent those after that again. INVALID_ARGUMENT: `version` or `applied` is
  // beyond what it was sent, or below what it said before. FAILED_PRECONDITION: it is no member.
  // Then nothing has changed, and its registration should end.
  absl::Status Resume(ExecutorId executor, Link* link, uint64_t version, LogNumber applied);

  // Appends a COMMAND for a member. A command that `lingers` lets the executor begin nothing, so it
  // leaves together with another one, or once there are many bytes of them, or with SendAll. The
  // entry's bytes, but for the tail, are taken from `payer` until it is concluded, or its executor
  // has left.
  // INVALID_ARGUMENT: the body is longer than an entry may be.
  absl::Status Append(ExecutorId executor, EncodedCommand command, bool lingers,
                      std::shared_ptr<MemoryBudget> payer = nullptr);

  // Takes a report of the log from a member.
  // INVALID_ARGUMENT: the bytes are no report, or the executor lies. Nothing has changed then, and
  // the registration should end.
  absl::Status Take(ExecutorId executor, std::string_view report);

  // Whether the owner should call Send when control returns to the loop.
  bool wants_send() const { return version_due_ || !due_.empty(); }
  // Begins a version if one is due, and sends frames. Entries that a link has no room for leave
  // after the executor's next report, or with SendAll. Counts in `sent` what it sends.
  void Send(Clock::time_point now, LinkTraffic& sent);
  // As Send, and sends the entries that linger. For ticks.
  void SendAll(Clock::time_point now, LinkTraffic& sent);

  // How the member keeps up, but for its round trips and resumed links.
  LinkHealth Health(ExecutorId executor, Clock::time_point now) const;

  // The number of entries that are not concluded, with those that wait for a version.
  size_t open() const;
  // The bytes of these that somebody is charged for. For tests.
  int64_t charged_bytes() const;
  // INTERNAL. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Member {
    Link* link = nullptr;  // nullptr: it was cut
    // Entries up to this number were for the executor's earlier registrations.
    LogNumber joined = 0;
    std::optional<uint32_t> child;  // in the present version; absent: the member joined later
    // What it was sent before this version. Only of one that has had no link in it.
    std::optional<LogOutbox::Standing> before;
    std::vector<NewLogEntry> waiting;  // entries for the first version with this member
    bool due = false;                  // the member is in due_
    // The last tick at which no entry was open or one more had come, and `applied` then. The first
    // tick counts as one.
    std::optional<Clock::time_point> moved;
    LogNumber moved_to = 0;
  };
  void SetDue(Member& member);
  void NoteProgress(Member& member, Clock::time_point now) const;
  LogOutbox::Standing StandingOf(const Member& member) const;
  void Begin(Clock::time_point now);
  // Whether a frame should leave for the member. Entries that linger are no reason.
  bool Leaves(const Member& member) const;
  void SendTo(const Member& member, bool lingering, LinkTraffic& sent);
  // Logs an error that cannot happen.
  static void Expect(const absl::Status& status);

  const IslandLinksOptions options_;
  LogHead head_;
  // R3: either every member is in the present version, or another version is due. An executor that
  // has left stays in the present version without a link.
  std::map<ExecutorId, Member> members_;
  bool version_due_ = false;
  Clock::time_point version_began_;
  std::vector<Member*> due_;  // members with a frame to send, in the order in which that was known
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_
