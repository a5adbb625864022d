// SPDX-License-Identifier: Apache-2.0
// Runs worlds: fairway-sim --seeds=N [--first=S] [--seconds=S] [--seed=S [--verbose]] [--coverage]
//   [--streams]: gangs are started behind those that compute their inputs, as on GPUs
//   [--small]: worlds of a few operations
//   [--relays]: in every world, not in some
//   and, where bugs are planted (fairway-sim-bugs): --bug=NAME, --all-bugs.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <spdlog/spdlog.h>

#include "base/planted_names.h"
#include "log/planted.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/coverage.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 1000;
  double seconds = 1e9;
  bool verbose = false;
  bool coverage = false;
  WorldKind kind;
  bool all_bugs = false;
  bool ok = true;
  std::string bug;
  std::string program;
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  flags.program = argv[0];
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&](std::string_view name) -> const char* {
      return arg.substr(0, name.size()) == name ? argv[i] + name.size() : nullptr;
    };
    if (const char* v = value("--seeds=")) {
      flags.seeds = std::strtoull(v, nullptr, 10);
    } else if (const char* v = value("--first=")) {
      flags.first = std::strtoull(v, nullptr, 10);
    } else if (const char* v = value("--seed=")) {
      flags.first = std::strtoull(v, nullptr, 10);
      flags.seeds = 1;
    } else if (const char* v = value("--seconds=")) {
      flags.seconds = std::strtod(v, nullptr);
      flags.seeds = UINT64_MAX - flags.first;
    } else if (const char* v = value("--bug=")) {
      flags.bug = v;
    } else if (arg == "--streams") {
      flags.kind.gang_inputs = ArrivalRule::kExternal;
    } else if (arg == "--small") {
      flags.kind.small = true;
    } else if (arg == "--relays") {
      flags.kind.relays = true;
    } else if (arg == "--verbose") {
      flags.verbose = true;
    } else if (arg == "--coverage") {
      flags.coverage = true;
    } else if (arg == "--all-bugs") {
      flags.all_bugs = true;
    } else {
      std::fputs(fmt::format("{}: unknown flag {}\n", argv[0], arg).c_str(), stderr);
      flags.ok = false;
    }
  }
  return flags;
}

struct Outcome {
  uint64_t seeds = 0;
  uint64_t failing_seed = 0;  // 0: none
  std::string rule;
  std::string text;
  double seconds = 0;
  Coverage coverage;
};

// `at`: receives the current seed, for another process to see.
Outcome RunSeeds(const Flags& flags, uint64_t* at = nullptr) {
  Outcome out;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = flags.first; out.seeds < flags.seeds; ++seed) {
    if (at != nullptr) *at = seed;
    World world(seed, flags.verbose, flags.kind);
    try {
      world.Run();
    } catch (const std::exception& thrown) {  // the core should throw nothing
      world.Broken("crash", "{}", thrown.what());
    }
    ++out.seeds;
    out.coverage.Add(world);
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!world.verdict.ok()) {
      out.failing_seed = seed;
      out.rule = world.verdict.rule();
      out.text = world.verdict.text();
      break;
    }
    if (out.seconds > flags.seconds) break;
  }
  return out;
}

#ifdef FAIRWAY_PLANTED_BUGS
struct PlantedBug {
  Bug bug = Bug::kNone;
  LogMistake mistake = LogMistake::kNone;
  std::string name;
};

// None of 6,000 seeds finds it; losses_test.cc does. --bug takes it, --all-bugs leaves it out.
constexpr Bug kRare = Bug::kEndedForAnother;

// Bugs of relays: --all-bugs looks for them where all worlds have relays.
bool IsOfRelays(Bug bug) { return Bug::kForgetEarlyEnds <= bug && bug <= Bug::kSendUnasked; }

// The bugs of the cluster, and those of the log that show here.
std::vector<PlantedBug> AllPlanted() {
  std::vector<PlantedBug> all;
  for (const auto& [bug, name] : kAllBugs)
    all.push_back({bug, LogMistake::kNone, std::string(name)});
  for (const auto& [mistake, name] : kLogMistakes) {
    if (std::ranges::find(kSimulatedMistakes, mistake) != kSimulatedMistakes.end())
      all.push_back({Bug::kNone, mistake, std::string(name)});
  }
  return all;
}

