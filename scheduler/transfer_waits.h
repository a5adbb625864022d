// SPDX-License-Identifier: Apache-2.0
// Bounds the launches that wait on a device for a transfer.
//
// A launch on one device may be sent to its executor before a transfer that it needs has ended, so
// that nobody asks the controller in between. It holds up no other launch there, but it takes one
// of the places that all sessions share (SequencerOptions::max_singles_per_device), for as long as
// the source of the transfer computes. So a session may have few of them on a device, and all
// sessions together leave half of the places to others. What finds no room waits at the controller,
// as it would without this.
#ifndef FAIRWAY_SCHEDULER_TRANSFER_WAITS_H_
#define FAIRWAY_SCHEDULER_TRANSFER_WAITS_H_

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include <absl/container/btree_set.h>

#include "base/ids.h"

namespace fairway {

// A pure state machine. Not thread-safe.
class TransferWaits {
 public:
  struct Options {
    int per_session = 0;  // launches of a session on one device
    int per_device = 0;   // of all sessions
  };
  // Half of the places of a device, and a fourth for one session. Of one place none.
  static Options SomeOf(int places) { return {(places + 2) / 4, places / 2}; }
  explicit TransferWaits(Options options) : options_(options) {}

  // Returns whether the launch may go now; then it counts until End. Otherwise Next returns it once
  // there is room. May be asked again.
  bool Begin(NodeId launch, SessionId session, DeviceId device);
  // The launch waits for no transfer any more, or will not be launched. Ignored if it is unknown.
  void End(NodeId launch);
  // Takes out a launch that found no room, and for which there is room now; 0: there is none. The
  // caller asks again for it (Begin) if it still is to go. Sessions take turns.
  NodeId Next();

  size_t known() const { return known_.size(); }
  // A launch that it knows and for which `is` is false; 0: there is none.
  template <typename Is>
  NodeId FirstNot(const Is& is) const {
    for (const auto& [launch, known] : known_) {
      if (!is(launch)) return launch;
    }
    return NodeId();
  }

 private:
  struct Known {
    SessionId session;
    DeviceId device;
    bool counts = false;  // else it is in Line::waiting
  };
  struct Line {
    int counted = 0;                      // the sum of `by_session`
    std::map<SessionId, int> by_session;  // no count is 0
    absl::btree_set<std::pair<SessionId, NodeId>> waiting;
    SessionId served;  // the session that had the last turn
  };
  bool HasRoom(const Line& line, SessionId session) const;
  // The first launch that has room; 0: there is none.
  NodeId NextOf(const Line& line) const;

  const Options options_;
  std::map<NodeId, Known> known_;
  std::map<DeviceId, Line> lines_;  // invariant: none is empty
  std::set<DeviceId> freed_;        // devices where Next looks
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_TRANSFER_WAITS_H_
