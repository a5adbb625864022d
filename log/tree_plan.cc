// SPDX-License-Identifier: Apache-2.0
#include "log/tree_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/planted.h"

namespace fairway {
namespace {

// An executor or a relay that has no parent yet.
struct Orphan {
  std::optional<size_t> relay;
  std::vector<ExecutorIndex> below;  // executors; itself, if it is one
};

class Planner {
 public:
  Planner(const std::vector<ExecutorIndex>& executors, const std::vector<ExecutorIndex>& hosts,
          size_t fanout)
      : free_(hosts.begin(), hosts.end()), fanout_(fanout) {
    for (const ExecutorIndex executor : executors) level_.push_back({std::nullopt, {executor}});
  }

  TreePlan Run() {
    for (int depth = 1; depth < kMaxTreeDepth && fanout_ > 1 && level_.size() > fanout_; ++depth)
      AddLevel();
    for (const Orphan& orphan : level_) {
      if (orphan.relay) {
        plan_.relays[*orphan.relay].top = true;
      } else {
        plan_.executors.push_back(orphan.below.front());
      }
    }
    return std::move(plan_);
  }

 private:
  using Group = std::vector<Orphan>;

  // Puts orphans that are next to each other below relays.
  void AddLevel() {
    const size_t count = (level_.size() + fanout_ - 1) / fanout_;
    std::vector<Group> groups(count);
    for (size_t i = 0; i < level_.size(); ++i)
      groups[i * count / level_.size()].push_back(std::move(level_[i]));
    std::vector<std::optional<ExecutorIndex>> hosts;
    for (const Group& group : groups) hosts.push_back(TakeHostOf(group));
    level_.clear();
    for (size_t g = 0; g < count; ++g) {
      if (!hosts[g]) hosts[g] = TakeAnyHost(groups[g]);
      if (hosts[g]) {
        level_.push_back(Under(*hosts[g], std::move(groups[g])));
      } else {
        std::ranges::move(groups[g], std::back_inserter(level_));
      }
    }
  }

  std::optional<ExecutorIndex> TakeHostOf(const Group& group) {
    if (group.size() < 2) return std::nullopt;
    for (const Orphan& orphan : group) {
      for (const ExecutorIndex executor : orphan.below) {
        if (Planted(Bug::kRelayTwice) && free_.contains(executor)) return executor;
        if (free_.erase(executor) > 0) return executor;
      }
    }
    return std::nullopt;
  }

  std::optional<ExecutorIndex> TakeAnyHost(const Group& group) {
    if (group.size() < 2 || free_.empty()) return std::nullopt;
    return free_.extract(free_.begin()).value();
  }

  Orphan Under(ExecutorIndex host, Group group) {
    TreePlan::Relay relay{host, {}, {}, false};
    Orphan out{plan_.relays.size(), {}};
    for (Orphan& orphan : group) {
      out.below.insert(out.below.end(), orphan.below.begin(), orphan.below.end());
      if (orphan.relay) {
        relay.relays.push_back(*orphan.relay);
      } else {
        relay.executors.push_back(orphan.below.front());
      }
    }
    plan_.relays.push_back(std::move(relay));
    return out;
  }

  std::set<ExecutorIndex> free_;  // hosts that run no relay yet
  const size_t fanout_;
  std::vector<Orphan> level_;
  TreePlan plan_;
};

}  // namespace

TreePlan PlanTree(const std::vector<ExecutorIndex>& executors,
                  const std::vector<ExecutorIndex>& hosts, size_t fanout) {
  return Planner(executors, hosts, fanout).Run();
}

}  // namespace fairway
