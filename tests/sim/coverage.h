// SPDX-License-Identifier: Apache-2.0
// Counts each legal move and each kind of event, over many worlds.
#ifndef FAIRWAY_TESTS_SIM_COVERAGE_H_
#define FAIRWAY_TESTS_SIM_COVERAGE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "tests/sim/world.h"

namespace fairway::sim {

class Coverage {
 public:
  void Add(const World& world) {
    for (const auto& [name, count] : world.counts) counts_[name] += count;
    steps_ += world.steps;
  }
  uint64_t steps() const { return steps_; }

  // Prints the table. Returns whether everything happened that is not in kMayBeAbsent; with
  // `streams`, also launches on streams.
  bool Print(bool streams) const {
    size_t happened = 0, legal = 0, missing = 0;
    const auto line = [&](const std::string& name) {
      const auto it = counts_.find(name);
      const uint64_t count = it == counts_.end() ? 0 : it->second;
      const bool may_be = std::ranges::find(kMayBeAbsent, name) != kMayBeAbsent.end();
      ++legal;
      happened += count > 0 ? 1 : 0;
      missing += count == 0 && !may_be ? 1 : 0;
      std::puts(fmt::format("{:<44} {:>10}{}", name, count,
                            count > 0 ? ""
                            : may_be  ? "   never, as it may be"
                                      : "   NEVER")
                    .c_str());
    };
    // The core counts each legal move (CanMove), also those that never happened.
    for (const auto& [name, count] : counts_) {
      if (name.starts_with("move ")) line(name);
    }
    for (const char* name : kEvents) line(name);
    if (streams) line("launch on a stream");
    std::puts(fmt::format("happened: {} of {}; missing: {}", happened, legal, missing).c_str());
    return missing == 0;
  }

 private:
  // So rare that 3,000 seeds may have none.
  static constexpr std::array<std::string_view, 0> kMayBeAbsent = {};
  static constexpr std::array kEvents = {"install",
                                         "launch for all",
                                         "launch for all, ahead",
                                         "free for all",
                                         "report of the log alone",
                                         "code forgotten",
                                         "install fails",
                                         "launch single",
                                         "launch gang",
                                         "launch separable",
                                         "launch of a member apart",
                                         "launch over executors",
                                         "launch ends",
                                         "launch fails",
                                         "launch breaks",
                                         "donated",
                                         "receive inline",
                                         "receive local",
                                         "receive from peer",
                                         "receive from controller",
                                         "receive abandoned",
                                         "pull refused",
                                         "pull of another incarnation",
                                         "intruder refused",
                                         "pull to host",
                                         "cancel",
                                         "fenced report",
                                         "executor dies",
                                         "executor declared lost",
                                         "executor fenced",
                                         "executor stopped",
                                         "executor stalled",
                                         "stopped executor goes on",
                                         "worker stopped",
                                         "host dies",
                                         "host silent",
                                         "host silent for long",
                                         "link cut: the controller hears first",
                                         "link cut: the worker hears first",
                                         "link cut and back",
                                         "link resumed",
                                         "link not resumed",
                                         "link not back in time",
                                         "relay of the controller",
                                         "relay below a relay",
                                         "relay lost",
                                         "relay stopped",
                                         "relay late",
                                         "relay killed",
                                         "links of a relay cut",
                                         "hosts cannot reach each other",
                                         "frame doubled",
                                         "log from a relay",
                                         "log from the controller again",
                                         "child given up by its relay",
                                         "says that it lacks entries",
                                         "says that it lacks concluded entries",
                                         "tree of depth 2",
                                         "tree of depth 3",
                                         "late report",
                                         "restart",
                                         "restart under way",
                                         "controller given up",
                                         "report waits for more ends",
                                         "compiled",
                                         "compilation fails",
                                         "controller lost",
                                         "island given up",
                                         "island cordoned",
                                         "island uncordoned",
                                         "island drained",
                                         "island cannot be drained yet",
                                         "work fails on a drained island",
                                         "all islands are cordoned",
                                         "close",
                                         "close with requests open",
                                         "close in the middle of a request",
                                         "request of several turns",
                                         "operation from an answer",
                                         "controller stopped",
                                         "pull cut",
                                         "launch fails alone",
                                         "launch runs out of memory",
                                         "receive runs out of memory",
                                         "hostile request of many arrays",
                                         "hostile request beyond its share",
                                         "hostile session is not read",
                                         "hostile program",
                                         "answer to the neighbour",
                                         "gang of the hog",
                                         "launch beside gangs of other devices",
                                         "launch made ready in parts",
                                         "install of a sequence",
                                         "bitcast",
                                         "argument as result",
                                         "array without bytes",
                                         "reshard by several nodes",
                                         "copy aliases",
                                         "copy donates",
                                         "copy over islands",
                                         "put is stored",
                                         "copy is stored",
                                         "reshard is stored",
                                         "assemble",
                                         "disassemble",
                                         "replicated shard",
                                         "receive piece",
                                         "reshard",
                                         "copy copies what came",
                                         "reshard aliases",
                                         "reshard copies what came",
                                         "reshard donates",
                                         "reshard over islands",
                                         "remap",
                                         "remap donates",
                                         "delete",
                                         "foreign handle",
                                         "execute refused",
                                         "program",
                                         "launch step",
                                         "step over executors",
                                         "steps linked",
                                         "steps together",
                                         "step of a block fails",
                                         "step left out",
                                         "branch left out",
                                         "sequence read",
                                         "sequence over executors ahead",
                                         "sequential program",
                                         "fetched",
                                         "watched",
                                         "failed: UNKNOWN",
                                         "failed: RESOURCE_EXHAUSTED",
                                         "failed: DATA_LOSS",
                                         "failed: UNAVAILABLE",
                                         "failed: NOT_FOUND",
                                         "failed: FAILED_PRECONDITION",
                                         "failed: INVALID_ARGUMENT"};
  std::map<std::string, uint64_t> counts_;
  uint64_t steps_ = 0;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_COVERAGE_H_
