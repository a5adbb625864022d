// SPDX-License-Identifier: Apache-2.0
// The log of one island at the controller, and the links that bring its entries to the executors
// and relays (docs/design/0062-the-log.md, 0066-relays.md).
#ifndef FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_
#define FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/daemon/link_health.h"
#include "controller/daemon/link_traffic.h"
#include "fairway/v1/link.pb.h"
#include "log/head.h"
#include "log/round_trips.h"
#include "log/tree_plan.h"
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
  // Children of the controller and of each relay, as far as relays can be had; 0: no relays.
  size_t fanout = 0;
  // A relay of the controller's that is silent for longer is replaced, as is one that is crowded
  // and takes nothing for longer.
  std::chrono::milliseconds relay_patience{1000};
  // A relay of the controller's that answers so soon is not late (LateRelays).
  std::chrono::milliseconds relay_soon{20};
  // Bytes that a relay may have not applied; above it, it is crowded (LogOutbox::Crowded).
  size_t relay_bytes = 32 << 20;
  // Each controller counts versions from 1, so relays and their children name it, too.
  Incarnation controller;
  // Returns what proves a child to its relay; not to be guessed. Needed if there are relays.
  std::function<std::string()> secret = nullptr;
  // How long a relay that was in trouble is not chosen, and an executor that was in trouble with
  // its relay has none.
  std::chrono::seconds trouble_pause{60};
  // For round trips: the times that callers give may be those of the last tick.
  std::function<std::chrono::steady_clock::time_point()> exact = std::chrono::steady_clock::now;
};

// Loop-confined; has no loop and no clock of its own. The index of an executor in the log is its
// ExecutorId. Each executor is a child of the controller, or is below a relay that is. An executor
// whose connection broke stays a member until it leaves; what is appended for it gathers.
class IslandLinks {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IslandLinks(IslandLinksOptions options = {});

  // Makes an executor that has just registered a member. It gets the entries that are appended for
  // it from now on, and none from before. The next version sends them. `link` must live until
  // Leave. The executor must not be a member yet. `incarnation`, `worker`: as its relay knows it.
  void Join(ExecutorId executor, Link* link, Incarnation incarnation = {}, std::string worker = {});
  // Sends the executor nothing more. Entries that it has not ended concern nobody any more. Does
  // nothing if the executor is no member.
  void Leave(ExecutorId executor);
  // The member's link is gone. It gets nothing on it until Resume. A link to a relay is another.
  void Cut(ExecutorId executor);
  // The member has a link again. It knows `version`, and all entries up to `applied` that concern
  // it have come; it is sent those after that again, unless its relay sends them. INVALID_ARGUMENT:
  // `version` or `applied` is beyond what it was sent, or below what it said before.
  // FAILED_PRECONDITION: it is no member, or lacks what is concluded. Then nothing has changed, and
  // its registration should end.
  absl::Status Resume(ExecutorId executor, Link* link, uint64_t version, LogNumber applied);

  // The worker whose executor is `host` has a relay. `link`: to the relay; it must live until
  // RelayDown.
  void RelayUp(ExecutorId host, Link* link, Incarnation incarnation, std::string endpoint,
               std::string worker);
  // Its link has ended, or the executor is forgotten. Does nothing if it is not up.
  void RelayDown(ExecutorId host);
  // A member that had a relay asks the controller for its entries. FAILED_PRECONDITION,
  // INVALID_ARGUMENT: as Resume. Then its registration should end.
  absl::Status Ask(ExecutorId executor, const v1::LogAsk& ask);
  // A report of the log from a relay. INVALID_ARGUMENT: as Take. Then the relay should go down.
  absl::Status TakeFromRelay(ExecutorId host, const Frame& report, Clock::time_point now);
  // Asks the controller's relays, to know which are late. Call it after each AskPause. `late`: by
  // how much the pause was longer than it should have been.
  void AskRelays(RoundTrips::Time late, LinkTraffic& sent);
  // The relay of this host says that a child needs another parent; of others' children it is not
  // heard.
  void TakeTrouble(ExecutorId host, const v1::RelayTrouble& trouble, Clock::time_point now);
  // Whom to tell who its parent is, in numbered messages. Call it after each Send.
  std::vector<std::pair<ExecutorId, v1::LogParent>> TakeParents() {
    return std::exchange(parents_, {});
  }

