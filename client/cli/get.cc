// SPDX-License-Identifier: Apache-2.0
#include "client/cli/get.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/config.h"
#include "client/cli/admin_client.h"
#include "client/cli/kinds.h"
#include "client/cli/listing.h"
#include "client/cli/paged_listings.h"
#include "client/cli/printable.h"
#include "client/cli/reach.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

constexpr std::chrono::milliseconds kLeastEvery{100};
const std::vector<std::string> kOutputs = {"text", "wide", "json", "yaml"};

// What is asked for, of what sessions have.
struct Which {
  v1::ListRequest request;
  uint64_t limit = 0;  // 0: all
};

struct Kind {
  std::string name;
  std::function<absl::StatusOr<Listing>(AdminClient& admin, const Which& which)> list;
  bool by_session = false;  // takes --session
  bool happens = false;     // rows never change: --watch shows those that are new
};

// A kind that the controller's status has.
Kind OfStatus(std::string name, std::function<Listing(const v1::GetStatusResponse&)> listing) {
  return {
      std::move(name),
      [listing = std::move(listing)](AdminClient& admin, const Which&) -> absl::StatusOr<Listing> {
        FAIRWAY_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, admin.GetStatus());
        return listing(status);
      }};
}

// One that the controller tells in pages.
template <typename Ask>
Kind OfPages(std::string name, Ask ask, bool by_session = true) {
  return {std::move(name),
          [ask](AdminClient& admin, const Which& which) {
            return ask(admin, which.request, which.limit);
          },
          by_session};
}

Kind Events() {
  Kind kind = OfPages("events", AskEvents);
  kind.happens = true;
  return kind;
}

std::vector<Kind> AllKinds() {
  return {
      OfStatus("islands", [](const auto& status) { return IslandListing(status); }),
      OfStatus("workers", [](const auto& status) { return WorkerListing(status); }),
      OfStatus("devices", [](const auto& status) { return DeviceListing(status); }),
      OfPages("sessions", AskSessions, false),
      OfPages("arrays", AskArrays),
      OfPages("programs", AskPrograms),
      OfPages("transfers", AskTransfers),
      OfPages("nodes", AskNodes),
      Events(),
  };
}

std::string TextOf(const Listing& listing, const std::string& output) {
  if (output == "json") return JsonText(ListingJson(listing));
  if (output == "yaml") return YamlText(ListingJson(listing));
  return ListingText(listing, output == "wide");
}

// The same as one of several that follow each other.
std::string OneOfSeveral(const Listing& listing, const std::string& output, bool terminal) {
  if (output == "json") return JsonLine(ListingJson(listing));
  if (output == "yaml") return "---\n" + TextOf(listing, output);
  // The terminal's cursor goes to its first place, and all behind it is erased.
  return (terminal ? "\x1b[H\x1b[2J" : "") + TextOf(listing, output) + (terminal ? "" : "\n");
}

// Shows the list whenever it has changed. Returns only if the controller does not answer.
absl::Status Watch(const std::function<absl::StatusOr<Listing>()>& list, const std::string& output,
                   std::chrono::milliseconds every) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (std::string shown;; std::this_thread::sleep_for(every)) {
    FAIRWAY_ASSIGN_OR_RETURN(const Listing listing, list());
    std::string text = OneOfSeveral(listing, output, terminal);
    if (text == shown) continue;
    fmt::print("{}", text);
    std::fflush(stdout);
    shown = std::move(text);
  }
}

// Shows what has happened, and then what happens. Returns only if the controller does not answer.
absl::Status Follow(AdminClient& admin, const Kind& kind, Which which, const std::string& output,
                    std::chrono::milliseconds every) {
  const bool table = output == "text" || output == "wide";
  for (bool headed = false;; std::this_thread::sleep_for(every)) {
    FAIRWAY_ASSIGN_OR_RETURN(const Listing listing, kind.list(admin, which));
    if (listing.rows.empty()) continue;
    std::string text = OneOfSeveral(listing, output, /*terminal=*/false);
    if (table) text.pop_back();  // the empty line behind it
    if (table && std::exchange(headed, true)) text.erase(0, text.find('\n') + 1);
    fmt::print("{}", text);
    std::fflush(stdout);
    which.limit = 0;
    which.request.mutable_after()->set_id(listing.rows.back().item["id"].get<uint64_t>());
  }
}

int WrongUsage(const std::string& text) {
  fmt::print(stderr, "fairway get: {}\n", text);
  return kExitUsage;
}

int Fail(const absl::Status& status) {
  fmt::print(stderr, "fairway get: {}\n", Printable(Text(status)));
  return 1;
}

}  // namespace

int RunGet(int argc, const char* const* argv) {
  Reach reach;
  std::string word, output = "text";
  int64_t session = 0, limit = 1000;
  bool watch = false;
  std::chrono::milliseconds every{1000};
  Config config(
      "fairway get",
      "Lists the objects of a cluster, by kind.\n\n"
      "  islands  devices under one launch order, and what they do\n"
      "  workers  each with its executor, and what its link does\n"
      "  devices  each with its memory\n"
      "  sessions  of clients, what they have and wait for\n"
      "  arrays  of sessions, their type, place and state\n"
      "  programs  what sessions can run: compiled functions, and programs of many\n"
      "  transfers  of data that have not ended\n"
      "  nodes  all that sessions have asked for and that has not ended\n"
      "  events  what has happened: islands lost and back, sessions, cordons, refusals\n");
  DeclareReach(config, &reach);
  config.Flag("output", &output, "text, wide (more columns), json or yaml");
  config.ShortName("output", 'o');
  config.Flag("session", &session, "Only what is of this one; 0: of all");
  config.Flag("limit", &limit,
              "At most so many sessions, arrays, programs, nodes or events; 0: all");
  config.Flag("watch", &watch,
              "Show it again whenever it has changed, or events as they come, until interrupted");
  config.ShortName("watch", 'w');
  config.Flag("every", &every, "How often --watch asks");
  config.Positional("KIND", &word, "What to list");
  if (const auto code = config.Parse(argc, argv)) return *code;
  const std::vector<Kind> kinds = AllKinds();
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.push_back(kind.name);
  if (word.empty()) return WrongUsage(fmt::format("which kind? ({})", fmt::join(names, ", ")));
  const auto kind = std::ranges::find_if(
      kinds, [&](const Kind& known) { return word == known.name || word + "s" == known.name; });
  if (kind == kinds.end()) return WrongUsage(NoSuch("kind", word, names));
  if (std::ranges::find(kOutputs, output) == kOutputs.end())
    return WrongUsage(NoSuch("--output", output, kOutputs));
  if (every < kLeastEvery)
    return WrongUsage(fmt::format("--every must be at least {}, not {}",
                                  FormatDuration(kLeastEvery), FormatDuration(every)));
  if (session < 0 || limit < 0) return WrongUsage("--session and --limit must be 0 or more");
  if (session != 0 && !kind->by_session)
    return WrongUsage(fmt::format("{} are not of a session; leave out --session", kind->name));
  Which which;
  which.limit = static_cast<uint64_t>(limit);
  which.request.set_session(static_cast<uint64_t>(session));
  AdminClient admin(reach);
  const auto list = [&] { return kind->list(admin, which); };
  if (watch && kind->happens) return Fail(Follow(admin, *kind, which, output, every));
  if (watch) return Fail(Watch(list, output, every));
  const auto listing = list();
  if (!listing.ok()) return Fail(listing.status());
  fmt::print("{}", TextOf(*listing, output));
  return 0;
}

}  // namespace fairway
