// SPDX-License-Identifier: Apache-2.0
// The fairway command. Exit codes: 0 done; 1 it failed (one line on standard error says why); 2
// wrong usage; 5 a port is in use.
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "base/config.h"
#include "client/cli/admin_client.h"
#include "client/cli/certificates.h"
#include "client/cli/check_config.h"
#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "client/cli/cordon.h"
#include "client/cli/describe.h"
#include "client/cli/diagnose.h"
#include "client/cli/doctor.h"
#include "client/cli/gateway.h"
#include "client/cli/get.h"
#include "client/cli/identity.h"
#include "client/cli/logs.h"
#include "client/cli/run.h"
#include "client/cli/tokens.h"
#include "client/cli/up.h"
#include "client/hosts/commands.h"

namespace {

constexpr std::string_view kHelp =
    "usage: fairway COMMAND [FLAGS]\n"
    "\n"
    "  up      start a cluster on this host: --islands N --devices M [--detach]\n"
    "  down    end a cluster\n"
    "  run     run a dataflow program from a file: fairway run FILE\n"
    "  status  show islands, executors, memory and counts; -o json for programs\n"
    "  get     list islands, sessions, arrays and more: fairway get KIND\n"
    "  describe say all about an island, a session or another object: fairway describe KIND NAME\n"
    "  doctor  look for what keeps a cluster from working, and say how to mend it\n"
    "  diagnose collect what a report of a fault needs in one archive, without secrets\n"
    "  logs    show the latest log lines, of any host: fairway logs [WORKER]\n"
    "  restart end an island's executors, which come back empty: fairway restart WORKER\n"
    "  cordon  keep new sessions from islands: fairway cordon ISLAND...\n"
    "  uncordon let new sessions see them again: fairway uncordon ISLAND...\n"
    "  drain   cordon an island and wait until nobody has anything there: fairway drain ISLAND\n"
    "  config  try a settings file: fairway config check FILE\n"
    "  init    make the CA of a cluster and an admin's token: fairway init DIRECTORY\n"
    "  issue   make a daemon's certificate: fairway issue NAME --from DIRECTORY\n"
    "  join    get a worker's certificate by a token: fairway join CONTROLLER --to DIRECTORY\n"
    "  token   make, list or revoke clients' tokens: fairway token create --role ROLE\n"
    "  certificate list or revoke workers' certificates: fairway certificate revoke NAME\n"
    "  cluster several hosts, by ssh: fairway cluster up FILE\n"
    "  gateway lets JAX use a controller with TLS; fairway.connect starts it\n"
    "  completion let a shell complete these words: source <(fairway completion bash)\n"
    "  bench   measure, without a cluster: fairway bench scale --hosts N --devices-per-host M\n"
    "\n"
    "fairway COMMAND --help lists the flags of a command. All but up, config, init, issue, "
    "cluster, completion and bench take\n"
    "--controller HOST[:PORT] "
    "(default 127.0.0.1:29000, or FAIRWAY_CONTROLLER), --tls-ca FILE for TLS,\n"
    "and --token-file FILE for the token that a controller with certificates wants.\n";

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  fairway::SilenceGrpc();
  if (command == "up") return fairway::RunUp(argc - 1, argv + 1);
  if (command == "down") return fairway::RunDown(argc - 1, argv + 1);
  if (command == "run") return fairway::RunProgram(argc - 1, argv + 1);
  if (command == "status") return fairway::RunStatus(argc - 1, argv + 1);
  if (command == "get") return fairway::RunGet(argc - 1, argv + 1);
  if (command == "describe") return fairway::RunDescribe(argc - 1, argv + 1);
  if (command == "doctor") return fairway::RunDoctor(argc - 1, argv + 1);
  if (command == "diagnose") return fairway::RunDiagnose(argc - 1, argv + 1);
  if (command == "restart") return fairway::RunRestart(argc - 1, argv + 1);
  if (command == "cordon") return fairway::RunCordon(argc - 1, argv + 1);
  if (command == "uncordon") return fairway::RunUncordon(argc - 1, argv + 1);
  if (command == "drain") return fairway::RunDrain(argc - 1, argv + 1);
  if (command == "bench") return fairway::RunBench(argc - 1, argv + 1);
  if (command == "logs") return fairway::RunLogs(argc - 1, argv + 1);
  if (command == "init") return fairway::RunInit(argc - 1, argv + 1);
  if (command == "issue") return fairway::RunIssue(argc - 1, argv + 1);
  if (command == "join") return fairway::RunJoin(argc - 1, argv + 1);
  if (command == "token") return fairway::RunToken(argc - 1, argv + 1);
  if (command == "certificate") return fairway::RunCertificate(argc - 1, argv + 1);
  if (command == "cluster") return fairway::RunCluster(argc - 1, argv + 1);
  if (command == "gateway") return fairway::RunGateway(argc - 1, argv + 1);
  if (command == "completion") return fairway::RunCompletion(argc - 1, argv + 1);
  if (command == "config") return fairway::RunConfig(argc - 1, argv + 1);
  if (command == "--help" || command == "-h" || command == "help") {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (command == "--version") return fairway::Config("fairway", "").Parse(argc, argv).value_or(0);
  if (command.empty()) {
    fmt::print(stderr, "{}", kHelp);
  } else {
    fmt::print(stderr,
               "fairway: unknown command '{}' (up, down, run, status, get, describe, doctor, "
               "diagnose, logs, restart, cordon, uncordon, drain, config, init, "
               "issue, join, token, certificate, cluster, gateway, completion, bench; --help tells "
               "more)\n",
               command);
  }
  return fairway::kExitUsage;
}
