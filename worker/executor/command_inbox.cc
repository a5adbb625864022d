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
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<LogFrame::Received> fresh, follower_.Take(frame));
  unreported_ += bytes.size();
  std::vector<Command> out;
  out.reserve(fresh.size());
  for (const LogFrame::Received& entry : fresh) {
    if (entry.header.kind != EntryKind::kCommand)
      return InvalidArgument("entry {} is a {}, expected a COMMAND", entry.header.number,
                             Name(entry.header.kind));
    absl::StatusOr<Command> command = DecodeCommand(entry.body);
    if (!command.ok()) return command.status();
    out.push_back(*std::move(command));
  }
  FAIRWAY_RETURN_IF_ERROR(follower_.Ended(fresh, /*wakes=*/false));
  return out;
}

void CommandInbox::Resend() {
  follower_.Resend();
  unreported_ = kAtOnce;
}

std::string CommandInbox::Report(With with) {
  const size_t least = with == With::kNothing ? kAtOnce : with == With::kReport ? kWithReport : 1;
  if (unreported_ < least || follower_.version() == 0) return {};
  std::string report = EncodeLogReport(follower_.Next());
  unreported_ = follower_.more() ? kAtOnce : 0;
  return report;
}

}  // namespace fairway
