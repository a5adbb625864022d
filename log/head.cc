// SPDX-License-Identifier: Apache-2.0
#include "log/head.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "log/planted.h"

namespace fairway {

absl::Status LogHead::Begin(std::vector<LogChild> children) {
  for (const LogChild& child : children) {
    for (const LogMember& member : child.live) {
      if (member.joined > log_.last())
        return InvalidArgument("executor {} joins at {}, expected at most {}", member.executor,
                               member.joined, log_.last());
    }
  }
  FAIRWAY_ASSIGN_OR_RETURN(LogTree tree, LogTree::Make(tree_.version() + 1, std::move(children)));
  if (Planted(LogMistake::kStaleSet)) tree.KeepConcerned(tree_);
  tree_ = std::move(tree);
  merger_.Begin(tree_.version(), tree_.children());
  outboxes_.assign(tree_.children(), LogOutbox(tree_.version()));
  for (const auto& [number, entry] : log_.open()) {
    IndexSet concerned = tree_.Concerned(entry->header.span, number);
    concerned.ForEach([&, &ref = entry](uint32_t child) { outboxes_[child].Append(ref); });
    merger_.Append(number, std::move(concerned));
  }
  merger_.Appended(log_.last());
  Settle();
  absl::erase_if(floors_, [&](const auto& floor) {
    return !tree_.Concerns(floor.first, kMaxLogNumber) && !Planted(Bug::kFloorOfPredecessor);
  });
  return absl::OkStatus();
}

absl::Status LogHead::Room(SessionId session, LogSpan span, uint8_t flags, size_t body_bytes) {
  return Room(tree_.Concerned(span, log_.last() + 1), session, flags, body_bytes);
}

absl::Status LogHead::Room(const IndexSet& concerned, SessionId session, uint8_t flags,
                           size_t body_bytes) const {
  if ((flags & kNeverWaits) != 0) return absl::OkStatus();
  FAIRWAY_RETURN_IF_ERROR(log_.Room(session, flags, body_bytes));
  absl::Status status;
  concerned.ForEach([&](uint32_t child) {
    const size_t used = outboxes_[child].bytes();
    const size_t more = kMaxEntryHeaderBytes + body_bytes;
    if (status.ok() && used > 0 && used + more > limits_.child_bytes)
      status = Error(absl::StatusCode::kResourceExhausted,
                     "{} bytes are on their way to child {}; {} more would be above {}", used,
                     child, more, limits_.child_bytes);
  });
  return status;
}

absl::StatusOr<LogNumber> LogHead::Append(NewLogEntry&& entry) {
  IndexSet concerned = tree_.Concerned(entry.span, log_.last() + 1);
  if (concerned.empty())
    return Error(absl::StatusCode::kFailedPrecondition,
                 "of executors {} to {} none is there in version {}, so a {} for them cannot be "
                 "appended",
                 entry.span.first, entry.span.last, tree_.version(), Name(entry.kind));
  FAIRWAY_RETURN_IF_ERROR(Room(concerned, entry.session, entry.flags, entry.body_bytes()));
  FAIRWAY_ASSIGN_OR_RETURN(const EntryRef ref, log_.Append(std::move(entry)));
  if (Planted(LogMistake::kAbsentChildEnded)) {
    for (uint32_t child = 0; child < outboxes_.size(); ++child) {
      if (!outboxes_[child].connected()) concerned.Remove(child);
    }
  }
  CountOpen(*ref, true);
  concerned.ForEach([&](uint32_t child) { outboxes_[child].Append(ref); });
  merger_.Append(ref->header.number, std::move(concerned));
  Settle();
  return ref->header.number;
}

absl::Status LogHead::Attach(uint32_t child, LogNumber applied, LogNumber sent) {
  if (child >= outboxes_.size())
    return InvalidArgument("a link of child {}, expected less than {}", child, outboxes_.size());
  return outboxes_[child].Replay(applied, sent, log_.last(), log_.concluded());
}

absl::Status LogHead::Keep(uint32_t child, LogOutbox::Standing before) {
  if (child >= outboxes_.size())
    return InvalidArgument("a link of child {}, expected less than {}", child, outboxes_.size());
  return outboxes_[child].Keep(std::move(before), log_.last());
}

void LogHead::Detach(uint32_t child) { outboxes_[child].Cut(); }

absl::Status LogHead::Take(uint32_t child, const LogReport& report) {
  if (child >= outboxes_.size())
    return InvalidArgument("a report of child {}, expected less than {}", child, outboxes_.size());
  LogOutbox& outbox = outboxes_[child];
  const bool counts = report.version == tree_.version();
  if (counts) {
    FAIRWAY_RETURN_IF_ERROR(outbox.CheckApplied(report.applied));
    if (!report.ended.empty() && report.ended.back().last > report.applied)
      return InvalidArgument("a child has ended {}, but has entries up to {} only",
                             report.ended.back().last, report.applied);
  }
  FAIRWAY_RETURN_IF_ERROR(merger_.Take(child, report, outbox.sent()));
  if (counts) outbox.Applied(report.applied);
  Settle();
  return absl::OkStatus();
}

void LogHead::Settle() {
  if (!merger_.any_ended()) return;
  for (const LogNumber number : merger_.TakeEnded()) {
    const auto entry = log_.Conclude(number);
    if (!entry.ok()) continue;  // never: the merger names each entry of the log once
    CountOpen(**entry, false);
    const LogSpan span = (*entry)->header.span;
    tree_.Concerned(span, number).ForEach([&](uint32_t child) {
      outboxes_[child].Conclude(number);
    });
    if (limits_.floors) RaiseFloor(span, number);
    concluded_.push_back(number);
    if ((*entry)->awaited) ended_.push_back((*entry)->awaited);
  }
}

void LogHead::Raise(ExecutorIndex executor, LogNumber number) {
  LogNumber& floor = floors_[executor];
  floor = std::max(floor, number);
}

void LogHead::RaiseFloor(LogSpan span, LogNumber number) {
  if (span.is_one()) return Raise(span.first, number);
  const auto known = std::ranges::find(span_floors_, span, &SpanFloor::span);
  if (known != span_floors_.end()) {
    known->number = std::max(known->number, number);
    return;
  }
  if (span_floors_.size() == kSpanFloors) {
    const SpanFloor oldest = span_floors_.front();
    span_floors_.erase(span_floors_.begin());
    tree_.ForEach(oldest.span, oldest.number,
                  [&](ExecutorIndex executor, uint32_t) { Raise(executor, oldest.number); });
  }
  span_floors_.push_back({span, number});
}

LogNumber LogHead::floor(ExecutorIndex executor) const {
  const auto it = floors_.find(executor);
  LogNumber floor = it == floors_.end() ? 0 : it->second;
  for (const SpanFloor& of : span_floors_) {
    if (of.span.Contains(executor)) floor = std::max(floor, of.number);
  }
  return tree_.Concerns(executor, floor) || Planted(Bug::kFloorOfPredecessor) ? floor : 0;
}

void LogHead::CountOpen(const LogEntry& entry, bool more) {
  if (!limits_.floors || !entry.header.span.is_one()) return;
  const auto it = open_.try_emplace(entry.header.span.first).first;
  Open& open = it->second;
  open.entries = more ? open.entries + 1 : open.entries - 1;
  open.bytes = more ? open.bytes + entry.body_bytes() : open.bytes - entry.body_bytes();
  if (open.entries == 0) open_.erase(it);
}

LogHead::Open LogHead::open(ExecutorIndex executor) const {
  const auto it = open_.find(executor);
  return it == open_.end() ? Open() : it->second;
}

std::vector<LogNumber> LogHead::TakeConcluded() { return std::exchange(concluded_, {}); }

absl::Status LogHead::CheckInvariants() const {
  FAIRWAY_RETURN_IF_ERROR(log_.CheckInvariants());
  FAIRWAY_RETURN_IF_ERROR(merger_.CheckInvariants());
  for (const LogOutbox& outbox : outboxes_) FAIRWAY_RETURN_IF_ERROR(outbox.CheckInvariants());
  if (merger_.pending() != log_.open().size())
    return absl::InternalError(fmt::format("{} entries are kept, but {} wait for their ends",
                                           log_.open().size(), merger_.pending()));
  if (!limits_.floors) return absl::OkStatus();
  absl::flat_hash_map<ExecutorIndex, Open> open;
  for (const auto& [number, entry] : log_.open()) {
    if (!entry->header.span.is_one()) continue;
    Open& one = open[entry->header.span.first];
    ++one.entries;
    one.bytes += entry->body_bytes();
  }
  if (open != open_) return absl::InternalError("executors have other open entries than counted");
  return absl::OkStatus();
}

}  // namespace fairway
