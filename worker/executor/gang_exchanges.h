// SPDX-License-Identifier: Apache-2.0
// The exchanges of one executor session, over its data plane.
#ifndef FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_
#define FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>

#include "graph/plan.h"
#include "transport/data_plane.h"
#include "worker/executor/bell.h"
#include "worker/executor/runtime/exchange.h"
#include "worker/executor/shared_lanes.h"

namespace fairway {

// A member pulls the bytes that another member offers. A pull that comes first waits for the offer.
// What a member pushes lies in a slot of the receiver until that reads it. Shared by the session
// and the exchanges made here, which keep it alive. Thread-safe.
class GangExchanges : public std::enable_shared_from_this<GangExchanges> {
 public:
  using Members = std::vector<InstallExecutable::Member>;

  // `plane` must live until Close.
  void Open(DataPlane* plane);
  // `call` is called, on the thread that runs gangs, before it waits long for others. Set it before
  // the first Make.
  void BeforeLongWaits(std::function<void()> call) { before_long_wait_ = std::move(call); }
  // Fails with `why` everything that waits, and all later work.
  void Close(const absl::Status& why);

  std::shared_ptr<Exchange> Make(Members members, size_t self);
  // Returns whether the endpoints of both have the same host.
  static bool AreNeighbours(const InstallExecutable::Member& a, const InstallExecutable::Member& b);

  // Handles a pull of a round. Never blocks.
  void OnPull(const PullRequest& request, DataPlane::Answer answer);
  // Handles a push; see fairway::OnPush. Never blocks.
  bool OnPush(const PushName& name, std::shared_ptr<Blob>& bytes);
  // Fails with `cause` everything that launches `first` to `last` wait for, unless they have ended.
  void Abandon(uint64_t first, uint64_t last, const absl::Status& cause);
  // These launches do not run here: answers others that want their bytes with `cause`.
  void LeaveOut(uint64_t first, uint64_t last, const absl::Status& cause);
  // See Exchange::End.
  void End(uint64_t launch, const absl::Status& status);

  static constexpr size_t kMaxWaitingPulls = 4096;
  // The part of round 1 that nobody offers: who pulls it learns how the launch fails, or gets no
  // bytes when it has ended without an error.
  static constexpr int32_t kWatch = -1;
  // Stretches of launches that failed here, for members that are slower. Beyond this number the two
  // oldest stretches become one, with the launches between them; bytes of those that a member still
  // wants fail as well.
  static constexpr size_t kMaxFailed = 16384;
  // Pushes of one member that were not received yet; further ones wait at the sender. Two suffice
  // while no launch fails.
  static constexpr size_t kSlots = kLaneSlots;
  // Pushes to one member that were not given to a socket yet; further ones wait.
  static constexpr int kMaxUnsent = 8;
  // After this time a member that waits asks those that it waits for what is wrong.
  static constexpr std::chrono::milliseconds kQuiet{20};
  // A wait that is longer than this is long. Not less than a tick of the kernel: a timer that ends
  // before the next one must be set in the hardware, which in a virtual machine takes 3 us a wait.
  static constexpr std::chrono::milliseconds kLong{5};
  // What was broadcast, but was not followed by a swap of the same neighbours, is given up so long
  // after its slot was wanted: by then a neighbour that has not read it counts as lost.
  static constexpr std::chrono::seconds kGivenUp{10};
  // A push that was lost is given up so long after its sender has ended the launch.
  static constexpr std::chrono::milliseconds kLost{2000};

