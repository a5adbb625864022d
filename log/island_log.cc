// SPDX-License-Identifier: Apache-2.0
#include "log/island_log.h"

#include <memory>
#include <utility>

namespace fairway {

absl::Status IslandLog::Room(SessionId session, uint8_t flags, size_t body_bytes) const {
  if (!session || (flags & kNeverWaits) != 0) return absl::OkStatus();
  const size_t used = bytes(session);
  if (used == 0 || used + kMaxEntryHeaderBytes + body_bytes <= session_bytes_)
    return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "session {} has {} bytes in the log that are not concluded; {} more would be above "
               "{}",
               session, used, kMaxEntryHeaderBytes + body_bytes, session_bytes_);
}

absl::StatusOr<EntryRef> IslandLog::Append(NewLogEntry&& entry) {
  FAIRWAY_RETURN_IF_ERROR(CheckEntry(entry.kind, entry.flags, entry.body_bytes()));
  FAIRWAY_RETURN_IF_ERROR(Room(entry.session, entry.flags, entry.body_bytes()));
  auto made = std::make_shared<LogEntry>();
  made->header = {++last_, entry.span, entry.kind, entry.flags};
  made->session = entry.session;
  made->body = std::move(entry.body);
  made->tail = std::move(entry.tail);
  made->charge = std::move(entry.charge);
  made->awaited = entry.awaited;
  bytes_ += made->bytes();
  if (made->session) session_bytes_used_[made->session] += made->bytes();
  open_.emplace_hint(open_.end(), last_, made);
  return EntryRef(std::move(made));
}

absl::StatusOr<EntryRef> IslandLog::Conclude(LogNumber number) {
  const auto it = open_.find(number);
  if (it == open_.end())
    return Error(absl::StatusCode::kFailedPrecondition,
                 "entry {} cannot be concluded: {} (the newest is {})", number,
                 concluded_.Contains(number) ? "it is already" : "it was never appended", last_);
  EntryRef entry = std::move(it->second);
  bytes_ -= entry->bytes();
  if (entry->session) {
    const auto used = session_bytes_used_.find(entry->session);
    used->second -= entry->bytes();
    if (used->second == 0) session_bytes_used_.erase(used);
  }
  open_.erase(it);
  concluded_.Add(number);
  return entry;
}

EntryRef IslandLog::Find(LogNumber number) const {
  const auto it = open_.find(number);
  return it == open_.end() ? nullptr : it->second;
}

size_t IslandLog::bytes(SessionId session) const {
  const auto it = session_bytes_used_.find(session);
  return it == session_bytes_used_.end() ? 0 : it->second;
}

int64_t IslandLog::charged_bytes() const {
  int64_t charged = 0;
  for (const auto& [number, entry] : open_) charged += entry->charge.bytes();
  return charged;
}

absl::Status IslandLog::CheckInvariants() const {
  size_t all = 0;
  absl::flat_hash_map<SessionId, size_t> used;
  for (const auto& [number, entry] : open_) {
    if (entry->header.number != number)
      return absl::InternalError(fmt::format("entry {} lies at {}", entry->header.number, number));
    if (concluded_.Contains(number))
      return absl::InternalError(fmt::format("entry {} is kept and concluded", number));
    all += entry->bytes();
    if (entry->session) used[entry->session] += entry->bytes();
  }
  if (all != bytes_)
    return absl::InternalError(fmt::format("{} bytes are counted, {} are there", bytes_, all));
  if (used != session_bytes_used_)
    return absl::InternalError("bytes of sessions are not what their entries have");
  size_t concluded = 0;
  for (const LogRange& range : concluded_.ToRanges()) concluded += range.last - range.first + 1;
  if (concluded + open_.size() != last_)
    return absl::InternalError(
        fmt::format("{} concluded and {} open entries of {}", concluded, open_.size(), last_));
  return absl::OkStatus();
}

}  // namespace fairway
