// SPDX-License-Identifier: Apache-2.0
// Links between the controller's hub and processes on hosts, in virtual time. Frames arrive late
// and in order. A link can be cut so that one end hears of it first. A silent host neither gets nor
// sends anything.
#ifndef FAIRWAY_TESTS_SIM_LINKS_H_
#define FAIRWAY_TESTS_SIM_LINKS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "async/loop.h"
#include "fairway/v1/link.pb.h"
#include "tests/sim/world.h"
#include "transport/frame.h"
#include "transport/link.h"
#include "worker/process/link_life.h"

namespace fairway::sim {

class Host;
class Wire;

// The controller's loop. Posted handlers die with their controller.
class ControllerLoop final : public Loop {
 public:
  ControllerLoop(World& world, uint64_t epoch) : world_(world), epoch_(epoch) {}
  void Post(std::string_view name, Handler handler) override;

 private:
  World& world_;
  const uint64_t epoch_;
};

// The process at the far end.
class FarSide {
 public:
  virtual ~FarSide() = default;
  virtual void OnFrame(Wire& wire, const Frame& frame) = 0;
  // Called once; nothing comes after it.
  virtual void OnEnd(Wire& wire) = 0;
};

// One connection. The far side holds it, and so does the hub's end.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  Wire(World& world, Host& host, FarSide* far);

  // Connects to the present controller: its hub gets an end.
  void Open();
  void Send(const v1::ToController& message);
  void Send(Frame frame);
  // The far process has ended or closes the link. What it sent before still arrives.
  void HangUp();
  // Nothing passes any more. One end hears of it now, the other one `later`.
  void Cut(bool hub_first, int64_t later);
  // The kernel of the controller's host has heard nothing of the far host for too long. Does
  // nothing on a link that is not watched.
  void HostSilent();
  bool watched() const { return watched_; }
  bool cut() const { return cut_; }
  // The epoch of its controller.
  uint64_t epoch() const { return epoch_; }
  // Checks that the far process gives its controller up if, and only if, that was silent for the
  // deadline. `stopped_until`: the time at which the process itself last was stopped.
  void CheckPatience(bool given_up, const LinkLife& life, int64_t stopped_until);

 private:
  friend class HubLink;

  void Down(Frame frame);
  void HubCloses();
  void HubGone();
  // Runs it in the controller's loop after what was sent before.
  void Up(bool background, Event run);
  // Runs it as soon as the host is not silent.
  void WhenHeard(bool background, Event run);
  void EndAtHub(absl::Status status);
  void EndAtFar(int64_t delay);

  World& world_;
  Host& host_;
  FarSide* far_;
  class HubLink* hub_ = nullptr;
  uint64_t epoch_ = 0;
  int64_t up_at_ = 0, down_at_ = 0;  // when the last frame sent arrives
  int64_t heard_at_ = 0;   // when the last frame came to the far host; at first, the creation
  size_t down_bytes_ = 0;  // on their way to the far side
  bool cut_ = false;
  bool closing_ = false;  // the hub has closed it
  bool watched_ = false;
  size_t most_ = kMaxFrameBytes;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_LINKS_H_