 private:
  class Member;
  struct Pushed {
    PushName name;
    std::shared_ptr<Blob> bytes;
  };
  // A push that the Receive under way has found.
  struct Got {
    std::string_view bytes;
    std::shared_ptr<Blob> block;  // has the bytes; nullptr: they are in the lane
    absl::Status broken;
    bool rings_for_all = false;
    bool broadcast = false;  // the bytes are where the peer has broadcast them
  };
  // A question to another executor: how does the launch fail or end there?
  struct Watch {
    explicit Watch(uint64_t launch) : launch(launch) {}
    const uint64_t launch;
    absl::Status failure;
    std::optional<std::chrono::steady_clock::time_point> ended;  // without an error
  };
  // Another executor. One record for all computations that it is a member of.
  struct Peer {
    explicit Peer(const InstallExecutable::Member& member) : member(member) {}
    const InstallExecutable::Member member;
    std::deque<Pushed> slots;         // what came as frames, in the order in which it pushed them
    LaneReader* in = nullptr;         // its lane here; nullptr: it has none
    std::shared_ptr<LaneWriter> out;  // the lane there; nullptr: it gets frames
    std::optional<Got> got;
    uint32_t heard = 0;         // the slot of its last broadcast; see LaneWriter::Heard
    bool rang_for_all = false;  // as the push said that was received last
    // A launch has failed because of it, and nothing has come since. It is asked at once.
    bool suspect = false;
    // About the latest launch that it was asked about. One for each launch: the question waits
    // there until the launch has ended.
    std::shared_ptr<Watch> watch;
    const std::shared_ptr<std::atomic<int>> unsent = std::make_shared<std::atomic<int>>(0);
  };
  using PeerPtr = std::shared_ptr<Peer>;
  // A set of neighbours. One record for all computations whose members they are.
  struct Audience {
    uint64_t read = 0;  // they have read all that was broadcast before this swap
  };
  struct Broadcasted {
    std::shared_ptr<Audience> to;
    uint64_t swap = 0;
    std::chrono::steady_clock::time_point in_the_way;  // when its slot was wanted first; 0: never
  };
  // The neighbours of one exchange, without this member.
  struct Neighbours {
    std::vector<size_t> members;
    std::vector<PeerPtr> peers;  // of them
    PeerPtr first;               // of all members of the host; nullptr: this one
    Incarnation first_number;    // of that member
    // Whether each of them rings for all, as it did with the last swap.
    bool all_ring = false;
    std::shared_ptr<Audience> audience;
    // All of them read what this member broadcasts. Once true it stays so: those that have the same
    // code loaded keep their lanes here mapped.
    bool listen = false;
  };
  using Name = std::pair<uint32_t, int32_t>;  // round, part
  struct Offered {
    HostView bytes;
    std::vector<Incarnation> readers;  // those that have not asked yet
  };
  struct Waiting {
    PullRequest request;
    DataPlane::Answer answer;
  };
  struct Launch {
    std::map<Name, Offered> offered;
    std::vector<Waiting> waiting;
    bool ended = false;
  };
  struct Failed {
    uint64_t last = 0;
    absl::Status cause;
  };
  // One call of Take.
  struct Taking {
    size_t open = 0;
    absl::Status failure;
    std::vector<std::shared_ptr<Blob>> blobs;
  };

  void Offer(uint64_t launch, Name name, HostView bytes, std::vector<Incarnation> readers);
  absl::StatusOr<std::vector<std::shared_ptr<Blob>>> Take(
      const Members& members, uint64_t launch, uint32_t round,
      const std::vector<Exchange::Wanted>& wanted);
  absl::Status Push(const PeerPtr& to, const PushName& name, std::string_view bytes);
  // Receives from each of `from`, which are these members.
  absl::Status Receive(const std::vector<PeerPtr>& from, const std::vector<size_t>& members,
                       const PushName& name, size_t bytes, Exchange::Use use);
  // Pushes to all neighbours, and receives from them. Who writes last wakes all others with one
  // call of the system, if all of them have the memory of the first one; otherwise each push rings.
  absl::Status Swap(Neighbours& with, const PushName& name, std::string_view bytes,
                    Exchange::Use use);

