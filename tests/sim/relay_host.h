// SPDX-License-Identifier: Apache-2.0
// A relay's process in the simulation: a real RelayCore, with links to other hosts and to the
// controller.
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

#include "tests/sim/links.h"
#include "tests/sim/relays.h"
#include "worker/process/link_life.h"
#include "worker/relay/relay_core.h"

namespace fairway::sim {

class Host;
class World;

class RelayHost final : public RelayActions, public FarSide {
 public:
  RelayHost(World& world, Host& host);
  ~RelayHost() override;

  // The process starts, or ends.
  void Start();
  void Die();
  // It ends, and its supervisor starts it again.
  void Kill();
  // Its connection to the controller breaks.
  void CutLink(bool hub_first, int64_t later);
  // For this time it does nothing, and everything for it waits.
  void Stop(int64_t time);
  // For this time it runs only now and then. `rule`: another relay must take its place meanwhile.
  void BeLate(int64_t time, bool rule);
  bool relays() const { return core_ && core_->version() > 0; }
  bool alive() const { return core_.has_value(); }

  // Somebody dials.
  void Accept(std::unique_ptr<Link> link);

  // RelayActions
  void DialParent(const std::string& endpoint) override;
  void Tell(v1::RelayTrouble trouble) override;
  // FarSide
  void OnFrame(Wire& wire, const Frame& frame) override;
  void OnEnd(Wire& wire) override;

 private:
  class ToController;
  void Pause(int64_t time);
  void LateUntil(int64_t end, int64_t begun, bool rule);
  // Runs it now, or once the relay goes on.
  void Do(Event run);
  void Dial();
  void Beat(const std::shared_ptr<Wire>& wire);
  void OnController(const std::shared_ptr<Wire>& wire, const Frame& frame);
  void OnTask(const v1::RelayTask& task);
  void OnControllerFrame(const Frame& frame);
  void Tick(uint64_t life);
  void Retry(uint64_t task);
  void OnChild(Link* link, const Frame& frame);
  void OnParent(Link* link, const Frame& frame);
  void Check();
  // Takes a child from children_; nullptr: it is not there any more.
  std::unique_ptr<Link> TakeChild(Link* link);
  // Lets go of links when nothing of them is on the stack.
  void Bury(std::unique_ptr<Link> link);

  World& world_;
  Host& host_;
  const std::unique_ptr<ToController> controller_;
  std::optional<RelayCore> core_;
  std::optional<LinkLife> link_life_;
  std::shared_ptr<Wire> wire_;  // to the controller
  int64_t pid_ = 0;
  uint64_t life_ = 0;
  uint64_t task_ = 0;
  int64_t task_since_ = 0;
  bool stopped_ = false;
  int64_t went_on_at_ = 0;
  std::deque<Event> waiting_;
  std::vector<std::unique_ptr<Link>> children_;  // by age: they end in an order that seeds decide
  std::unique_ptr<Link> parent_;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_RELAY_HOST_H_
