// SPDX-License-Identifier: Apache-2.0
// Decides who waits for device memory, gets room, or fails (rule B2). Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_MEMORY_ROOM_H_
#define FAIRWAY_CONTROLLER_CLUSTER_MEMORY_ROOM_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/live_nodes.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "scheduler/admission.h"

namespace fairway {

// What the group's shards take on their devices, once all places are known.
const SharedVector<MemoryNeed>& RoomOf(Group& group);
// What the node has to reserve.
SharedVector<MemoryNeed> Needs(const Node& node);
// The node's reservation on a device, or nullptr. `position`: where to look first.
const Reservation* ReservationOn(const Node& node, DeviceId device, size_t position);
// Adds to the credit of one of the node's reservations, which may move all of them.
void AddCredit(Node& node, const Reservation& reservation, int64_t credit);
// Whether the memory of the group is given back once its last reader has ended.
bool WillBeGivenBack(const Group& group);

// Counts the memory that is given back, and judges the nodes that wait for memory: makes room for
// the oldest by taking back younger ones that have not begun, and fails one that has waited for its
// grace when nothing under way would free enough. Admission knows who holds what, and who is next;
// this adds what the graph knows.
//
// Invariants: Admission::will_release is the sum of what CountLeaving and CountTemporary count
// (CheckMemory). An island with victims, or where they are searched for, admits and launches
// nothing (Pump). Victims are prepared nodes or gone.
class Cluster::MemoryRoom {
 public:
  explicit MemoryRoom(State& state) : s(state) {}

  // Releases memory of the island, whose queue may move: on `count` devices from `device` on.
  void Release(Island& island, DeviceId device, int64_t bytes, uint32_t count = 1);
  // Releases what the node had for itself. It `keeps` that of its outputs, or releases it, too.
  void ReleaseEnded(Island& island, const Node& node, bool keeps);
  // Call it when what it looks at has changed. Counts the group's bytes if they will be released
  // once the work that has its memory has ended, whatever clients do.
  void CountLeaving(Group& group);
  // The same for the temporary memory of a node that has (`begins`) or had memory.
  void CountTemporary(const Node& node, bool begins);

  // Begins to search for younger nodes that have not begun, to be taken back so that `node` fits.
  void BeginSearch(Island& island, const Node& node);
  // Goes on with the search, if there is one, and takes back some of the victims that it found,
  // until `units` reaches `until`. Returns whether both are over.
  bool MakeRoom(Island& island, uint64_t until);
  // Fails nodes that have waited for their grace for memory that nothing under way will free. What
  // is under way is found out in this tick and in turns after it; the next ticks judge by that.
  void GiveUpStuck(int64_t now_ms);
  // Whether it has yet to find out what is under way.
  bool Looks() const { return looks_; }
  void GoOnLooking(uint64_t until) { looks_ = !live_->GoOn(looks_up_to_, until); }
  // The node is in another state.
  void Moved(NodeId node) {
    if (live_) live_->Moved(node);
  }
  // An executor came or was lost: what it has found out does not hold any more.
  void LookAnew() {
    live_.reset();
    looks_ = false;
    ++rounds_;
  }
  // RESOURCE_EXHAUSTED: names what the node needs, and `why` it does not get that.
  absl::Status Exhausted(const Admission::Shortage& shortage, std::string_view why) const;

 private:
  // The first node of a session that has waited for its grace on an island.
  struct Due {
    NodeId before;  // Island::Stuck::before
    IslandId island;
    SessionId session;
    auto operator<=>(const Due&) const = default;
  };
  // Whether it would not fit now.
  bool Lacks(const Node& node) const;
  // Goes on with the island's search. Returns whether it is over.
  bool Search(Island& island, uint64_t until);
  // Whether younger nodes make room for the node that waits longest there, or may: that is found
  // out in turns, and the next tick knows.
  bool HasVictims(Island& island, const Node& oldest, uint64_t until);
  // Takes note of the first nodes that wait on the island, and of their progress: of `left`, which
  // it counts down, from `from` on, which it moves (Admission::Firsts). Adds those that have made
  // none for their grace. False: the next tick has to look at the same ones.
  bool FindDue(Island& island, int64_t now_ms, uint64_t until, NodeId& from, size_t& left,
               std::vector<Due>& due);
  // Gives those that are due up if nothing under way will help them, or gives them another grace.
  // Fails nodes for one of them at most. False: some have yet to be judged.
  bool Judge(std::vector<Due> due, int64_t now_ms);
  // Whether the end of a node that was there before the wait began may free memory for it.
  bool WillBeFreed(const Admission::Shortage& first, NodeId before, const Island& island) const;
  // The lowest node that runs, from `from` on, and may free memory for it when it ends. If one
  // helps no search is needed. Of many it looks at some only.
  struct Helper {
    NodeId node;         // 0: none runs that helps
    bool known = false;  // else it is the first one that was not looked at
  };
  Helper FirstHelper(const Admission::Shortage& first, NodeId from, const Island& island) const;
  // Fails `first` and some of the nodes that wait as long for its device, up to Node::submitted
  // `through`; the rest in later ticks.
  void FailStuck(Island& island, const Admission::Shortage& first, Island::Stuck& stuck);
  // Whether nodes of the session have yet to fail with another, or to hear of something else.
  bool FailsYet(SessionId session) const;
  // Bytes and shard buffers of each session on a device.
  using Held = std::map<SessionId, std::pair<int64_t, int>>;
  Held HeldOn(DeviceId device) const;
  static std::string WhoHolds(const Held& held, SessionId asking);

  // What is under way, while those that are due are judged by it: from the lowest Due::before up to
  // `judged_up_to_`. Once it has gone beyond the `before` of one, that has to wait for the next.
  std::optional<LiveNodes> live_;
  NodeId judged_up_to_;
  // Grows when all that is due has been judged. That a search for victims was in vain counts until
  // what is due then has been judged, or each tick would search again and judge nothing.
  // Each session is judged once in a round, so those whose grace is over again keep nobody waiting.
  uint64_t rounds_ = 1;
  bool looks_ = false;  // invariant: live_ is there; it has yet to look at nodes below:
  NodeId looks_up_to_;
  // The next tick looks at the first nodes of this island first, from that one on. It stays until
  // those that were found due from there have been judged.
  std::pair<IslandId, NodeId> due_next_;
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_MEMORY_ROOM_H_
