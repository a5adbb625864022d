// SPDX-License-Identifier: Apache-2.0
#include "log/follower.h"

#include <algorithm>
#include <utility>

#include "log/planted.h"

namespace fairway {
namespace {

// Entries in a row are a range, so that a frame of them costs the sets one step.
LogRanges NumbersOf(const std::vector<LogFrame::Received>& entries) {
  LogRanges out;
  for (const LogFrame::Received& entry : entries) {
    const LogNumber number = entry.header.number;
    if (out.empty() || number != out.back().last + 1) out.push_back({number, number});
    out.back().last = number;
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<LogFrame::Received>> LogFollower::Take(const LogFrame& frame) {
  std::vector<LogFrame::Received> fresh;
  if (frame.version < version_) return fresh;
  for (const LogRange& range : frame.concluded) {
    if (running_.Meets(range))
      return Error(absl::StatusCode::kFailedPrecondition,
                   "entries {} to {} are said to be concluded, but not all have ended here",
                   range.first, range.last);
  }
  for (const LogFrame::Received& entry : frame.entries) {
    const EntryHeader& header = entry.header;
    if (self_.has_value() && !header.span.Contains(*self_))
      return InvalidArgument("entry {} is for executors {} to {}, expected {} among them",
                             header.number, header.span.first, header.span.last, *self_);
    if (header.number > applied_ || Planted(LogMistake::kReplayRunsAgain)) fresh.push_back(entry);
  }
  for (const LogRange& range : frame.concluded) {
    kept_.Remove(range);
    news_.Remove(range);
    awaited_.Remove(range);
  }
  if (frame.version > version_) {
    version_ = frame.version;
    if (!Planted(LogMistake::kReportedOnce)) Resend();
  }
  for (const LogRange& range : NumbersOf(fresh)) {
    running_.Add(range);
    applied_ = std::max(applied_, range.last);
  }
  return fresh;
}

absl::Status LogFollower::Ended(const std::vector<LogFrame::Received>& entries, bool wakes) {
  for (const LogRange& range : NumbersOf(entries)) FAIRWAY_RETURN_IF_ERROR(Ended(range, wakes));
  return absl::OkStatus();
}

absl::Status LogFollower::Ended(LogRange range, bool wakes) {
  if (!running_.Covers(range))
    return Error(absl::StatusCode::kFailedPrecondition,
                 "entries {} to {} have ended, but do not all run here", range.first, range.last);
  running_.Remove(range);
  kept_.Add(range);
  news_.Add(range);
  if (wakes) awaited_.Add(range);
  urgent_ = urgent_ || wakes;
  return absl::OkStatus();
}

void LogFollower::Resend() {
  news_ = kept_;
  urgent_ = !awaited_.empty();
}

LogReport LogFollower::Next() {
  LogReport out{version_, applied_, news_.TakeFront(kMaxFrameRanges)};
  urgent_ = false;
  return out;
}

absl::Status LogFollower::CheckInvariants() const {
  for (const LogRange& range : kept_.ToRanges()) {
    if (running_.Meets(range))
      return absl::InternalError(
          fmt::format("of {} to {} some run and have ended", range.first, range.last));
    if (range.last > applied_)
      return absl::InternalError(fmt::format("{} has ended, but not come", range.last));
  }
  for (const LogRange& range : news_.ToRanges()) {
    for (LogNumber n = range.first; n <= range.last; ++n) {
      if (!kept_.Contains(n)) return absl::InternalError(fmt::format("{} is news, but gone", n));
    }
  }
  return absl::OkStatus();
}

}  // namespace fairway