  // Appends a COMMAND for a member. A command that `lingers` lets the executor begin nothing, so it
  // leaves together with another one, or once there are many bytes of them, or with SendAll. The
  // entry's bytes, but for the tail, are taken from `payer` until it is concluded, or its executor
  // has left.
  // INVALID_ARGUMENT: the body is longer than an entry may be.
  absl::Status Append(ExecutorId executor, EncodedCommand&& command, bool lingers,
                      std::shared_ptr<MemoryBudget> payer = nullptr);
  // Appends a COMMAND for all members from `first` to `last`: one entry, unless one of them waits
  // for a version. `lingers`: as Append. `awaited`: the node of a LaunchAll; TakeEnded names it
  // once every executor that got the command has ended it, or has left. INVALID_ARGUMENT: as
  // Append; then nothing has changed.
  absl::Status AppendAll(ExecutorId first, ExecutorId last, EncodedCommand&& command, bool lingers,
                         NodeId awaited, std::shared_ptr<MemoryBudget> payer);
  // The nodes of LaunchAlls that have ended since the last call, each once. Call it after each call
  // of Take, TakeFromRelay, Send and SendAll, and before the island is forgotten.
  std::vector<NodeId> TakeEnded();

  // Takes a report of the log from a member.
  // INVALID_ARGUMENT: the bytes are no report, or the executor lies. Nothing has changed then, and
  // the registration should end.
  absl::Status Take(ExecutorId executor, std::string_view report);

  // Whether the owner should call Send when control returns to the loop.
  bool wants_send() const { return version_due_ || replan_ || !due_.empty() || !ended_.empty(); }
  // Begins a version if one is due, and sends frames. Entries that a link has no room for leave
  // after the executor's next report, or with SendAll. Counts in `sent` what it sends.
  void Send(Clock::time_point now, LinkTraffic& sent);
  // As Send, and sends the entries that linger, and replaces relays that are silent or slow. For
  // ticks.
  void SendAll(Clock::time_point now, LinkTraffic& sent);

  // How the member keeps up, but for its round trips and resumed links.
  LinkHealth Health(ExecutorId executor, Clock::time_point now) const;

  // The tree of the present version.
  const TreePlan& plan() const { return plan_; }
  // Executors that were told of another parent than they had.
  uint64_t moves() const { return moves_; }
  // The number of entries that are not concluded, with those that wait for a version.
  size_t open() const;
  // The bytes of these that somebody is charged for. For tests.
  int64_t charged_bytes() const;
  // Relays and executors that got another place because of trouble between them.
  uint64_t troubles() const { return troubles_; }
  // Relays of the present version, and the most links from the controller to an executor.
  size_t relays() const { return plan_.relays.size(); }
  int depth() const;
  // INTERNAL. For tests.
  absl::Status CheckInvariants() const;

