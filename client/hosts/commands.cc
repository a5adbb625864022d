// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/commands.h"

#include <cstdio>
#include <string>
#include <string_view>

#include "base/config.h"
#include "client/hosts/verbs.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

struct Flags {
  std::string file;
  std::chrono::milliseconds limit{150000};  // a plugin may take two minutes to open its devices
  bool purge = false;
};

// The flags of each verb, and what it is for.
std::string Describe(std::string_view verb) {
  if (verb == "up")
    return "Brings the cluster of a file up: copies, installs, has workers join, and starts. What "
           "is there already stays as it is.";
  if (verb == "status") return "Shows the hosts of a file, and what runs there.";
  if (verb == "upgrade")
    return "Restarts what does not run the package or the settings of the file: the controller, "
           "which ends all sessions, then the workers, island by island.";
  return "Ends the cluster of a file: its workers, then its controller.";
}

int Run(const std::string& verb, int argc, const char* const* argv) {
  const std::string command = "fairway cluster " + verb;
  Flags flags;
  Config config(command, Describe(verb));
  config.Positional("FILE", &flags.file, "What hosts it has (docs/hosts.md)");
  if (verb == "up" || verb == "upgrade") {
    config.Flag("limit", &flags.limit, "How long a daemon may take until it is up");
  }
  if (verb == "down") {
    config.Flag("purge", &flags.purge,
                "Removes what was made on the hosts, too: programs, logs, keys and tokens");
  }
  config.Check([&] {
    return flags.file.empty() ? InvalidArgument("expected `{} FILE`", command) : absl::OkStatus();
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  const auto fail = [&](const absl::Status& status, int code) {
    fmt::print(stderr, "{}: {}\n", command, Text(status));
    return code;
  };
  auto file = ReadCluster(flags.file);
  if (!file.ok()) return fail(file.status(), kExitUsage);
  const auto fleet = Fleet::Make(command, *std::move(file));
  if (!fleet.ok()) return fail(fleet.status(), kExitFailed);
  if (verb == "up") return ClusterUp(**fleet, flags.limit);
  if (verb == "status") return ClusterStatus(**fleet);
  if (verb == "upgrade") return ClusterUpgrade(**fleet, flags.limit);
  return ClusterDown(**fleet, flags.purge);
}

}  // namespace

int RunCluster(int argc, const char* const* argv) {
  constexpr std::string_view kHelp =
      "usage: fairway cluster VERB FILE [FLAGS]\n\n"
      "  up      bring the cluster of a file up, on the hosts that it names, by ssh\n"
      "  status  show its hosts, and what runs there\n"
      "  upgrade have it run the package and the settings that the file names by now\n"
      "  down    end it; --purge removes what was made on the hosts\n\n"
      "docs/hosts.md says what is in FILE. fairway cluster VERB --help lists the flags.\n";
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "up" || verb == "status" || verb == "upgrade" || verb == "down")
    return Run(verb, argc - 1, argv + 1);
  if (verb == "--help" || verb == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  fmt::print(stderr, "fairway cluster: {} (there are: up, status, upgrade, down)\n",
             verb.empty() ? "which verb?" : fmt::format("no verb '{}'", verb));
  return kExitUsage;
}

}  // namespace fairway
