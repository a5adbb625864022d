// SPDX-License-Identifier: Apache-2.0
#include "client/cli/check_config.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/config.h"
#include "base/settings_file.h"
#include "client/cli/process.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

// The command that reads [table].
std::vector<std::string> ReaderOf(std::string_view table) {
  const std::string programs = ProgramDirectory();
  if (table == "up") return {programs + "/fairway", "up"};
  return {fmt::format("{}/fairway-{}", programs, table)};
}

// Returns whether the program that reads [table] takes it; the program prints what is wrong.
absl::StatusOr<bool> Takes(std::string_view table, const std::string& path) {
  ChildSpec spec{.command = ReaderOf(table), .log_file = {}, .inherited = {}};
  spec.command.push_back("--config=" + path);
  spec.command.emplace_back("--print-config");
  FAIRWAY_ASSIGN_OR_RETURN(const pid_t pid, StartChild(spec));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) {
    return Error(absl::StatusCode::kInternal, "{} ended by {}", spec.command[0],
                 DescribeExit(status));
  }
  return WEXITSTATUS(status) == 0;
}

}  // namespace

int RunConfig(int argc, const char* const* argv) {
  std::string verb, path;
  Config config("fairway config", "Tries a settings file: fairway config check FILE");
  config.Positional("check", &verb, "What to do; there is `check`");
  config.Positional("FILE", &path, "A settings file (docs/settings.md)");
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (verb != "check" || path.empty()) {
    fmt::print(stderr, "fairway config: expected `fairway config check FILE`\n");
    return kExitUsage;
  }
  const auto fail = [](const absl::Status& status) {
    fmt::print(stderr, "fairway config: {}\n", Text(status));
    return kExitFailed;
  };
  const auto tables = ReadSettings(path);
  if (!tables.ok()) return fail(tables.status());
  bool right = true;
  std::vector<std::string> names;
  for (const auto& [table, settings] : *tables) {
    const auto taken = Takes(table, path);
    if (!taken.ok()) return fail(taken.status());
    right = right && *taken;
    names.push_back(fmt::format("[{}]", table));
  }
  if (!right) return kExitFailed;
  fmt::print("{}: nothing is wrong with {}\n", path,
             names.empty() ? "it; it has no settings" : fmt::format("{}", fmt::join(names, ", ")));
  return 0;
}

}  // namespace fairway
