// SPDX-License-Identifier: Apache-2.0
// A session that keeps two devices of the neighbour's island busy: more gangs than may be in flight
// on a device, each of which takes longer than the neighbour should wait for an answer.
#ifndef FAIRWAY_TESTS_SIM_HOG_H_
#define FAIRWAY_TESTS_SIM_HOG_H_

#include <set>

#include "controller/cluster/cluster.h"
#include "controller/cluster/virtual_device.h"
#include "tests/sim/session_owner.h"

namespace fairway::sim {

class World;

class Hog final : public SessionOwner {
 public:
  explicit Hog(World& world) : world_(world) {}

  static constexpr int kDevices = 2;
  // Whether it uses this device of the neighbour's island: the first ones of its first executor.
  static bool Has(const VirtualDevice& device) {
    return device.worker == "w00" && device.local_ordinal < kDevices;
  }

  SessionId session() const override { return session_; }
  bool done() const override { return begun_ && open_.empty(); }
  bool waiting() const override { return !open_.empty(); }
  void Begin() override { TryIn(1); }
  void End() override;
  void ReportWaiting() override;
  void OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) override;

 private:
  void TryIn(int64_t time);
  // False: the island is not there yet.
  bool Launch();

  World& world_;
  SessionId session_;
  bool begun_ = false;
  std::set<uint64_t> open_;  // tokens of gangs
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_HOG_H_
