// SPDX-License-Identifier: Apache-2.0
// Puts the ends of a session's executions into the order in which a client may be told of them.
//
// JAX asks for the status of executions with side effects, and keeps for each device only that of
// the last one: "on each device we have a total ordering of computations" (jax/_src/dispatch.py,
// RuntimeTokenSet). Executions that need nothing of each other may end here in any order. So the
// end of one is told after the ends of those that were asked for before it on any of its devices.
#ifndef FAIRWAY_CONTROLLER_IFRT_EXECUTION_ENDS_H_
#define FAIRWAY_CONTROLLER_IFRT_EXECUTION_ENDS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>

namespace fairway {

class ExecutionEnds {
 public:
  // An execution was asked for on these devices. Returns its number.
  // Costs a look-up for each device.
  uint64_t Begin(const std::vector<int32_t>& devices);
  // The execution has ended. Only the first call for a number counts.
  void Ended(uint64_t number, absl::Status status);
  // The next end to tell, with its number; nullopt: none may be told now.
  // Costs a look-up for each device of that execution.
  std::optional<std::pair<uint64_t, absl::Status>> Next();

  bool has_next() const { return !due_.empty(); }
  // Executions whose ends were not returned by Next.
  size_t size() const { return executions_.size(); }

 private:
  struct Execution {
    std::vector<int32_t> devices;
    int before = 0;                // earlier executions that Next has to return first
    std::vector<uint64_t> behind;  // whose `before` counts this one; at most one for each device
    std::optional<absl::Status> status;
  };

  uint64_t next_number_ = 1;
  absl::btree_map<uint64_t, Execution> executions_;
  absl::btree_map<int32_t, uint64_t>
      last_;                  // by device: the last execution, if it is in executions_
  std::deque<uint64_t> due_;  // have ended, and nothing is before them
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_EXECUTION_ENDS_H_
