// SPDX-License-Identifier: Apache-2.0
#include "log/entry.h"

namespace fairway {

std::string_view Name(EntryKind kind) {
  switch (kind) {
    case EntryKind::kCommand:
      return "COMMAND";
    case EntryKind::kRoster:
      return "ROSTER";
    case EntryKind::kPlace:
      return "PLACE";
    case EntryKind::kCode:
      return "CODE";
    case EntryKind::kRun:
      return "RUN";
    case EntryKind::kPut:
      return "PUT";
    case EntryKind::kMove:
      return "MOVE";
    case EntryKind::kFree:
      return "FREE";
    case EntryKind::kEnd:
      return "END";
    case EntryKind::kContinue:
      return "CONTINUE";
    case EntryKind::kDrop:
      return "DROP";
  }
  return "?";
}

absl::Status CheckEntry(EntryKind kind, uint8_t flags, size_t body_bytes) {
  if ((flags & ~kAllEntryFlags) != 0)
    return InvalidArgument("an entry with flags {}, expected at most {}", flags,
                           static_cast<int>(kAllEntryFlags));
  const bool bulk = (flags & kBulkEntry) != 0;
  if (bulk && kind != EntryKind::kCommand)
    return InvalidArgument("a {} in bulk, expected only COMMAND to be", Name(kind));
  const size_t most = bulk ? kMaxBulkBytes : kMaxEntryBytes;
  if (body_bytes > most)
    return InvalidArgument("a {} of {} bytes, expected at most {}", Name(kind), body_bytes, most);
  return absl::OkStatus();
}

}  // namespace fairway
