// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cordon.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/config.h"
#include "client/cli/admin_client.h"
#include "client/cli/cordon_text.h"
#include "client/cli/printable.h"
#include "client/cli/reach.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kExitFailed = 1;
// Of a drain alone: the controller answered up to the timeout, and the island is held yet.
constexpr int kExitNotDrained = 4;
constexpr milliseconds kAskEvery{500};

int Fail(std::string_view command, const absl::Status& status) {
  fmt::print(stderr, "fairway {}: {}\n", command, Printable(Text(status)));
  return kExitFailed;
}

int WhichIsland(std::string_view command) {
  fmt::print(stderr, "fairway {}: which island? (`fairway get islands` lists them)\n", command);
  return kExitUsage;
}

// Does `change` to one island after the other. It returns whether there was something to change.
template <typename Change>
int ChangeAll(std::string_view command, const std::vector<std::string>& islands, Change change,
              std::string_view done, std::string_view was) {
  if (islands.empty()) return WhichIsland(command);
  int code = 0;
  for (const std::string& island : islands) {
    const absl::StatusOr<bool> changed = change(island);
    if (changed.ok()) {
      fmt::print("{} {}\n", island, *changed ? done : was);
    } else {
      code = Fail(command, changed.status());
    }
  }
  return code;
}

}  // namespace

int RunCordon(int argc, const char* const* argv) {
  Reach reach;
  std::vector<std::string> islands;
  Config config("fairway cordon",
                "Keeps new sessions from islands: those that are opened from now on do not see "
                "their devices. What is there goes on. It stays until `fairway uncordon`, or until "
                "the controller ends.");
  DeclareReach(config, &reach);
  config.Positional("ISLAND", &islands, "As `fairway get islands` names them");
  if (const auto code = config.Parse(argc, argv)) return *code;
  AdminClient admin(reach);
  const auto change = [&](const std::string& island) -> absl::StatusOr<bool> {
    FAIRWAY_ASSIGN_OR_RETURN(const auto answer, admin.CordonIsland(island));
    return answer.changed();
  };
  return ChangeAll("cordon", islands, change, "is cordoned", "was cordoned already");
}

int RunUncordon(int argc, const char* const* argv) {
  Reach reach;
  std::vector<std::string> islands;
  Config config("fairway uncordon",
                "Ends what `fairway cordon` and `fairway drain` began: sessions that are opened "
                "from now on see the islands again.");
  DeclareReach(config, &reach);
  config.Positional("ISLAND", &islands, "As `fairway get islands` names them");
  if (const auto code = config.Parse(argc, argv)) return *code;
  AdminClient admin(reach);
  const auto change = [&](const std::string& island) -> absl::StatusOr<bool> {
    FAIRWAY_ASSIGN_OR_RETURN(const auto answer, admin.UncordonIsland(island));
    return answer.changed();
  };
  return ChangeAll("uncordon", islands, change, "takes new sessions", "was not cordoned");
}

int RunDrain(int argc, const char* const* argv) {
  Reach reach;
  std::string island;
  milliseconds timeout{0};
  Config config(
      "fairway drain",
      "Cordons an island, and waits until no session has arrays or work there; then work that "
      "comes to it fails, and it can be stopped without loss. Nothing is moved: arrays stay until "
      "their sessions end or delete them. To interrupt it is safe: the island stays cordoned. Ends "
      "with 0 when the island is drained, with 4 when it is not at --timeout, with 1 when it "
      "cannot be asked.");
  DeclareReach(config, &reach);
  config.Flag("timeout", &timeout, "Give up then, and say who has what there; 0: never");
  config.Positional("ISLAND", &island, "As `fairway get islands` names it");
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (island.empty()) return WhichIsland("drain");
  AdminClient admin(reach);
  const auto deadline = steady_clock::now() + timeout;
  std::string shown;
  for (bool first = true;; first = false) {
    const auto progress = admin.DrainIsland(island, /*again=*/!first);
    if (!progress.ok()) return Fail("drain", progress.status());
    if (progress->drained()) {
      fmt::print("{}", DrainedText(island));
      return 0;
    }
    if (first) fmt::print("{}", BeginText(island, progress->cordoned()));
    if (WhoHolds(*progress) != shown) {
      shown = WhoHolds(*progress);
      fmt::print("{}", HoldersText(island, *progress));
      std::fflush(stdout);
    }
    if (timeout.count() == 0) {
      std::this_thread::sleep_for(kAskEvery);
      continue;
    }
    const auto left = deadline - steady_clock::now();
    if (left <= left.zero()) {
      Fail("drain", NotDrained(island, timeout, *progress));
      return kExitNotDrained;
    }
    std::this_thread::sleep_for(std::min<steady_clock::duration>(kAskEvery, left));
  }
}

}  // namespace fairway
