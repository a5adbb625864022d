// SPDX-License-Identifier: Apache-2.0
// The scale model: one island of many simulated hosts, driven by the controller's real code with
// really serialized messages, in virtual time (docs/design/0045-scale-model.md).
//
// The virtual time of a machine advances by the CPU that its code used in this process, and by the
// cost of sockets. Only the time of a computation on the devices and the network are declared. The
// client computes a chain, y = f(y), where f runs on all devices of the island.
#ifndef FAIRWAY_BENCH_SCALE_MODEL_H_
#define FAIRWAY_BENCH_SCALE_MODEL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/scale/controller.h"
#include "bench/scale/host.h"
#include "bench/scale/link_cost.h"
#include "bench/scale/relay.h"
#include "bench/scale/timeline.h"

namespace fairway::scale {

struct Options {
  int hosts = 16;
  int devices_per_host = 8;
  Nanos network = 25'000;         // in one direction, between any two machines
  double gigabits = 10;           // of the controller's port, in each direction
  Nanos computation = 1'000'000;  // the time of one gang on the devices
  int gangs = 100;                // measured calls, counted from the end of call `ahead`
  int ahead = 64;                 // calls that the client makes before the first one ends
  // Whether devices run gangs in the order given, as accelerators do, so that a gang may be started
  // before its inputs are ready (LoadedExecutable::separable). Otherwise a gang runs when they are.
  bool in_order = true;
  int chain = 1;  // nodes of one call; above 1 the call runs a program
  // Children of the controller and of each relay of the island's log. Each host has a relay, of
  // which the controller chooses those that it needs. 0: none.
  int relay_fanout = 0;
  LinkCost link;
};

struct Result {
  std::string error;  // why there is no result
  Nanos period = 0;   // of one gang, at the steady rate
  // Of the controller, per gang, over the same time.
  double code_us = 0;     // CPU of its code: the median of `repeats_us`
  double cold_us = 0;     // the same as virtual time has it: between turns, all hosts ran here
  double sockets_us = 0;  // and of its sockets
  double frames_out = 0;
  double frames_in = 0;
  double bytes_out = 0;
  double bytes_in = 0;
  double host_us = 0;  // CPU of the code of one host, per gang
  // Per gang, of the relay that took most: CPU of its code, and with that of its sockets.
  double relay_us = 0;
  double relay_all_us = 0;
  int relays = 0;  // of the tree, and the links from the controller to an executor
  int depth = 0;
  int max_turn_frames = 0;
  // CPU of the controller's code, per gang, each time that its turns were done again. Ascending.
  std::vector<double> repeats_us;

  // The share of what devices could do without waiting.
  double parity(Nanos computation) const {
    return period > 0 ? static_cast<double>(computation) / static_cast<double>(period) : 0;
  }
};

class Model final : public HostWorld {
 public:
  explicit Model(const Options& options);
  ~Model() override;

  // Registers all hosts. An error, here and below, tells what went wrong.
  absl::Status Register();
  // Registers the hosts, unless that was done, and compiles.
  absl::Status Compile();
  // Compiles, unless that was done; then makes the chain's first argument by a call, which has
  // begun then: so all hosts have the code.
  absl::Status Start();
  // Runs the chain.
  Result Run();

  // Sends the client's requests, and lets time pass until all are answered.
  absl::Status Ask(std::vector<v1::Request> requests);
  // Sends requests that have no answers.
  void Tell(std::vector<v1::Request> requests);
  // Puts an array on all devices, and waits until it is there.
  absl::Status Put(uint64_t handle);

  Controller& controller() { return controller_; }
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  // Frames and bytes so far.
  struct Traffic {
    uint64_t frames_out = 0, frames_in = 0, bytes_out = 0, bytes_in = 0;
    uint64_t client_bytes = 0;  // in both directions
    Nanos code = 0, sockets = 0;
    Nanos hosts = 0;  // CPU of all hosts together
    int max_turn_frames = 0;
  };
  Traffic traffic() const;
  uint64_t gangs_ended() const { return ended_.size(); }

  // Call `number` of the chain, from 1 on.
  v1::Request CallRequest(uint64_t number) const;

  // HostWorld
  void FromHost(int host, Nanos at, Frame frame) override;
  void Launched(int host, Nanos at, const Launch& launch) override;
  // RelayWorld
  void FromRelay(int relay, Nanos at, Frame frame) override;
  Relay& RelayAt(const std::string& endpoint) override;
  Nanos network() const override { return options_.network; }

 private:
  struct Gang {
    size_t begun = 0;  // the hosts that have begun
    Nanos last = 0;    // the last of their times
    std::vector<NodeId> nodes;
  };
  v1::Request CompileRequest() const;
  v1::Request ProgramRequest() const;
  v1::Request PutRequest(uint64_t handle) const;
  void SendToController(std::vector<v1::Request> requests);
  // A frame for the controller has been written to this link.
  void ToController(int link, Nanos at, Frame frame);
  void FromController(int link, const Frame& frame);
  void Arrive(Controller::Incoming incoming);
  void Turn();
  void Answered(const std::string& message);
  void SendCall(uint64_t number);
  // Does the turns of the controller again, each time by another one. Returns the CPU of those from
  // `begin` to `end`, ascending.
  absl::StatusOr<std::vector<Nanos>> RepeatTurns(size_t begin, size_t end) const;
  absl::Status RunUntil(const std::function<bool()>& done);

  const Options options_;
  Timeline timeline_;
  Controller controller_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Relay>> relays_;  // by host; none without a tree
  std::deque<Controller::Incoming> inbox_;
  std::vector<Controller::Done> turns_;
  bool registered_ = false;
  bool compiled_ = false;
  bool turn_scheduled_ = false;
  Nanos controller_busy_ = 0;
  Nanos port_out_ = 0;  // when the controller's port is free again
  Nanos port_in_ = 0;
  Traffic traffic_;
  std::map<LaunchId, Gang> gangs_;
  size_t gangs_begun_ = 0;  // on all hosts
  Nanos devices_busy_ = 0;
  std::vector<Nanos> ended_;  // ends of gangs
  absl::Status failure_;      // the first error among the answers
  uint64_t answers_ = 0;
  uint64_t calls_ = 0;  // sent
  uint64_t calls_wanted_ = 0;
  uint64_t calls_done_ = 0;
};

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_MODEL_H_
