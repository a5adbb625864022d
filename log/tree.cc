// SPDX-License-Identifier: Apache-2.0
#include "log/tree.h"

#include <algorithm>
#include <utility>

namespace fairway {

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
  of_spans_ = older.of_spans_;
  for (auto& [span, concerned] : of_spans_) {
    for (int child = children_; child < older.children_; ++child) concerned.Remove(child);
  }
}

IndexSet LogTree::Concerned(LogSpan span, LogNumber number) {
  IndexSet out;
  if (span.is_one()) {
    const auto it = places_.find(span.first);
    if (it != places_.end() && it->second.joined < number) out.Add(it->second.child);
    return out;
  }
  const bool same_for_all = number > last_joined_;
  if (same_for_all) {
    const auto known = of_spans_.find(span);
    if (known != of_spans_.end()) return known->second;
  }
  ForEach(span, number, [&out](ExecutorIndex, uint32_t child) { out.Add(child); });
  if (!same_for_all) return out;
  if (of_spans_.size() == kKnownSpans) of_spans_.clear();
  of_spans_.emplace(span, out);
  return out;
}

}  // namespace fairway
