// SPDX-License-Identifier: Apache-2.0
#include "log/tree.h"

#include <algorithm>
#include <utility>

namespace fairway {

absl::Status LogSets::Define(uint32_t index, IndexSet members) {
  if (members.empty()) return InvalidArgument("set {} of executors is empty", index);
  if (!sets_.emplace(index, std::move(members)).second)
    return Error(absl::StatusCode::kAlreadyExists, "set {} of executors is defined already", index);
  return absl::OkStatus();
}

const IndexSet* LogSets::Find(uint32_t index) const {
  const auto it = sets_.find(index);
  return it == sets_.end() ? nullptr : &it->second;
}

absl::StatusOr<LogTree> LogTree::Make(uint64_t version, std::vector<LogChild> children) {
  LogTree out;
  out.version_ = version;
  out.children_ = static_cast<int>(children.size());
  for (uint32_t child = 0; child < children.size(); ++child) {
    for (const LogMember& member : children[child].live) {
      if (!out.places_.emplace(member.executor, Place{child, member.joined}).second)
        return InvalidArgument("executor {} is twice in version {} of the tree", member.executor,
                               version);
      out.last_joined_ = std::max(out.last_joined_, member.joined);
    }
  }
  return out;
}

bool LogTree::Concerns(ExecutorIndex executor, LogNumber number) const {
  const auto it = places_.find(executor);
  return it != places_.end() && it->second.joined < number;
}

void LogTree::KeepConcerned(const LogTree& older) {
  of_sets_ = older.of_sets_;
  for (auto& [set, concerned] : of_sets_) {
    for (int child = children_; child < older.children_; ++child) concerned.Remove(child);
  }
}

IndexSet LogTree::Concerned(const LogSets& sets, LogSetId set, LogNumber number) {
  IndexSet out;
  const auto look = [&](ExecutorIndex executor) {
    const auto it = places_.find(executor);
    if (it != places_.end() && it->second.joined < number) out.Add(it->second.child);
  };
  if (set.is_one()) {
    look(set.index());
    return out;
  }
  const bool same_for_all = number > last_joined_;
  if (same_for_all) {
    const auto known = of_sets_.find(set.index());
    if (known != of_sets_.end()) return known->second;
  }
  const IndexSet* const members = sets.Find(set.index());
  if (members == nullptr) return out;
  members->ForEach(look);
  if (same_for_all) of_sets_.emplace(set.index(), out);
  return out;
}

}  // namespace fairway