 private:
  // What is at the far end of a link on which frames of the log may leave.
  struct End {
    Link* link = nullptr;           // nullptr: it was cut
    std::optional<uint32_t> child;  // of the controller, in the present version
    bool due = false;               // it is in due_
  };
  struct Relay : End {
    Incarnation incarnation;
    std::string secret;
    std::string endpoint;
    std::string worker;
    bool placed = false;      // it has a task; if it is no child, below another relay
    Clock::time_point heard;  // its last report of the present version; at first, its begin
    // The last tick at which it was not crowded or more had come, and `applied` then.
    Clock::time_point taken;
    LogNumber taken_to = 0;
    RoundTrips trips;                             // in the present version
    std::optional<Clock::time_point> well_after;  // it is in trouble, and not chosen before
  };
  struct Member : End {
    Incarnation incarnation;
    std::string secret;
    std::string worker;
    // Entries up to this number were for the executor's earlier registrations.
    LogNumber joined = 0;
    bool known = false;  // in the present version; otherwise the member joined later
    // In the present version its entries go to this child of the controller; nullptr: its own link.
    Relay* above = nullptr;
    // It had a relay, and has yet to ask the controller. Only without one.
    bool asks = false;
    // What it was sent before this version. Only of a child that has had no link in it.
    std::optional<LogOutbox::Standing> before;
    std::vector<NewLogEntry> waiting;             // entries for the first version with this member
    std::optional<Clock::time_point> well_after;  // it is in trouble, and has no relay before
    // The last tick at which no entry was open or one more had come, and `applied` then. The first
    // tick counts as one.
    std::optional<Clock::time_point> moved;
    LogNumber moved_to = 0;
    std::optional<std::string> parent;  // endpoint, as it was told; empty: the controller
  };
  absl::Status Append(Member& member, NewLogEntry&& entry);
  void SetDue(End& end);
  // Of entries that were concluded.
  void NoteConcluded();
  void NoteEnded(NodeId node);
  // Tells an executor who its parent is. `endpoint`: of its relay, which has so many children;
  // empty: the controller is its parent.
  void TellParent(ExecutorId id, Member& member, const std::string& endpoint, size_t children);
  void NoteProgress(ExecutorId id, Member& member, Clock::time_point now) const;
  // On which link its entries leave.
  static End& EndOf(Member& member) {
    return member.above != nullptr ? static_cast<End&>(*member.above) : member;
  }
  LogOutbox::Standing StandingOf(const Member& member) const;
  // Begins a version if one is due, or if another tree is better now.
  void Replan(Clock::time_point now);
  void Begin(TreePlan plan, Clock::time_point now);
  void BeginMember(ExecutorId id, Member& member, std::optional<LogOutbox::Standing> had);
  // Chooses the tree of the next version.
  TreePlan Plan() const;
  // The children of a relay, and all executors below it.
  LogChild Below(size_t relay) const;
  // Gives relays their tasks. `child`: the number of the first one that is a child of ours.
  void PlaceRelays(uint32_t child, Clock::time_point now);
  // Makes `top` the child of the controller above all below the relay.
  void PlaceBelow(size_t relay, Relay* top, const std::string& parent);
  v1::RelayTask TaskOf(size_t relay, const std::string& parent) const;
  void NoteTrouble(std::optional<Clock::time_point>& well_after, Clock::time_point now);
  void EndTroubles(Clock::time_point now);
  // Finds relays of the controller's that are in trouble.
  void JudgeRelays(Clock::time_point now);
  // Why the relay is in trouble; empty: it is not.
  std::string TroubleOf(const Relay& relay, LateRelays& late, Clock::time_point now) const;
  RoundTrips::Time Exact() const { return options_.exact().time_since_epoch(); }
  // FAILED_PRECONDITION: entries that it lacks are concluded.
  absl::Status CheckFloor(ExecutorId executor, LogNumber applied) const;
  // Whether a frame should leave. Entries that linger are no reason.
  bool Leaves(const End& end) const;
  void SendTo(const End& end, bool lingering, LinkTraffic& sent);
  // Logs an error that cannot happen.
  static void Expect(const absl::Status& status);

  const IslandLinksOptions options_;
  LogHead head_;
  std::vector<End*> end_of_child_;  // in the present version
  size_t unknown_ = 0;              // members that are in no version yet
  std::map<NodeId, size_t> split_;  // LaunchAlls that are open in several entries
  std::vector<NodeId> ended_;       // for TakeEnded
  // R3: either every member is in the present version, or another version is due. An executor that
  // has left stays in the present version without a link.
  std::map<ExecutorId, Member> members_;
  std::map<ExecutorId, Relay> relays_;  // those that are up, by host
  TreePlan plan_;                       // of the present version
  bool version_due_ = false;
  bool replan_ = false;        // another tree may be better than plan_
  Clock::time_point planned_;  // the last Replan
  Clock::time_point judged_;   // the last JudgeRelays
  RoundTrips own_;             // how late AskRelays was called
  std::vector<End*> due_;      // with a frame to send, in the order in which that was known
  std::vector<std::pair<ExecutorId, v1::LogParent>> parents_;  // to be told
  uint64_t troubles_ = 0;
  uint64_t moves_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_ISLAND_LINKS_H_
