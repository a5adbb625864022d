// SPDX-License-Identifier: Apache-2.0
#include "client/cli/describe.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/config.h"
#include "client/cli/admin_client.h"
#include "client/cli/description.h"
#include "client/cli/kinds.h"
#include "client/cli/paged_listings.h"
#include "client/cli/printable.h"
#include "client/cli/reach.h"

namespace fairway {
namespace {

constexpr uint64_t kMostRows = 50;  // of a session's arrays, programs and nodes each
const std::vector<std::string> kOutputs = {"text", "json", "yaml"};

// The one of `all` that `name_of` says has this name.
template <typename All, typename NameOf>
auto Named(std::string_view kind, const std::string& name, const All& all, NameOf name_of)
    -> absl::StatusOr<const typename All::value_type*> {
  std::vector<std::string> names;
  for (const auto& one : all) {
    if (name_of(one) == name) return &one;
    names.push_back(name_of(one));
  }
  return Error(absl::StatusCode::kNotFound, "{}", NoSuch(kind, name, names));
}

// The number that `text` is; 0: it is none.
uint64_t NumberIn(std::string_view text) {
  uint64_t number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  return wrong == std::errc() && end == text.data() + text.size() ? number : 0;
}

// A kind of which a row of its list has all that is known.
struct RowKind {
  std::string name;
  std::function<absl::StatusOr<Listing>(AdminClient&, const v1::ListRequest&, uint64_t limit)> list;
  // Its objects have numbers of their sessions: "SESSION/NUMBER" names one, as the first two cells
  // of its row.
  bool of_session = false;
};

std::vector<RowKind> RowKinds() {
  const auto devices = [](AdminClient& admin, const v1::ListRequest&,
                          uint64_t) -> absl::StatusOr<Listing> {
    FAIRWAY_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, admin.GetStatus());
    return DeviceListing(status);
  };
  return {{"device", devices},        {"array", AskArrays, true}, {"program", AskPrograms, true},
          {"transfer", AskTransfers}, {"node", AskNodes},         {"event", AskEvents}};
}

std::vector<std::string> AllKinds() {
  std::vector<std::string> out = {"island", "worker", "session"};
  for (const RowKind& kind : RowKinds()) out.push_back(kind.name);
  return out;
}

absl::StatusOr<Description> DescribeRowOf(AdminClient& admin, const RowKind& kind,
                                          const std::string& name) {
  v1::ListRequest request;
  if (kind.of_session) request.set_session(NumberIn(name.substr(0, name.find('/'))));
  // Without its session no name is found; the first ones are named then.
  const uint64_t limit = kind.of_session && request.session() == 0 ? kMostRows : 0;
  FAIRWAY_ASSIGN_OR_RETURN(const Listing listing, kind.list(admin, request, limit));
  std::vector<std::string> names;
  for (const Listing::Row& row : listing.rows) {
    std::string known =
        kind.of_session ? fmt::format("{}/{}", row.cells[0], row.cells[1]) : row.cells[0];
    if (known == name) return DescribeRow(kind.name, listing, row);
    if (names.size() < kMostRows) names.push_back(std::move(known));
  }
  return Error(absl::StatusCode::kNotFound, "{}", NoSuch(kind.name, name, names));
}

absl::StatusOr<Description> DescribeSessionOf(AdminClient& admin, const std::string& name) {
  v1::ListRequest request;
  const uint64_t id = NumberIn(name);
  if (id != 0) request.set_session(id);
  // A name that is none finds no session among the first ones.
  FAIRWAY_ASSIGN_OR_RETURN(v1::ListSessionsResponse sessions, admin.ListSessions(request));
  if (sessions.sessions().empty() && id != 0) {
    FAIRWAY_ASSIGN_OR_RETURN(sessions, admin.ListSessions({}));
  }
  FAIRWAY_ASSIGN_OR_RETURN(const v1::ListedSession* const session,
                           Named("session", name, sessions.sessions(),
                                 [](auto& of) { return fmt::format("{}", of.id()); }));
  FAIRWAY_ASSIGN_OR_RETURN(Listing nodes, AskNodes(admin, request, kMostRows));
  FAIRWAY_ASSIGN_OR_RETURN(Listing arrays, AskArrays(admin, request, kMostRows));
  FAIRWAY_ASSIGN_OR_RETURN(Listing programs, AskPrograms(admin, request, kMostRows));
  return DescribeSession(*session, std::move(nodes), std::move(arrays), std::move(programs));
}

absl::StatusOr<Description> Describe(AdminClient& admin, const std::string& kind,
                                     const std::string& name) {
  if (kind == "session") return DescribeSessionOf(admin, name);
  for (const RowKind& known : RowKinds()) {
    if (kind == known.name) return DescribeRowOf(admin, known, name);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, admin.GetStatus());
  if (kind == "island") {
    for (const v1::Island& absent : status.absent_islands()) {
      if (absent.name() == name) return DescribeIsland(status, absent);
    }
    FAIRWAY_ASSIGN_OR_RETURN(
        const v1::Island* const island,
        Named(kind, name, status.islands(), [](auto& of) { return of.name(); }));
    return DescribeIsland(status, *island);
  }
  FAIRWAY_ASSIGN_OR_RETURN(
      const v1::Executor* const executor,
      Named(kind, name, status.executors(), [](auto& of) { return of.worker(); }));
  return DescribeWorker(status, *executor);
}

int WrongUsage(const std::string& text) {
  fmt::print(stderr, "fairway describe: {}\n", text);
  return kExitUsage;
}

}  // namespace

