// SPDX-License-Identifier: Apache-2.0
// Links between hosts of an island, over which its log goes through relays. Frames arrive late and
// in order; some come twice. Two hosts may not reach each other for a while.
#ifndef FAIRWAY_TESTS_SIM_RELAYS_H_
#define FAIRWAY_TESTS_SIM_RELAYS_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/basics.h"
#include "transport/link.h"

namespace fairway::sim {

class Host;
class PipeEnd;
class World;

// One connection, which its two ends hold. Side 0 has dialed.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(World& world, Host& dialer, Host& other);
  // Makes both ends.
  std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> Ends();

  // Nothing passes any more. Each end hears of it at its own time.
  void Cut();
  // Nothing passes any more, and no end hears of it until its kernel gives up the other host.
  void Silence();
  bool Joins(const Host& host) const { return hosts_[0] == &host || hosts_[1] == &host; }

 private:
  friend class PipeEnd;
  void Send(int from, Frame frame);
  void Close(int from);
  void Gone(int side);
  void Deliver(int to, const Frame& frame);
  void EndAt(int side, int64_t delay, absl::Status status);
  // Runs it when both hosts can be heard.
  void WhenHeard(Event run);
  size_t queued(int from) const { return queued_[from]; }

  World& world_;
  const std::array<Host*, 2> hosts_;
  std::array<PipeEnd*, 2> ends_ = {nullptr, nullptr};
  std::array<int64_t, 2> arrives_ = {0, 0};  // when the last frame to this side does
  std::array<size_t, 2> queued_ = {0, 0};    // bytes on their way from this side
  bool cut_ = false;
};

// All pipes of a world, and which hosts cannot reach each other.
class Pipes {
 public:
  explicit Pipes(World& world) : world_(world) {}
  // Connects to a relay. nullptr: it cannot be reached now, or takes no links.
  std::unique_ptr<Link> Dial(Host& from, const std::string& endpoint);
  void CutAll(const Host& host);
  // The two hosts cannot reach each other for this time. In half of all cases nobody says so.
  void Block(const Host& a, const Host& b, int64_t time);
  bool Blocked(const Host& a, const Host& b) const;

 private:
  World& world_;
  std::vector<std::weak_ptr<Pipe>> pipes_;
  std::map<std::pair<const Host*, const Host*>, int64_t> blocked_;  // until when
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_RELAYS_H_
