// SPDX-License-Identifier: Apache-2.0
// How much an executor's core has done, and whether its turn is over. Pure; no clock.
#ifndef FAIRWAY_WORKER_EXECUTOR_WORK_METER_H_
#define FAIRWAY_WORKER_EXECUTOR_WORK_METER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace fairway {

// Owned by ExecutorCore. A turn begins where the last one ends: work that an event does between
// turns counts for the turn that runs then.
class WorkMeter {
 public:
  explicit WorkMeter(uint64_t turn_units) : turn_units_(turn_units), turn_ends_(turn_units) {}

  void Charge(uint64_t units) { units_ += units; }
  void ChargeShards(size_t shards) {
    shards_ += shards;
    Charge(std::exchange(shards_, shards_ % kShardsPerUnit) / kShardsPerUnit);
  }
  bool TurnIsOver() const { return units_ >= turn_ends_; }
  void BeginTurn() { turn_ends_ = units_ + turn_units_; }
  // The end of a slice that begins now; not beyond the end of the turn.
  uint64_t SliceEnds(uint64_t slice_units) const {
    return std::min(turn_ends_, units_ + slice_units);
  }
  void EndCall() { most_ = std::max(most_, units_ - std::exchange(call_began_, units_)); }

  uint64_t units() const { return units_; }
  uint64_t most() const { return most_; }  // of one call

 private:
  static constexpr size_t kShardsPerUnit = 4;
  const uint64_t turn_units_;
  uint64_t turn_ends_;
  uint64_t units_ = 0;
  uint64_t call_began_ = 0;
  uint64_t most_ = 0;
  size_t shards_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_WORK_METER_H_