void Plant(const PlantedBug& planted) {
  g_planted_bug = planted.bug;
  g_planted_log_mistake = planted.mistake;
}

// Runs in its own process: a planted bug may crash it, which shows the bug as well.
Outcome RunApart(const Flags& flags) {
  struct Shared {
    uint64_t at = 0;
    uint64_t failing = 0;
    char rule[32] = "";
    char text[160] = "";
  };
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return RunSeeds(flags);
  auto* const shared = new (memory) Shared;
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const Outcome out = RunSeeds(flags, &shared->at);
    shared->failing = out.failing_seed;
    std::snprintf(shared->rule, sizeof shared->rule, "%s", out.rule.c_str());
    std::snprintf(shared->text, sizeof shared->text, "%s", out.text.c_str());
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome out;
  out.failing_seed = WIFSIGNALED(status) ? shared->at : shared->failing;
  out.seeds = shared->at - flags.first + 1;
  out.rule = WIFSIGNALED(status) ? "crash" : shared->rule;
  out.text = shared->text;
  ::munmap(memory, sizeof(Shared));
  return out;
}
#endif

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  if (!flags.ok) return 2;
  spdlog::set_level(flags.verbose ? spdlog::level::warn : spdlog::level::off);
#ifdef FAIRWAY_PLANTED_BUGS
  if (flags.all_bugs) {
    bool all = true;
    std::printf("%-26s %6s  %-10s %s\n", "planted bug", "seeds", "found by", "as");
    for (const PlantedBug& planted : AllPlanted()) {
      if (planted.bug == kRare) continue;
      Plant(planted);
      Flags these = flags;
      these.kind.relays = flags.kind.relays || IsOfRelays(planted.bug);
      const Outcome out = RunApart(these);
      all = all && out.failing_seed != 0;
      std::printf("%-26s %6s  %-10s %s\n", planted.name.c_str(),
                  out.failing_seed != 0 ? std::to_string(out.seeds).c_str() : "NOT",
                  out.rule.c_str(), out.text.substr(0, 120).c_str());
      std::fflush(stdout);
    }
    Plant({});
    Flags few = flags;  // fairway-sim runs many
    few.seeds = std::min<uint64_t>(flags.seeds, 200);
    const Outcome out = RunSeeds(few);
    std::printf("%-26s %6s  %-10s %s\n", "none",
                out.failing_seed != 0 ? std::to_string(out.seeds).c_str() : "-", out.rule.c_str(),
                out.text.c_str());
    return all && out.failing_seed == 0 ? 0 : 1;
  }
  const std::vector<PlantedBug> all = AllPlanted();
  const auto found = std::ranges::find(all, flags.bug, &PlantedBug::name);
  if (found != all.end()) Plant(*found);
  if (!flags.bug.empty() && found == all.end()) {
    std::fputs(fmt::format("there is no bug {}\n", flags.bug).c_str(), stderr);
    return 2;
  }
#else
  if (!flags.bug.empty() || flags.all_bugs) {
    std::fputs("no bugs are planted here: use fairway-sim-bugs\n", stderr);
    return 2;
  }
#endif
  const Outcome out = RunSeeds(flags);
  const bool streams = flags.kind.gang_inputs == ArrivalRule::kExternal;
  if (out.failing_seed != 0) {
    std::puts(fmt::format("seed {} breaks {}: {}", out.failing_seed, out.rule, out.text).c_str());
    std::puts(fmt::format("replay: {} --seed={}{}{}{}{} --verbose", flags.program, out.failing_seed,
                          flags.bug.empty() ? "" : " --bug=" + flags.bug,
                          streams ? " --streams" : "", flags.kind.small ? " --small" : "",
                          flags.kind.relays ? " --relays" : "")
                  .c_str());
    return 1;
  }
  std::puts(fmt::format("{} seeds, {:.1f} s, {:.0f} seeds/s, {} steps of the core, no rule broken",
                        out.seeds, out.seconds, out.seeds / out.seconds, out.coverage.steps())
                .c_str());
  if (flags.coverage) return out.coverage.Print(streams) ? 0 : 1;
  return 0;
}

}  // namespace
}  // namespace fairway::sim

int main(int argc, char** argv) { return fairway::sim::Main(argc, argv); }
