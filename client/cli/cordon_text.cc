// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cordon_text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/config.h"
#include "client/cli/listing.h"
#include "client/cli/printable.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

uint64_t HoldersOf(const v1::DrainIslandResponse& progress) {
  return static_cast<uint64_t>(progress.holders_size()) + progress.more_holders();
}

std::string Sessions(uint64_t count) {
  return fmt::format("{} session{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string BeginText(const std::string& island, bool now) {
  return fmt::format(
      "{} {}; `fairway uncordon {}` ends that. Nothing is moved: this waits until sessions end or "
      "give up what they have there. It may be interrupted\n",
      island, now ? "is cordoned" : "was cordoned already", island);
}

std::string HoldersText(const std::string& island, const v1::DrainIslandResponse& progress) {
  Listing table{
      .kind = "sessions",
      .columns = {{"SESSION"}, {"TENANT"}, {"ARRAYS"}, {"BYTES"}, {"RUNNING"}, {"UNFINISHED"}}};
  for (const v1::IslandHolder& holder : progress.holders()) {
    table.rows.push_back(
        {{fmt::format("{}{}", holder.session(), holder.ended() ? " (ended)" : ""), holder.tenant(),
          fmt::format("{}", holder.arrays()), BytesText(holder.bytes()),
          fmt::format("{}", holder.running()), fmt::format("{}", holder.unfinished())},
         Json()});
  }
  table.left_out = progress.more_holders();
  std::string out = fmt::format("{} hold{} {}:\n", Sessions(HoldersOf(progress)),
                                HoldersOf(progress) == 1 ? "s" : "", island) +
                    ListingText(table, /*wide=*/false, "  ");
  if (progress.watching() > 0)
    out += fmt::format("{} {} it and {} nothing there\n", Sessions(progress.watching()),
                       progress.watching() == 1 ? "sees" : "see",
                       progress.watching() == 1 ? "has" : "have");
  return out;
}

std::string WhoHolds(const v1::DrainIslandResponse& progress) {
  std::vector<uint64_t> sessions;
  for (const v1::IslandHolder& holder : progress.holders()) sessions.push_back(holder.session());
  std::ranges::sort(sessions);
  return fmt::format("{} and {}", fmt::join(sessions, " "), progress.more_holders());
}

std::string DrainedText(const std::string& island) {
  return fmt::format(
      "{0} is drained: nobody has anything there, and work that comes to it fails until `fairway "
      "uncordon {0}`\n",
      island);
}

absl::Status NotDrained(const std::string& island, std::chrono::milliseconds waited,
                        const v1::DrainIslandResponse& progress) {
  constexpr int kMostNamed = 5;
  std::vector<std::string> names;
  for (const v1::IslandHolder& holder : progress.holders()) {
    if (names.size() == kMostNamed) break;
    names.push_back(fmt::format(
        "session {} (tenant {}) has {} arrays of {} and {} nodes", holder.session(),
        holder.tenant().empty() ? "unknown" : Printable(holder.tenant()), holder.arrays(),
        BytesText(holder.bytes()), holder.running() + holder.unfinished()));
  }
  const uint64_t more = HoldersOf(progress) - names.size();
  return Error(absl::StatusCode::kDeadlineExceeded,
               "{0} is not drained after {1}: {2}{3}. It stays cordoned (`fairway uncordon {0}`)",
               island, FormatDuration(waited), fmt::join(names, "; "),
               more > 0 ? fmt::format("; and {} more", Sessions(more)) : "");
}

}  // namespace fairway
