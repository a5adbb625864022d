// SPDX-License-Identifier: Apache-2.0
#include "log/relay.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/planted.h"

namespace fairway {

absl::StatusOr<LogRelay> LogRelay::Make(uint64_t version, std::vector<LogRelayChild> children,
                                        LogRelayLimits limits) {
  if (version == 0) return InvalidArgument("version 0 of a tree, expected 1 or more");
  LogRelay out(limits);
  out.version_ = version;
  std::vector<LogChild> below;
  for (LogRelayChild& child : children) {
    out.floors_.push_back(child.floor);
    below.push_back(std::move(child.below));
  }
  FAIRWAY_ASSIGN_OR_RETURN(out.tree_, LogTree::Make(version, std::move(below)));
  out.merger_.Begin(version, out.tree_.children());
  out.outboxes_.assign(children.size(), LogOutbox(version));
  return out;
}

LogRangeSet LogRelay::Concluded() const {
  LogRangeSet out = concluded_ahead_;
  LogNumber next = 1;
  for (const auto& [number, open] : open_) {
    if (number > next) out.Add(LogRange{next, number - 1});
    next = number + 1;
  }
  if (follower_.applied() >= next) out.Add(LogRange{next, follower_.applied()});
  return out;
}

absl::Status LogRelay::Attach(uint32_t child, LogNumber applied) {
  if (child >= outboxes_.size() || given_up_.Contains(child))
    return InvalidArgument("child {} of version {} is not there", child, version_);
  if (applied < floors_[child] && !Planted(Bug::kBehindIsServed))
    return Error(absl::StatusCode::kFailedPrecondition,
                 "it has entries up to {}, but entry {} is concluded, so nobody has that any more",
                 applied, floors_[child]);
  // The child may be ahead of this relay.
  return outboxes_[child].Replay(applied, 0, kMaxLogNumber, Concluded());
}

void LogRelay::GiveUp(uint32_t child) {
  outboxes_[child] = LogOutbox(version_);
  given_up_.Add(child);
}

void LogRelay::Conclude(const LogRange& range) {
  // Numbers that are not open here ended in an earlier version. Their executors may not know.
  const auto tell_all = [&](LogNumber first, LogNumber last) {
    if (first > last) return;
    for (LogOutbox& outbox : outboxes_) outbox.Conclude(LogRange{first, last});
  };
  LogNumber next = range.first;
  auto it = open_.lower_bound(range.first);
  while (it != open_.end() && it->first <= range.last) {
    tell_all(next, it->first - 1);
    next = it->first + 1;
    it->second.concerns.ForEach([&, number = it->first](uint32_t child) {
      outboxes_[child].Conclude(number);
      floors_[child] = std::max(floors_[child], number);
    });
    it = open_.erase(it);
  }
  tell_all(next, range.last);
  if (range.last > follower_.applied()) concluded_ahead_.Add(range);
}

absl::Status LogRelay::TakeEntry(const LogFrame::Received& entry) {
  const LogNumber number = entry.header.number;
  IndexSet concerned = tree_.Concerned(entry.header.span, number);
  auto kept = std::make_shared<LogEntry>();
  kept->header = entry.header;
  kept->body = std::string(entry.body);
  const auto pass = [&](uint32_t child) {
    if (given_up_.Contains(child) || number <= outboxes_[child].applied()) return;
    if (Planted(Bug::kForgetForAbsent) && !outboxes_[child].connected()) return;
    outboxes_[child].Append(kept);
  };
  if (Planted(Bug::kTellAllBelow)) {
    for (uint32_t child = 0; child < outboxes_.size(); ++child) pass(child);
  } else {
    concerned.ForEach(pass);
  }
  const bool awaited = (entry.header.flags & kEndsLater) != 0;
  open_.emplace_hint(open_.end(), number, Open{concerned, awaited});
  merger_.Append(number, std::move(concerned));
  return absl::OkStatus();
}

absl::Status LogRelay::TakeFrame(const LogFrame& frame) {
  if (frame.version != version_)
    return InvalidArgument("a frame of version {}, expected {}", frame.version, version_);
  for (const LogFrame::Received& entry : frame.entries) {
    if (tree_.Concerned(entry.header.span, entry.header.number).empty())
      return InvalidArgument("entry {} concerns nobody below this relay", entry.header.number);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<LogFrame::Received> fresh, follower_.Take(frame));
  for (const LogRange& range : frame.concluded) Conclude(range);
  for (const LogFrame::Received& entry : fresh) FAIRWAY_RETURN_IF_ERROR(TakeEntry(entry));
  if (!concluded_ahead_.empty() && follower_.applied() > 0)
    concluded_ahead_.Remove({1, follower_.applied()});
  Settle();
  return absl::OkStatus();
}

absl::Status LogRelay::TakeReport(uint32_t child, const LogReport& report) {
  if (child >= outboxes_.size() || given_up_.Contains(child))
    return InvalidArgument("a report of child {} of version {}, which is not there", child,
                           version_);
  if (report.version < version_) return absl::OkStatus();  // R3
  LogOutbox& outbox = outboxes_[child];
  FAIRWAY_RETURN_IF_ERROR(outbox.CheckApplied(report.applied));
  if (!report.ended.empty() && report.ended.back().last > report.applied)
    return InvalidArgument("a child has ended {}, but has entries up to {} only",
                           report.ended.back().last, report.applied);
  FAIRWAY_RETURN_IF_ERROR(merger_.Take(child, report, outbox.sent()));
  outbox.Applied(report.applied);
  Settle();
  return absl::OkStatus();
}

void LogRelay::Settle() {
  for (const LogNumber number : merger_.TakeEnded()) {
    // Never an error: the merger names each entry that came once.
    const Open& open = open_.at(number);
    (void)follower_.Ended(number, open.awaited);
    if (!Planted(Bug::kKnownIsConcluded)) continue;
    open.concerns.ForEach([&](uint32_t child) { outboxes_[child].Conclude(number); });
  }
}

LogNumber LogRelay::Ask() {
  follower_.Resend();
  return follower_.applied();
}

LogReport LogRelay::Next() {
  LogReport report = follower_.Next();
  report.version = version_;  // before its first frame, too: then nothing has come
  return report;
}

size_t LogRelay::bytes() const {
  size_t bytes = 0;
  for (const LogOutbox& outbox : outboxes_) bytes += outbox.bytes();
  return bytes;
}

absl::Status LogRelay::CheckInvariants() const {
  FAIRWAY_RETURN_IF_ERROR(follower_.CheckInvariants());
  FAIRWAY_RETURN_IF_ERROR(merger_.CheckInvariants());
  for (const LogOutbox& outbox : outboxes_) FAIRWAY_RETURN_IF_ERROR(outbox.CheckInvariants());
  size_t running = 0;
  for (const auto& [number, open] : open_) {
    const bool runs = follower_.running().Contains(number);
    if (runs) ++running;
    if (runs == follower_.kept().Contains(number))
      return absl::InternalError(fmt::format("entry {} is open, but not known as such", number));
  }
  if (running != merger_.pending())
    return absl::InternalError(
        fmt::format("{} entries run below, but {} are waited for", running, merger_.pending()));
  return absl::OkStatus();
}

}  // namespace fairway
