// SPDX-License-Identifier: Apache-2.0
// Where compiled code runs, and how much device memory it takes there. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_CODE_LAYOUT_H_
#define FAIRWAY_CONTROLLER_CLUSTER_CODE_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/shared_vector.h"
#include "controller/cluster/executable_spec.h"
#include "graph/plan.h"
#include "scheduler/admission.h"

namespace fairway {

inline constexpr int64_t kAllocationUnit = 64;  // device memory is counted in units of this size
inline int64_t Rounded(int64_t bytes) {
  return (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
}

// Where one shard of a group lies.
struct Place {
  ExecutorId executor;
  int32_t ordinal = 0;  // of the device, within its executor
  DeviceId device;
  int64_t bytes = 0;  // of the shard, dense
  friend bool operator==(const Place&, const Place&) = default;
};

// The bytes that a node reserves on one device.
struct Reservation {
  DeviceId device;
  int64_t output = 0;
  int64_t temp = 0;
  int64_t credit = 0;  // donated inputs that certainly become outputs: not reserved again
  int64_t total() const { return output + temp - credit; }
};

// What a node reserves. Launches of one executable share the list until one changes its own.
class Reservations {
 public:
  size_t size() const { return list_ == nullptr ? 0 : list_->size(); }
  const Reservation& operator[](size_t i) const { return (*list_)[i]; }
  const Reservation* begin() const { return list_ == nullptr ? nullptr : list_->data(); }
  const Reservation* end() const { return begin() + size(); }
  void clear() { list_ = nullptr; }
  bool Shares(const Reservations& with) const { return list_ == with.list_; }
  // This list alone, to be changed.
  std::vector<Reservation>& Own() {
    if (list_ == nullptr) list_ = std::make_shared<std::vector<Reservation>>();
    if (list_.use_count() > 1) list_ = std::make_shared<std::vector<Reservation>>(*list_);
    return *list_;
  }

 private:
  std::shared_ptr<std::vector<Reservation>> list_;  // nullptr: empty
};

// The facts about an executable's devices that launches need. They are worked out once, because
// launches are many, and each may have many devices.
struct CodeLayout {
  // The part of the executable that runs on one executor.
  struct Part {
    ExecutorId executor;
    std::vector<int32_t> positions;  // in the executable's list of devices
    std::vector<int32_t> ordinals;   // of these devices, within the executor
  };
  struct Output {
    SharedVector<Place> places;        // by position
    SharedVector<int32_t> replica_of;  // as in Group
    SharedVector<MemoryNeed> room;     // as in Group
  };
  std::vector<Part> parts;  // in the order of the executors' first devices
  size_t widest = 0;        // positions of the part that has most
  // The number of each executor's part, in the order of the executors.
  std::vector<std::pair<ExecutorId, int32_t>> part_on;
  // Who runs the code together, by part; of one part: nobody. As of Registry::arrivals.
  SharedVector<InstallExecutable::Member> members;
  uint64_t members_as_of = 0;
  // As of Registry::arrivals: whether the parts are all executors of the island between the first
  // and the last of part_on, and these take spans.
  bool is_span = false;
  uint64_t span_as_of = 0;
  // Registry::arrivals when all parts had the code; 0: some may not have it.
  uint64_t installed_as_of = 0;
  std::vector<int32_t> part_of;  // by position
  // Those of the last argument that was one whole group: they are on its devices, in their order.
  SharedVector<Place> argument_places;
  std::vector<Output> outputs;  // by result
  // Results in the order of their bytes, and those of the same bytes in their own order.
  std::vector<std::pair<int64_t, int32_t>> by_bytes;
  Reservations reservations;       // for a launch
  SharedVector<MemoryNeed> needs;  // the same, as long as nothing is donated
  SharedVector<MemoryNeed> temps;  // of `reservations`; empty: none is temporary
  size_t command_bytes = 0;        // the size of its largest command (command_bytes.h)
  size_t install_bytes = 0;        // about that of the command that installs it
  size_t runs = 0;                 // nodes that run it and have not ended
  // Of a program's sequence: its session, and the bytes counted there until it is forgotten.
  SessionId session;
  size_t record_bytes = 0;
};

// The number of the executor's part; -1: it has none.
inline int32_t PartOn(const CodeLayout& layout, ExecutorId executor) {
  const auto at = std::ranges::lower_bound(layout.part_on, executor, {},
                                           &std::pair<ExecutorId, int32_t>::first);
  return at == layout.part_on.end() || at->first != executor ? -1 : at->second;
}

// The seat of a device: its executor, and its number there.
struct DeviceSeat {
  ExecutorId executor;
  int32_t ordinal = 0;  // within the executor
};
// `seats` are those of the executable's devices.
CodeLayout LayoutOf(const ExecutableSpec& spec, const std::vector<DeviceSeat>& seats);
SharedVector<MemoryNeed> NeedsOf(const Reservations& reservations);
// What shards take at these places.
SharedVector<MemoryNeed> RoomOf(const std::vector<Place>& places);
// Adds to the reservation at `position`, which is that of `device`. At the end of `reservations` it
// makes a new one; the caller knows that the device has none yet.
void AddReservation(Reservations& reservations, DeviceId device, int64_t output, int64_t temp,
                    size_t position);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_CODE_LAYOUT_H_
