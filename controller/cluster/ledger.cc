// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/ledger.h"

#include <algorithm>

#include "controller/cluster/session.h"

namespace fairway {

size_t Ledger::Room() const {
  const size_t room = record_memory - std::min(record_memory, record_bytes);
  if (whole_ == nullptr) return room;
  // What this operation has added is not published yet.
  const int64_t left =
      whole_->room() - (static_cast<int64_t>(record_bytes) - static_cast<int64_t>(published_));
  return std::min(room, static_cast<size_t>(std::max<int64_t>(left, 0)));
}

namespace {

size_t ArrayBytes(const Session& session) {
  return session.arrays.bytes() + session.group_records.bytes() + session.door_records.bytes();
}

// What the records of a session's arrays may hold even when others hold all the room: so one that
// comes late, and needs little, is served.
size_t LeastOfArrays(size_t record_memory) {
  return std::min(size_t{64} << 10, record_memory / 1024);
}

}  // namespace

absl::Status Ledger::CheckRoom(const Session& session, size_t more) const {
  const size_t room = Room();
  const size_t has = ArrayBytes(session) + session.program_records.bytes();
  if (has + 2 * more * ArrayTable::kSmallest <= std::max(room, LeastOfArrays(record_memory)))
    return absl::OkStatus();
  const std::string programs =
      session.program_records.bytes() == 0
          ? ""
          : fmt::format(" and {} programs, which hold {} MiB more", session.programs.size(),
                        session.program_records.bytes() >> 20);
  return Error(
      absl::StatusCode::kResourceExhausted,
      "this session has {} arrays, whose records hold {} MiB of the controller's memory,{} and {} "
      "of the {} MiB for records of all sessions (--record-memory) are left; one session's may "
      "hold as much as is left to others: give up arrays that are no longer needed",
      session.arrays.size(), ArrayBytes(session) >> 20, programs, room >> 20, record_memory >> 20);
}

absl::Status Ledger::CheckMade(const Session& session, size_t made) const {
  const size_t room = Room();
  const size_t has = ArrayBytes(session) + session.program_records.bytes();
  if (has + made <= std::max(room, LeastOfArrays(record_memory))) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "the records of what this request makes hold {} MiB of the controller's memory so "
               "far, this session's arrays and programs {} MiB, and {} of the {} MiB for records "
               "of all sessions (--record-memory) are left; one session's may hold as much as is "
               "left to others: ask for fewer arrays at once, and give up those that are no longer "
               "needed",
               made >> 20, has >> 20, room >> 20, record_memory >> 20);
}

absl::Status Ledger::CheckWatchRoom(const Session& session) const {
  const size_t room = Room(), has = session.watch_records.bytes();
  if (has <= std::max(room, kLeastOfWatches)) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "this session waits for so many arrays in {} requests that they hold {} KiB of the "
               "controller's memory, and {} of the {} MiB for records of all sessions "
               "(--record-memory) are left; one session's may hold as much as is left to others: "
               "wait for fewer arrays at a time",
               session.watches.size(), has >> 10, room >> 20, record_memory >> 20);
}

absl::Status Ledger::CheckDoorRoom(const Session& session) const {
  const size_t room = Room();
  if (ArrayBytes(session) + session.program_records.bytes() <=
      std::max(room, LeastOfArrays(record_memory)))
    return absl::OkStatus();
  return Error(
      absl::StatusCode::kResourceExhausted,
      "this session's futures, user contexts and executables hold {} MiB of the controller's "
      "memory, its arrays and programs {} MiB, and {} of the {} MiB for records of all sessions "
      "(--record-memory) are left; one session's may hold as much as is left to others: ask for "
      "the futures of earlier calls, and give up arrays and executables that are no longer needed",
      session.door_records.bytes() >> 20,
      (ArrayBytes(session) - session.door_records.bytes() + session.program_records.bytes()) >> 20,
      room >> 20, record_memory >> 20);
}

absl::Status Ledger::CheckProgramRoom(const Session& session, const std::string& name,
                                      size_t bytes) const {
  const size_t room = Room();
  const size_t arrays = ArrayBytes(session), programs = session.program_records.bytes();
  if (bytes <= room / 2 && arrays + programs + 2 * bytes <= room) return absl::OkStatus();
  constexpr double kMiB = 1 << 20;
  return Error(
      absl::StatusCode::kResourceExhausted,
      "program {}: it takes {:.1f} MiB of the controller's memory; the records of this session's "
      "arrays hold {:.1f} MiB, its programs and those that it is binding {:.1f} MiB, and {:.1f} of "
      "the {:.1f} MiB for records of all sessions (--record-memory) are left; one session's may "
      "hold as much as is left to others: release programs and arrays that are no longer needed, "
      "bind one program after the other, or smaller ones",
      name, bytes / kMiB, arrays / kMiB, programs / kMiB, room / kMiB, record_memory / kMiB);
}

}  // namespace fairway
