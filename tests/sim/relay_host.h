// SPDX-License-Identifier: Apache-2.0
// The shell of a supervisor's relay in the simulation: a real RelayCore, with links to other hosts
// and to the controller.
#ifndef FAIRWAY_TESTS_SIM_RELAY_HOST_H_
#define FAIRWAY_TESTS_SIM_RELAY_HOST_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/relays.h"
#include "worker/supervisor/relay_core.h"

namespace fairway::sim {

class Host;
class World;

class RelayHost final : public RelayActions {
 public:
  RelayHost(World& world, Host& host);
  ~RelayHost() override;

  // The supervisor's process starts, or ends.
  void Start(uint64_t incarnation);
  void Die();
  // For this time it does nothing, and everything for it waits.
  void Stop(int64_t time);
  bool relays() const { return core_ && core_->version() > 0; }
  bool stopped() const { return stopped_; }

  // From the supervisor's link to the controller.
  void OnTask(const v1::RelayTask& task);
  void OnControllerFrame(const std::string& frame);
  void ControllerEnded();
  // Somebody dials.
  void Accept(std::unique_ptr<Link> link);

  // RelayActions
  void DialParent(const std::string& endpoint) override;
  void Tell(v1::RelayTrouble trouble) override;

 private:
  class ToController;
  // Runs it now, or once the relay goes on.
  void Do(Event run);
  void Tick(uint64_t life);
  void Retry(uint64_t task);
  void OnChild(Link* link, const Frame& frame);
  void OnParent(Link* link, const std::string& frame);
  void Check();
  // Lets go of links when nothing of them is on the stack.
  void Bury(std::unique_ptr<Link> link);

  World& world_;
  Host& host_;
  const std::unique_ptr<ToController> controller_;
  std::optional<RelayCore> core_;
  uint64_t life_ = 0;
  uint64_t task_ = 0;
  bool stopped_ = false;
  std::deque<Event> waiting_;
  std::map<Link*, std::unique_ptr<Link>> children_;
  std::unique_ptr<Link> parent_;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_RELAY_HOST_H_
