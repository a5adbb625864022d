// SPDX-License-Identifier: Apache-2.0
// Chooses a tree for an island's log: which relays there are, and who hears of the log from whom
// (docs/design/0066-relays.md). Pure.
#ifndef FAIRWAY_LOG_TREE_PLAN_H_
#define FAIRWAY_LOG_TREE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "log/entry.h"

namespace fairway {

// Links from the controller to an executor, at most.
inline constexpr int kMaxTreeDepth = 3;

struct TreePlan {
  struct Relay {
    ExecutorIndex host = 0;                // whose host runs it
    std::vector<ExecutorIndex> executors;  // its children
    std::vector<size_t> relays;            // its children, by index in TreePlan::relays
    bool top = false;                      // a child of the controller
    bool operator==(const Relay&) const = default;
  };
  std::vector<Relay> relays;             // children come before their parents
  std::vector<ExecutorIndex> executors;  // children of the controller
  bool operator==(const TreePlan&) const = default;
};

// `executors`: ascending. `hosts`: the executors on whose hosts a relay may run, ascending; each
// runs one at most. Nobody has more than `fanout` children as long as there are enough hosts for
// that and kMaxTreeDepth is enough; otherwise the controller has more. `fanout` 0: no relays.
// A relay runs on the host of one of the executors below it if it can.
TreePlan PlanTree(const std::vector<ExecutorIndex>& executors,
                  const std::vector<ExecutorIndex>& hosts, size_t fanout);

}  // namespace fairway

#endif  // FAIRWAY_LOG_TREE_PLAN_H_
