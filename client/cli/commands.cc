// SPDX-License-Identifier: Apache-2.0
#include "client/cli/commands.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/config.h"
#include "base/host.h"
#include "client/cli/admin_client.h"
#include "client/cli/printable.h"
#include "client/cli/process.h"
#include "client/cli/reach.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;
constexpr auto kDownTimeout = std::chrono::seconds(30);
constexpr auto kRestartTimeout = std::chrono::seconds(60);

int Fail(std::string_view command, const absl::Status& status) {
  fmt::print(stderr, "fairway {}: {}\n", command, Printable(Text(status)));
  return kExitFailed;
}

// Whether the process runs. A zombie, whose parent has not waited for it yet, does not.
bool Runs(int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(in, text)) return false;
  const size_t after_name = text.rfind(')');
  const char state = after_name + 2 < text.size() ? text[after_name + 2] : 'Z';
  return state != 'Z' && state != 'X';
}

}  // namespace

int RunDown(int argc, const char* const* argv) {
  Reach reach;
  Config config("fairway down", "Ends a cluster and waits until it is gone.");
  DeclareReach(config, &reach);
  if (const auto code = config.Parse(argc, argv)) return *code;
  auto admin = std::make_unique<AdminClient>(reach);
  const auto status = admin->GetStatus();
  if (!status.ok()) return Fail("down", status.status());
  const auto answer = admin->Shutdown();
  if (!answer.ok()) return Fail("down", answer.status());
  admin.reset();  // an open connection would delay the controller's end
  // Only a command on the cluster's own host can watch its processes.
  std::set<int64_t> waiting;
  if (status->host() == HostName()) waiting = {answer->controller_pid(), answer->launcher_pid()};
  waiting.erase(0);
  const auto deadline = std::chrono::steady_clock::now() + kDownTimeout;
  while (!waiting.empty() && std::chrono::steady_clock::now() < deadline) {
    std::erase_if(waiting, [](int64_t pid) { return !Runs(pid); });
    if (!waiting.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (!waiting.empty()) {
    return Fail("down", Error(absl::StatusCode::kDeadlineExceeded,
                              "told to end, but process {} is still there", *waiting.begin()));
  }
  fmt::print("the cluster at {} is down\n", reach.controller);
  return 0;
}

int RunRestart(int argc, const char* const* argv) {
  Reach reach;
  std::string worker;
  Config config(
      "fairway restart",
      "Ends the executor of a worker, with the others of its island if there are any, and "
      "waits until they have been started anew. What they held and computed is lost, for "
      "every session: the way out when a program without end keeps its devices.");
  DeclareReach(config, &reach);
  config.Positional("WORKER", &worker, "As `fairway status` names it");
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (worker.empty()) {
    fmt::print(stderr, "fairway restart: which worker? (`fairway status` lists them)\n");
    return kExitUsage;
  }
  AdminClient admin(reach);
  const auto ended = admin.RestartExecutor(worker);
  if (!ended.ok()) return Fail("restart", ended.status());
  const auto deadline = std::chrono::steady_clock::now() + kRestartTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto status = admin.GetStatus();
    if (!status.ok()) return Fail("restart", status.status());
    for (const v1::Executor& executor : status->executors()) {
      if (executor.worker() != worker || executor.incarnation() == ended->incarnation()) continue;
      for (const v1::Island& island : status->islands()) {
        if (island.name() != executor.island() || !island.up()) continue;
        fmt::print("{} is up again\n", Printable(island.name()));
        return 0;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Fail("restart", Error(absl::StatusCode::kDeadlineExceeded,
                               "the executor of {} was ended, and none is up after {} s: see "
                               "`fairway status` and `fairway logs {}`",
                               worker, kRestartTimeout.count(), worker));
}

int RunStatus(int argc, const char* const* argv) {
  Reach reach;
  std::string output = "text";
  Config config("fairway status", "Shows islands, executors, memory and counts.");
  DeclareReach(config, &reach);
  config.Flag("output", &output, "text, wide (each executor's link, too) or json");
  config.ShortName("output", 'o');
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (output != "text" && output != "wide" && output != "json") {
    fmt::print(stderr, "fairway status: --output must be text, wide or json, not '{}'\n", output);
    return kExitUsage;
  }
  const auto status = AdminClient(reach).GetStatus();
  if (!status.ok()) return Fail("status", status.status());
  fmt::print("{}", output == "json" ? StatusJson(*status) : StatusText(*status, output == "wide"));
  const std::string note = VersionNote(FAIRWAY_VERSION, status->version());
  if (!note.empty()) fmt::print(stderr, "fairway status: {}\n", note);
  return 0;
}

int RunBench(int argc, const char* const* argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  constexpr std::string_view kHelp =
      "usage: fairway bench NAME [FLAGS]\n\n"
      "  scale   the controller's real code against simulated hosts, in virtual time:\n"
      "          --hosts N --devices-per-host M\n\n"
      "fairway bench NAME --help lists the flags. It needs no cluster.\n";
  if (name == "--help" || name == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (name != "scale") {
    fmt::print(stderr, "fairway bench: {} (there is: scale)\n",
               name.empty() ? "which benchmark?" : fmt::format("no benchmark '{}'", name));
    return kExitUsage;
  }
  std::string program = ProgramDirectory() + "/fairway-bench-" + name;
  std::vector<char*> args = {program.data()};
  for (int i = 2; i < argc; ++i) args.push_back(const_cast<char*>(argv[i]));
  args.push_back(nullptr);
  ::execv(program.c_str(), args.data());
  return Fail("bench", Error(absl::StatusCode::kNotFound,
                             "cannot start {}: {}. Build it: ./dev build fairway-bench-scale",
                             program, std::strerror(errno)));
}

}  // namespace fairway
