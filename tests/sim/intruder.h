// SPDX-License-Identifier: Apache-2.0
// A process with a certificate of the cluster that asks data ports for what others move. It knows
// the numbers of transfers, and has tickets, but none for what it asks (rule T2).
#ifndef FAIRWAY_TESTS_SIM_INTRUDER_H_
#define FAIRWAY_TESTS_SIM_INTRUDER_H_

#include <cstdint>

#include "base/ids.h"
#include "base/ticket.h"
#include "tests/sim/basics.h"
#include "transport/data_plane.h"

namespace fairway::sim {

class Machine;
class World;

// The keys of the data ports of an executor's registration and of a controller.
inline PortKey KeyOf(uint64_t session) { return {session, 0x7469636b657473}; }
inline PortKey KeyOfController(uint64_t epoch) { return {epoch, 0x636f6e74726f6c}; }

// Decides by random numbers of its own. A port refuses it at once. So worlds are as they were
// without it.
class Intruder {
 public:
  Intruder(World& world, uint64_t seed)
      : world_(world), random_(seed ^ 0x696e7472756465), busy_(random_.Percent(30)) {}

  // The machine will be told to serve this transfer.
  void AskMachine(Machine& source, TransferId transfer);
  // The controller serves this upload from now on.
  void AskController(TransferId transfer);

 private:
  bool Comes() { return busy_ && random_.Percent(20); }
  // A request for the transfer at the port with this key, with a ticket for something else.
  PullRequest Ask(const PortKey& key, TransferId transfer);
  // Checks the answer.
  void Told(const char* whom, TransferId transfer, const absl::StatusOr<uint64_t>& answer);

  World& world_;
  Random random_;
  const bool busy_;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_INTRUDER_H_
