// SPDX-License-Identifier: Apache-2.0
// Decides how a worker's process keeps its link to the controller: how long it waits before it
// connects again, when it sends a heartbeat, and when it gives up a controller that is silent. A
// pure state machine: the shell (ControllerLink, the simulation) passes the time and does what it
// is told.
#ifndef FAIRWAY_WORKER_PROCESS_LINK_LIFE_H_
#define FAIRWAY_WORKER_PROCESS_LINK_LIFE_H_

#include <chrono>
#include <cstdint>

namespace fairway {

// Owned by ControllerLink (in the simulation: by the far end of a link). One for all connections of
// a process, one after the other. Times are from any origin.
class LinkLife {
 public:
  using Time = std::chrono::nanoseconds;
  using Milliseconds = std::chrono::milliseconds;

  // `stalled_after`: the silence after which the controller is said once to be stalled.
  explicit LinkLife(Milliseconds stalled_after = std::chrono::seconds(3))
      : stalled_after_(stalled_after) {}

  // Returns the pause before the next attempt to connect: none at first, then one that doubles
  // until a registration holds. Once many connections have ended without one, a longer one.
  Milliseconds NextPause();
  // A connection has ended.
  void Ended() { ++ended_; }

  // Something has come from the controller.
  void Heard(Time now) { heard_ = now; }
  // The controller has accepted the registration and says how often it wants heartbeats, and after
  // which silence either side gives the other up. The first heartbeat is due now.
  void Registered(int64_t interval_ms, int64_t deadline_ms);

  // What to do when a heartbeat is due.
  struct Beat {
    bool give_up = false;   // send nothing: the link ends
    bool stalled = false;   // the controller has just become stalled
    uint64_t sequence = 0;  // of the heartbeat to be sent; the next one is due after interval()
    Time silence{0};
  };
  Beat NextBeat(Time now);
  // The controller has answered that heartbeat.
  void Acknowledged(uint64_t sequence, Time now);
  // From the latest heartbeat that was answered before the next one to its answer; 0: none yet.
  Time round_trip() const { return round_trip_; }

  Milliseconds interval() const { return interval_; }
  Milliseconds deadline() const { return deadline_; }

 private:
  const Milliseconds stalled_after_;
  Milliseconds pause_{0};  // before the next attempt
  int ended_ = 0;          // connections since a registration held
  Milliseconds interval_{0};
  Milliseconds deadline_{0};
  bool stalled_ = false;  // its silence has been told
  Time heard_{0};         // the last message of the controller
  Time beat_{0};          // our last heartbeat
  uint64_t beats_ = 0;    // since the registration
  Time round_trip_{0};
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_LINK_LIFE_H_
