// SPDX-License-Identifier: Apache-2.0
#include "log/outbox.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "log/planted.h"

namespace fairway {
namespace {

constexpr size_t kMostRangeBytes = 20;

}  // namespace

void LogOutbox::Append(EntryRef entry) {
  bytes_ += entry->bytes();
  unsent_bytes_ += entry->bytes();
  if (IsUrgent(*entry)) ++urgent_;
  entries_.push_back(std::move(entry));
}

void LogOutbox::Conclude(LogNumber number) {
  if (connected_) told_.Add(number);  // otherwise Replay tells all
}

void LogOutbox::Conclude(LogRange range) {
  if (connected_) told_.Add(range);
}

absl::Status LogOutbox::Replay(LogNumber applied, LogNumber sent, LogNumber last,
                               const LogRangeSet& concluded) {
  if (replayed_) {
    FAIRWAY_RETURN_IF_ERROR(CheckApplied(applied));
  } else if (std::max(applied, sent) > last) {
    return InvalidArgument("a child has entries up to {}, expected at most {}",
                           std::max(applied, sent), last);
  }
  // Entries sent before may have come, so reports may name them.
  sent_ = std::max({sent_, sent, applied});
  here_ = applied;
  Applied(applied);
  if (!Planted(LogMistake::kReplaySkipped)) {
    while (unsent_ > 0) CountUnsent(*entries_[--unsent_], true);
  }
  told_ = concluded;
  if (!replayed_) first_bytes_ = bytes_;
  connected_ = replayed_ = due_ = true;
  return absl::OkStatus();
}

absl::Status LogOutbox::Keep(Standing before, LogNumber last) {
  if (std::max(before.applied, before.sent) > last)
    return InvalidArgument("a child has entries up to {}, expected at most {}",
                           std::max(before.applied, before.sent), last);
  sent_ = std::max(before.sent, before.applied);
  here_ = Planted(Bug::kSentElsewhere) ? sent_ : std::max(before.here, before.applied);
  Applied(before.applied);
  while (unsent_ < entries_.size() && entries_[unsent_]->header.number <= here_)
    CountUnsent(*entries_[unsent_++], false);
  told_ = std::move(before.untold);
  connected_ = replayed_ = due_ = true;
  return absl::OkStatus();
}

absl::Status LogOutbox::CheckApplied(LogNumber applied) const {
  if (applied >= applied_ && applied <= sent_) return absl::OkStatus();
  return InvalidArgument("a child has entries up to {}, expected {} to {}", applied, applied_,
                         sent_);
}

void LogOutbox::Applied(LogNumber applied) {
  applied_ = applied;
  while (!entries_.empty() && entries_.front()->header.number <= applied) {
    const LogEntry& entry = *entries_.front();
    bytes_ -= entry.bytes();
    if (unsent_ > 0) {
      --unsent_;
    } else {  // it came on an earlier link
      CountUnsent(entry, false);
    }
    entries_.pop_front();
  }
}

std::string LogOutbox::Next(size_t most, SharedTail* tail) {
  const size_t ranges = std::max<size_t>(1, most / 2 / kMostRangeBytes);
  LogRanges told = told_.TakeFront(std::min(ranges, kMaxFrameRanges));
  LogFrameWriter frame(version_, told);
  SharedTail last;
  while (unsent_ < entries_.size() && frame.entries() < kMaxFrameEntries) {
    const LogEntry& entry = *entries_[unsent_];
    const bool alone = frame.entries() == 0 && told.empty();
    if (!alone && frame.BytesWith(entry.header, entry.body_bytes()) > most) break;
    frame.Add(entry.header, entry.body, entry.tail.size());
    CountUnsent(entry, false);
    ++unsent_;
    here_ = entry.header.number;
    sent_ = std::max(sent_, here_);
    if (entry.tail.size() == 0) continue;
    last = entry.tail;
    break;
  }
  due_ = false;
  std::string bytes = frame.Take();
  if (tail != nullptr) {
    *tail = std::move(last);
  } else if (last.bytes != nullptr) {
    bytes += *last.bytes;
  }
  return bytes;
}

void LogOutbox::CountUnsent(const LogEntry& entry, bool more) {
  const size_t urgent = IsUrgent(entry) ? 1 : 0;
  urgent_ = more ? urgent_ + urgent : urgent_ - urgent;
  unsent_bytes_ = more ? unsent_bytes_ + entry.bytes() : unsent_bytes_ - entry.bytes();
}

absl::Status LogOutbox::CheckInvariants() const {
  size_t bytes = 0, unsent_bytes = 0, urgent = 0;
  LogNumber previous = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const LogEntry& entry = *entries_[i];
    const LogNumber number = entry.header.number;
    if (number <= previous || (replayed_ && number <= applied_))
      return absl::InternalError(
          fmt::format("entry {} after {}, of which {} have come", number, previous, applied_));
    if (i < unsent_ && number > sent_)
      return absl::InternalError(fmt::format("entry {} is sent, but not up to it", number));
    previous = number;
    bytes += entry.bytes();
    if (i < unsent_) continue;
    unsent_bytes += entry.bytes();
    if (IsUrgent(entry)) ++urgent;
  }
  if (bytes != bytes_ || unsent_bytes != unsent_bytes_ || urgent != urgent_ ||
      unsent_ > entries_.size())
    return absl::InternalError(fmt::format("{} bytes, {} and {} entries unsent, but {}, {} and {}",
                                           bytes_, unsent_bytes_, urgent_, bytes, unsent_bytes,
                                           urgent));
  if (applied_ > sent_)
    return absl::InternalError(fmt::format("{} have come of {} sent", applied_, sent_));
  return absl::OkStatus();
}

}  // namespace fairway
