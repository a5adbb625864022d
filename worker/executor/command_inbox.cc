// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/command_inbox.h"

#include <utility>

#include "wire/link_codec.h"

namespace fairway {
namespace {

// Bytes of frames after which a report of the log leaves alone. A full link holds more
// (IslandLinksOptions::link_bytes), so the controller gets a report before the link runs dry.
constexpr size_t kAtOnce = 256 << 10;
// Bytes of frames after which it leaves with another report: some 160 launches. Fewer are not
// worth a frame; the next heartbeat tells of them.
constexpr size_t kWithReport = 32 << 10;

}  // namespace

absl::StatusOr<std::vector<Command>> CommandInbox::Take(std::string_view bytes) {
  FAIRWAY_ASSIGN_OR_RETURN(const LogFrame frame, DecodeLogFrame(bytes));
  const uint64_t before = follower_.version();
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<LogFrame::Received> fresh, follower_.Take(frame));
  unreported_ += bytes.size();
  // R3: what was reported of them before counts for nothing.
  if (follower_.version() != before && follower_.Urgent()) unreported_ = kAtOnce;
  std::vector<Command> out;
  out.reserve(fresh.size());
  std::vector<LogFrame::Received> ended;
  ended.reserve(fresh.size());
  for (const LogFrame::Received& entry : fresh) {
    if (entry.header.kind != EntryKind::kCommand)
      return InvalidArgument("entry {} is a {}, expected a COMMAND", entry.header.number,
                             Name(entry.header.kind));
    absl::StatusOr<Command> command = DecodeCommand(entry.body);
    if (!command.ok()) return command.status();
    const bool later = (entry.header.flags & kEndsLater) != 0;
    auto* const all = std::get_if<LaunchAll>(&*command);
    if (later != (all != nullptr))
      return InvalidArgument("entry {} ends {}, expected only LaunchAll to end later",
                             entry.header.number, later ? "later" : "at once");
    if (later) {
      all->entry = entry.header.number;
    } else {
      ended.push_back(entry);
    }
    out.push_back(*std::move(command));
  }
  FAIRWAY_RETURN_IF_ERROR(follower_.Ended(ended, /*wakes=*/false));
  return out;
}

absl::Status CommandInbox::Ended(const std::vector<uint64_t>& entries) {
  for (const LogNumber entry : entries) FAIRWAY_RETURN_IF_ERROR(follower_.Ended(entry));
  return absl::OkStatus();
}

void CommandInbox::Resend() {
  follower_.Resend();
  unreported_ = kAtOnce;
}

std::string CommandInbox::Report(With with) {
  const size_t least = with == With::kNothing ? kAtOnce : with == With::kReport ? kWithReport : 1;
  const bool awaited = with != With::kNothing && follower_.Urgent();
  if ((unreported_ < least && !awaited) || follower_.version() == 0) return {};
  std::string report = EncodeLogReport(follower_.Next());
  unreported_ = follower_.more() ? kAtOnce : 0;
  return report;
}

}  // namespace fairway
