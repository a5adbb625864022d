// SPDX-License-Identifier: Apache-2.0
// Decides the order of launches on one island (rule G1).
//
// Gangs that share a device must be launched in the same order on every executor of an island;
// otherwise two collectives wait for each other for ever. A gang gets its launch id here, when its
// inputs have arrived and there is room on all its devices. It never gets it at submission, so that
// a gang whose input is late blocks nobody. Source: Pathways (MLSys 2022), section 4.4.
//
// Sessions take turns. The age of a node (its id) counts within its session only: ids that a client
// keeps back, because the bytes of an upload come late, say, go before nobody else's.
#ifndef FAIRWAY_SCHEDULER_SEQUENCER_H_
#define FAIRWAY_SCHEDULER_SEQUENCER_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <absl/container/btree_set.h>

#include "base/ids.h"
#include "base/shared_vector.h"
#include "scheduler/gang_turns.h"

namespace fairway {

// The budget of launches in flight on one island. Devices do not share it, so what runs on some
// devices for long leaves that of others alone.
struct SequencerOptions {
  // Launches on more than one device that are launched and not finished, on each of their devices.
  // Executors start few of them at once.
  int max_gangs_per_device = 2;
  int max_singles_per_device = 16;  // the same for launches of one device
  uint64_t first_launch_id =
      1;  // above the highest that any executor of the island has seen (rule L1)
};

// The decision to launch `node` with this id (the first of its ids).
struct Grant {
  NodeId node;
  LaunchId launch_id;
};

// Owned by its island. A pure state machine: prepared -> arrived -> granted -> (finished,
// forgotten). Not thread-safe.
class Sequencer {
 public:
  explicit Sequencer(SequencerOptions options)
      : options_(options),
        next_id_(options.first_launch_id),
        gang_turns_(options.max_gangs_per_device) {}

  // `node` of `session` was prepared on its executors and runs on these devices. Its launch takes
  // `ids` launch ids; the grant has the first.
  void Prepared(NodeId node, SessionId session, const SharedVector<DeviceId>& devices,
                uint64_t ids = 1);
  // All inputs are there, on every executor, free of error; or launches before it will make them,
  // and its only executor has got those launches.
  void InputsArrived(NodeId node);
  // One of the arrived inputs has failed. The node is not launched unless InputsArrived comes
  // again.
  void InputsMissing(NodeId node);
  // The node has ended on all its devices.
  void Finished(NodeId node);
  // The node will not be launched. Ignored if it is unknown.
  void Forget(NodeId node);
  // Ids from now on start at `first` or above.
  void RaiseLaunchIds(uint64_t first);

  // Returns the launches that may go now. Of a session's launches on the same devices the lowest
  // node is first (program order); sessions take turns on each device. Send them in this order. At
  // most `most`; if there are that many, there may be more.
  std::vector<Grant> Step(size_t most = SIZE_MAX);

  // The nodes that are granted and not finished, in order: the first `most` from node `from` on.
  std::vector<NodeId> Running(NodeId from = NodeId(), size_t most = SIZE_MAX) const;

  // Devices and lines that it has looked at since the last call.
  size_t TakeSteps() { return gang_turns_.TakeSteps(); }

  size_t prepared() const { return waiting_.size(); }
  size_t in_flight() const { return running_.size(); }
  uint64_t gangs_granted() const { return gangs_granted_; }
  int gangs_in_flight() const { return gangs_in_flight_; }

 private:
  // Launches on one device share a budget. Those on none are never held. Each kind has a line for
  // each budget; a step looks at the first nodes of the lines whose budgets allow more, and at no
  // other. Gangs wait in `gang_turns_`.
  struct Budget {
    enum class Kind : uint8_t { kNone, kSingle, kGang };
    Kind kind = Kind::kNone;
    DeviceId device;             // kSingle
    GangTurns::SetId gangs = 0;  // kGang; in use
    friend auto operator<=>(const Budget&, const Budget&) = default;
  };
  Budget Use(const SharedVector<DeviceId>& devices);
  void Release(const Budget& budget);
  bool Allows(const Budget& budget) const;
  // Puts the first node of the line into `firsts_`, or takes it out.
  void Update(const Budget& budget);
  // Takes the next node that is no gang, or the next gang, out of its line; 0: none may go.
  NodeId NextOfFirsts();
  NodeId NextGang();
  // The node has its turn: gives it launch ids.
  void Give(NodeId node, std::vector<Grant>& grants);

  SequencerOptions options_;
  uint64_t next_id_;
  int gangs_in_flight_ = 0;
  uint64_t gangs_granted_ = 0;
  struct Known {
    SessionId session;
    Budget budget;
    uint64_t ids = 1;
  };
  std::map<NodeId, Known> waiting_;  // prepared, not launched
  // Those of waiting_ that have arrived and are no gangs. Invariant: no line is empty.
  struct Line {
    absl::btree_set<std::pair<SessionId, NodeId>> nodes;
    SessionId served;  // the session that had the last turn
    NodeId first;      // the one in firsts_; 0: none
    // The lowest node of the session that comes after `served`. The line must not be empty.
    NodeId Next() const;
  };
  std::map<Budget, Line> launchable_;
  // Invariant: has the next node of each line whose budget allows a launch. Lines share nothing, so
  // the order between them makes nobody wait.
  std::map<NodeId, Budget> firsts_;
  GangTurns gang_turns_;             // has the gangs of waiting_ that have arrived
  std::map<NodeId, Known> running_;  // launched, not finished
  std::map<DeviceId, int> singles_;  // running launches on one device, by device; no count is 0
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_SEQUENCER_H_
