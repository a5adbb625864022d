// SPDX-License-Identifier: Apache-2.0
#include "log/merger.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "log/planted.h"

namespace fairway {

void LogMerger::Begin(uint64_t version, int children) {
  version_ = version;
  children_ = children;
  pending_.clear();
  ended_.clear();
  appended_ = 0;
  early_.assign(children, {});
  any_early_ = false;
}

void LogMerger::Append(LogNumber number, IndexSet children) {
  appended_ = number;
  Pending pending{children, std::move(children)};
  if (any_early_) {
    pending.concerns.ForEach([&](uint32_t child) {
      if (early_[child].Contains(number)) pending.waits.Remove(child);
    });
    // Numbers that are left out are concluded, or concern nobody here.
    for (LogRangeSet& early : early_) {
      if (!early.empty()) early.Remove({1, number});
    }
  }
  if (pending.waits.empty()) return ended_.push_back(number);
  pending_.emplace_hint(pending_.end(), number, std::move(pending));
}

absl::Status LogMerger::Check(uint32_t child, const LogReport& report, LogNumber sent) const {
  FAIRWAY_RETURN_IF_ERROR(CheckRanges(report.ended));
  if (Planted(LogMistake::kForeignReportBelieved)) return absl::OkStatus();
  if (early_[child].ranges() + report.ended.size() > kMaxEarlyRanges &&
      report.ended.back().last > appended_)
    return InvalidArgument("child {} has ended {} ranges of entries before they came, and {} more",
                           child, early_[child].ranges(), report.ended.size());
  for (const LogRange& range : report.ended) {
    if (range.last > sent)
      return InvalidArgument("child {} has ended {} to {}, but was sent entries up to {} only",
                             child, range.first, range.last, sent);
    for (auto it = pending_.lower_bound(range.first);
         it != pending_.end() && it->first <= range.last; ++it) {
      if (!it->second.concerns.Contains(child))
        return InvalidArgument("child {} has ended {} to {}, but {} does not concern it", child,
                               range.first, range.last, it->first);
    }
  }
  return absl::OkStatus();
}

absl::Status LogMerger::Take(uint32_t child, const LogReport& report, LogNumber sent) {
  if (child >= static_cast<uint32_t>(children_))
    return InvalidArgument("a report of child {}, expected less than {}", child, children_);
  if (report.version > version_)
    return InvalidArgument("child {} reports in version {}, expected at most {}", child,
                           report.version, version_);
  if (report.version < version_ && !Planted(LogMistake::kOldVersionCounts)) return absl::OkStatus();
  FAIRWAY_RETURN_IF_ERROR(Check(child, report, sent));
  for (const LogRange& range : report.ended) {
    auto it = pending_.lower_bound(range.first);
    while (it != pending_.end() && it->first <= range.last) {
      IndexSet& waits = it->second.waits;
      waits.Remove(child);
      if (!waits.empty() && !Planted(LogMistake::kConcludedEarly)) {
        ++it;
        continue;
      }
      ended_.push_back(it->first);
      it = pending_.erase(it);
    }
    if (range.last > appended_ && !Planted(Bug::kForgetEarlyEnds)) {
      early_[child].Add(LogRange{std::max(range.first, appended_ + 1), range.last});
      any_early_ = true;
    }
  }
  return absl::OkStatus();
}

size_t LogMerger::early_ranges() const {
  size_t ranges = 0;
  for (const LogRangeSet& early : early_) ranges += early.ranges();
  return ranges;
}

std::vector<LogNumber> LogMerger::TakeEnded() { return std::exchange(ended_, {}); }

absl::Status LogMerger::CheckInvariants() const {
  for (const auto& [number, pending] : pending_) {
    if (pending.waits.empty())
      return absl::InternalError(fmt::format("entry {} waits for nobody", number));
    bool inside = true;
    pending.waits.ForEach([&, &concerns = pending.concerns](uint32_t child) {
      inside = inside && concerns.Contains(child) && child < static_cast<uint32_t>(children_);
    });
    if (!inside)
      return absl::InternalError(
          fmt::format("entry {} waits for whom it does not concern", number));
  }
  return absl::OkStatus();
}

}  // namespace fairway
