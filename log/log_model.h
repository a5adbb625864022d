// SPDX-License-Identifier: Apache-2.0
// A model for log_model_test.cc. The executors of an island come, go, move between relays, lose
// their links and sometimes lie; the log runs between them and the controller. A naive record tells
// what must hold: in it every entry names the incarnations that it concerns.
#ifndef FAIRWAY_LOG_LOG_MODEL_H_
#define FAIRWAY_LOG_LOG_MODEL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "log/follower.h"
#include "log/head.h"
#include "log/relay.h"

namespace fairway {

class LogModel {
 public:
  // `strict`: also checks statuses and all invariants. Otherwise checks results: what executors
  // get, what is concluded, and that everything ends.
  LogModel(uint64_t seed, bool strict);

  // Runs `events` random events. Then mends all links, stops all lies, and waits until everything
  // has ended. Returns the first check that failed, or "".
  std::string Run(int events);

  // Counts over all models: they show that the test does what it is for.
  struct Counts {
    int appended = 0, refused = 0, concluded = 0, versions = 0, replays = 0, lies = 0, killed = 0;
  };
  static Counts counts;

 private:
  // One incarnation of an executor: what it has really done.
  struct Incarnation {
    ExecutorIndex executor = 0;
    LogNumber joined = 0;
    bool alive = true;  // its process
    bool lost = false;  // the controller has taken it out of the tree
    LogFollower follower{std::nullopt};
    // Its parent: a relay, or the controller (-1), and since which version. It closes the link to
    // its parent before it dials another.
    int parent = -1;
    uint64_t parent_since = 0;
    std::vector<LogNumber> applied;
    std::set<LogNumber> ended;
  };
  struct Link {
    bool up = false;
    std::deque<std::string> down, reports;
  };
  // A relay's process. It passes entries on at once, and begins anew with each version.
  struct Relay {
    std::optional<LogRelay> log;
    std::vector<int> below;  // incarnations, by child of the relay
  };
  // A direct child of the controller: an executor, or a relay with executors below it.
  struct Child {
    int relay = -1;
    std::vector<int> live;  // incarnations
    int link() const { return relay >= 0 ? relay : 100 + live.front(); }
  };
  struct Entry {
    IndexSet members;
    std::set<int> concerned;  // incarnations, in the tree when it was appended
    SessionId session;
    size_t bytes = 0;
    int conclusions = 0;
  };

  uint64_t Pick(uint64_t below) { return random_() % below; }
  void Fail(std::string what);
  void Expect(const absl::Status& status, const char* what);

  void Event();
  void Reform();
  void Kill();
  void Append();
  void SendDown(uint32_t child);
  void DeliverDown(uint32_t child);
  void DeliverToRelay(int slot, const LogFrame& frame);
  void Apply(int incarnation, const LogFrame& frame);
  void EndOne();
  void ReportToRelays();
  void BeginRelay(int slot, Relay& relay, uint64_t version);
  void PassOn(int slot, Relay& relay);
  void SendReport(uint32_t child);
  void DeliverReport(uint32_t child);
  void Cut(uint32_t child);
  void Connect(uint32_t child);
  void Lie(uint32_t child);
  void Refused(uint32_t child, LogNumber first, LogNumber last, const char* what);
  void Conclusions();
  void CheckAll();
  void Finish();
  bool Concerns(const Child& child, LogNumber number) const;

  std::mt19937_64 random_;
  const bool strict_;
  std::string failure_;
  LogHead head_;
  std::vector<std::unique_ptr<Incarnation>> incarnations_;
  std::map<ExecutorIndex, int> latest_;  // incarnation of each executor
  std::map<uint64_t, std::vector<Child>> trees_;
  std::map<int, Relay> relays_;
  std::map<int, Link> links_;
  std::map<LogNumber, Entry> entries_;
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_LOG_MODEL_H_
