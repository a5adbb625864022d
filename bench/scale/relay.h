// SPDX-License-Identifier: Apache-2.0
// A simulated relay of the scale model: a real RelayCore (docs/design/0066-relays.md) that gets and
// sends real frames. It has a processor of its own: its CPU is measured, what its sockets take is
// added, and both pass on its own virtual time.
#ifndef FAIRWAY_BENCH_SCALE_RELAY_H_
#define FAIRWAY_BENCH_SCALE_RELAY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/scale/link_cost.h"
#include "bench/scale/timeline.h"
#include "transport/link.h"
#include "worker/relay/relay_core.h"

namespace fairway::scale {

class Relay;

// A host, or a relay below another one.
class RelayChild {
 public:
  virtual ~RelayChild() = default;
  // Its link to its relay is up.
  virtual void RelayUp() = 0;
  // A frame from the relay comes, now.
  virtual void FromRelay(const Frame& frame) = 0;
};

// What relays need of the world around them.
class RelayWorld {
 public:
  virtual ~RelayWorld() = default;
  // A relay has written this frame to its link to the controller at `at`.
  virtual void FromRelay(int relay, Nanos at, Frame frame) = 0;
  virtual Relay& RelayAt(const std::string& endpoint) = 0;
  virtual Nanos network() const = 0;  // in one direction, between any two machines
};

// A child's end of a link to a relay, which it dials again and again until the relay lets it in.
// Destroying it closes the link.
class RelayLink {
 public:
  RelayLink(Timeline* timeline, RelayWorld* world, std::string endpoint, RelayChild* child);
  ~RelayLink();
  RelayLink(const RelayLink&) = delete;
  RelayLink& operator=(const RelayLink&) = delete;

  bool up() const { return pipe_ != nullptr; }
  // The child has written this frame at `at`. The link is up.
  void Send(Nanos at, Frame frame);

 private:
  friend class Relay;
  struct Pipe;
  void Dial();

  Timeline* const timeline_;
  RelayWorld* const world_;
  const std::string endpoint_;
  RelayChild* const child_;
  const std::shared_ptr<RelayLink*> self_;  // it names nobody once this is gone
  std::shared_ptr<Pipe> pipe_;
};

class Relay final : public RelayActions, public RelayChild {
 public:
  // `index`: that of its host.
  Relay(int index, std::string worker, std::string endpoint, LinkCost cost, Timeline* timeline,
        RelayWorld* world);
  ~Relay() override;

  // Registers at the controller.
  void Start();
  // A frame from the controller comes, now.
  void OnFrame(const Frame& frame);

  // CPU of the handling so far, and with what its sockets took.
  Nanos cpu() const { return cpu_; }
  Nanos busy() const { return busy_; }
  bool relays() const { return core_.version() > 0; }
  // The reason why it stopped, or OK.
  const absl::Status& failure() const { return failure_; }

  // RelayActions
  void DialParent(const std::string& endpoint) override;
  void Tell(v1::RelayTrouble trouble) override;
  // RelayChild
  void RelayUp() override;
  void FromRelay(const Frame& frame) override;

 private:
  friend class RelayLink;
  class Up;
  using Pipe = RelayLink::Pipe;
  // Runs `work` as soon as the relay is free. Its CPU time and `more` pass, and what its frames
  // cost to send; then they go out.
  void Handle(Nanos more, const std::function<void()>& work);
  // A child dials, and gets its link.
  std::shared_ptr<Pipe> Accept(RelayLink* child);
  void OnChild(const std::shared_ptr<Pipe>& pipe, const Frame& frame);
  void ChildEnded(const std::shared_ptr<Pipe>& pipe);
  void Take(absl::Status status);
  // Ticks soon: this one has no heartbeat, so that time ends with the work.
  void WantTick();

  const int index_;
  const std::string worker_, endpoint_;
  const LinkCost cost_;
  Timeline* const timeline_;
  RelayWorld* const world_;
  RelayCore core_;
  const std::unique_ptr<Up> controller_, parent_;
  std::unique_ptr<RelayLink> link_;           // to the relay above it
  std::vector<std::shared_ptr<Pipe>> pipes_;  // of its children
  absl::Status failure_;
  Nanos busy_until_ = 0;
  Nanos cpu_ = 0;
  Nanos busy_ = 0;
  bool tick_wanted_ = false;
  std::vector<std::function<void(Nanos)>>
      out_;  // frames of the handling under way; each goes out at a time
};

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_RELAY_H_
