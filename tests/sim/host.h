// SPDX-License-Identifier: Apache-2.0
// A host with one worker: the supervisor with its link and its pulse, as the controller sees it,
// and a Machine as its executor. It also plays what the kernels tell of a silent host.
#ifndef FAIRWAY_TESTS_SIM_HOST_H_
#define FAIRWAY_TESTS_SIM_HOST_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/links.h"
#include "tests/sim/relay_host.h"
#include "tests/sim/world.h"
#include "worker/process/link_life.h"
#include "worker/supervisor/executor_account.h"

namespace fairway::sim {

class Machine;

class Host final : public FarSide {
 public:
  Host(World& world, Machine& machine);

  const std::string& worker() const;
  const std::string& island() const;
  int64_t pid() const { return pid_; }

  bool alive() const { return alive_; }
  RelayHost& relay() { return relay_; }
  // Starts the supervisor, which starts the executor.
  void Start();
  // Both processes end at once, and start again after `back`.
  void Die(int64_t back);
  // The executor's process has started, or ended. An end is told to the controller, and a new
  // process started.
  void ExecutorStarted() { account_->Started(world_.Time()); }
  void ExecutorEnded(const ProcessEnd& end);

  // For this time nothing reaches the host or leaves it.
  void Silence(int64_t time);
  bool silent() const { return silent_; }
  // Stops the supervisor: it does nothing, and everything for it waits until Wake.
  void Sleep() { asleep_ = true; }
  void Wake();
  // When it was heard again last.
  int64_t heard_at() const { return heard_at_; }
  void Hold(Event run) { held_.push_back(std::move(run)); }
  // Cuts the link of the supervisor, and sometimes its pulse.
  void CutLink(bool hub_first, int64_t later);
  // Whether it was cut so lately that the controller may wait for it.
  bool CutLately() const;

  // The link of an ended process closes at this time. The controller hears of newer ones later.
  void ClosedAt(int64_t time) { closed_at_ = std::max(closed_at_, time); }
  int64_t closed_at() const { return closed_at_; }

  // Whether its supervisor is registered at the present controller, with a pulse and without
  // faults.
  bool Fine() const;

  // FarSide
  void OnFrame(Wire& wire, const Frame& frame) override;
  void OnEnd(Wire& wire) override;

 private:
  // Runs it later in this life of the supervisor, and not while it is stopped.
  template <typename F>
  void After(int64_t delay, F run) {
    world_.queue.After(delay, [this, life = life_, run = std::move(run)]() mutable {
      if (life != life_) return;
      if (asleep_) return waiting_.push_back(std::move(run));
      run();
    });
  }
  void Dial();
  void DialPulse();
  std::vector<std::shared_ptr<Wire>> Pulses() const;
  void Beat(const std::shared_ptr<Wire>& wire);
  void StartExecutor(int64_t delay);
  void Kill(const v1::KillExecutor& kill);
  void TellDeaths();
  void Compile(const std::shared_ptr<Wire>& wire, const v1::LinkCompileRequest& request);

  World& world_;
  Machine& machine_;
  const bool compiles_;
  RelayHost relay_;
  bool alive_ = false;
  uint64_t life_ = 0;
  int64_t pid_ = 0;
  std::shared_ptr<Wire> link_;
  std::optional<LinkLife> link_life_;  // of the supervisor's process
  std::shared_ptr<Wire> pulse_;
  std::vector<std::shared_ptr<Wire>> old_pulses_;  // until the controller closes them
  bool registered_ = false;
  std::optional<ExecutorAccount> account_;  // of the supervisor's process
  std::string kill_reason_;                 // of the executor that runs; empty: it is not killed
  bool asleep_ = false;
  int64_t woke_at_ = 0;
  std::deque<Event> waiting_;  // until it goes on
  bool silent_ = false;
  int64_t heard_at_ = -1;
  std::deque<Event> held_;
  int64_t closed_at_ = 0;
  int cuts_ = 0;  // under way
  int64_t last_cut_ = -1;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_HOST_H_