  // With the mutex held:
  // Moves this thread to the CPU that the neighbours share, or away (OneCpu). `to_first`: the lane
  // at the first of them; nullptr: there is none, or this is the first one.
  void ShareCpu(const Neighbours& with, const LaneWriter* to_first);
  // Pushes to all of them at once. False: it cannot.
  bool Broadcast(Neighbours& to, const PushName& name, std::string_view bytes);
  absl::Status Push(std::unique_lock<std::mutex>& lock, const PeerPtr& to, const PushName& name,
                    std::string_view bytes, LaneWriter::Rings rings);
  // Waits for the pushes, while `all` is rung if it is there, and passes them to `use`.
  absl::Status Receive(std::unique_lock<std::mutex>& lock, std::span<const PeerPtr> from,
                       std::span<const size_t> members, const PushName& name, size_t bytes,
                       Bell* all, Exchange::Use use);
  // Waits until `there` is true for each of `peers`. Errors: those of Exchange::Take.
  // Looks again after `longest` at the latest. `all`: it is rung once all is there, and bell_ need
  // not be.
  absl::Status WaitFor(std::unique_lock<std::mutex>& lock, uint64_t launch,
                       std::span<const PeerPtr> peers, absl::FunctionRef<bool(Peer&)> there,
                       std::chrono::milliseconds longest = kQuiet, Bell* all = nullptr);
  // Wakes the thread that runs gangs, whatever it waits for.
  void Wake();
  // Asks `peer` how the launch fails or ends there, unless it was asked, and returns its failure.
  // UNAVAILABLE: it has ended the launch, and what it pushed does not come.
  absl::Status Ask(const PeerPtr& peer, uint64_t launch);
  // Drops what was pushed into the lane, or all lanes, for launches before this one. Not while the
  // thread that runs gangs reads of the lane.
  static void DropBefore(uint64_t launch, LaneReader& lane);
  void DropBefore(uint64_t launch);
  // nullptr: it has no lane here.
  LaneReader* LaneFrom(Peer& peer);
  // Returns whether a push to it need not wait.
  static bool HasRoom(const Peer& peer) {
    return peer.out != nullptr ? peer.out->HasRoom() : peer.unsent->load() < kMaxUnsent;
  }
  // Finds the push in its slot, if it is there; drops those of earlier launches.
  bool Find(Peer& peer, const PushName& name);
  bool FindInLane(Peer& peer, const PushName& name);
  // Answers with the address of the lane of a neighbour.
  void TellLane(const PullRequest& request, DataPlane::Answer& answer);
  // Asks a neighbour for the lane there.
  void AskForLane(const PeerPtr& peer);
  std::shared_ptr<Audience> AudienceOf(std::vector<Incarnation> neighbours);
  // Returns the record of each member; nullptr for `self`.
  std::vector<PeerPtr> PeersOf(const Members& members, size_t self);
  // Lets pushes go on that found no slot.
  void SlotsAreFree();
  // Answers the pull if it can; false: the pull must wait. `launch` is nullptr if nothing else is
  // known of the launch.
  bool TryAnswer(Launch* launch, const PullRequest& request, DataPlane::Answer& answer);
  void AnswerWaiting(Launch& launch);
  // Drops offers to `reader` before `launch`: a member that asks for bytes of a later launch wants
  // no bytes of earlier ones any more.
  void ForgetBefore(uint64_t launch, Incarnation reader);
  // Launches that have failed before keep their cause.
  void Fail(uint64_t first, uint64_t last, const absl::Status& why);
  // nullptr: the launch has not failed.
  const absl::Status* FailureOf(uint64_t launch) const;
  // Returns whether the launch can be forgotten: it has ended, and nobody wants its bytes.
  static bool Over(const Launch& launch) { return launch.ended && launch.offered.empty(); }

  std::function<void()> before_long_wait_ = [] {};
  std::mutex mutex_;
  std::condition_variable changed_;  // for Take
  // What neighbours push; nullptr: the system has no such memory, they send frames.
  const std::unique_ptr<SharedLanes> lanes_ = SharedLanes::Make();
  const std::shared_ptr<Bell> bell_ =  // for WaitFor
      lanes_ != nullptr ? lanes_->bell() : std::make_shared<Bell>();
  Bell* asleep_ = nullptr;  // the thread that runs gangs sleeps on this one; nullptr: on bell_
  DataPlane* plane_ = nullptr;
  absl::Status closed_;
  std::map<uint64_t, Launch> launches_;
  std::map<uint64_t, Failed> failed_;  // by the first launch of each stretch; disjoint
  size_t num_waiting_ = 0;
  uint64_t ended_through_ = 0;
  std::map<Incarnation, PeerPtr> peers_;
  uint64_t receiving_ = 0;  // the latest launch that has received
  bool held_ = false;       // some pushes have found no slot
  uint64_t swaps_ = 0;      // so far
  std::map<std::vector<Incarnation>, std::weak_ptr<Audience>> audiences_;
  std::array<Broadcasted, lanes::kBroadcasts> broadcasts_;  // by slot
  size_t broadcast_ = 0;                                    // the slot of the last one
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_