int RunDescribe(int argc, const char* const* argv) {
  Reach reach;
  std::string word, name, output = "text";
  Config config("fairway describe",
                "Says all that the controller knows of one object.\n\n"
                "  island  its work, workers, devices and relays\n"
                "  worker  its executor, link, devices and relay\n"
                "  session  what it waits for, and its first nodes, arrays and programs\n"
                "  device  WORKER/NUMBER: its state and memory\n"
                "  array  SESSION/HANDLE: its type, place and state, and why it failed\n"
                "  program  SESSION/HANDLE: what the session can run\n"
                "  transfer  from where to where, and what it waits for\n"
                "  node  what a session has asked for, and what it waits for\n"
                "  event  what has happened; `fairway get events -o wide` has its number\n");
  DeclareReach(config, &reach);
  config.Flag("output", &output, "text, json or yaml");
  config.ShortName("output", 'o');
  config.Positional("KIND", &word, "Of which kind it is");
  config.Positional("NAME", &name, "As `fairway get` names it");
  if (const auto code = config.Parse(argc, argv)) return *code;
  const std::vector<std::string> kinds = AllKinds();
  if (word.empty()) return WrongUsage(fmt::format("which kind? ({})", fmt::join(kinds, ", ")));
  const auto kind = std::ranges::find_if(
      kinds, [&](const std::string& known) { return word == known || word == known + "s"; });
  if (kind == kinds.end()) return WrongUsage(NoSuch("kind", word, kinds));
  if (name.empty())
    return WrongUsage(fmt::format("which {0}? (`fairway get {0}s` lists them)", *kind));
  if (std::ranges::find(kOutputs, output) == kOutputs.end())
    return WrongUsage(NoSuch("--output", output, kOutputs));
  AdminClient admin(reach);
  const auto description = Describe(admin, *kind, name);
  if (!description.ok()) {
    fmt::print(stderr, "fairway describe: {}\n", Printable(Text(description.status())));
    return 1;
  }
  if (output == "json") {
    fmt::print("{}", JsonText(DescriptionJson(*description)));
  } else if (output == "yaml") {
    fmt::print("{}", YamlText(DescriptionJson(*description)));
  } else {
    fmt::print("{}", DescriptionText(*description));
  }
  return 0;
}

}  // namespace fairway
